-- SPDX-License-Identifier: MIT
-- Compares pairs with their rows: the clean hash; what lists that are loaded hold of
-- them, for a kind with lists; and the sets of what is not synced, where they are
-- kept.
--   ARGV: 1 to mend, idle_ttl, then per pair: owner, member, its mark, seen (us:
--     a lookup was begun after this time; 0: none), status, mtime, ctime (us) of
--     what it found
-- Reply: now, then per pair a code, and with it
--   FINE   ""
--   LOOK   its mark: look it up, and send it with that
--   LATER  its mark: it is not as it should be; send it again in a moment
--   WRONG  lines, each of what differs: "h" hash, "l" list or "u" set; "+" it was
--          mended or "-" not; and in words
-- A pair is wrong when it was found so twice and had not changed: the mark is all
-- that was seen of it, behind "!" when that was not as it should be. A state that
-- PostgreSQL had before does not come again, since times only rise.
local FINE, LOOK, LATER, WRONG = 0, 1, 2, 3
local mends, idle_ttl = ARGV[1] == '1', ARGV[2]
local now = now_us()
local gen = tonumber(generation()) or 0
if mends then
  call('SETRANGE', 'likesync:none', 0, '') -- a first write: refused at maxmemory
end

-- Whether the flusher has it, or will find it.
local function is_marked(owner, member)
  return pcall_redis('SISMEMBER', SET .. owner, member) == 1
    or call('SISMEMBER', PART .. owner, member) == 1
    or call('ZSCORE', AGAIN, owner .. ' ' .. member)
    or is_pair_on_record(owner, member)
end

local whole = {}               -- by list: is it loaded

local function side_read(list, entry)
  if whole[list] == nil then
    whole[list] = list_state(list) == 'end'
  end
  return {list = list, entry = entry, whole = whole[list],
          score = whole[list] and call('ZSCORE', list, entry) or nil}
end

-- A set of what is not synced, which may be beside a list.
local function set_read(key, entry, list)
  return {key = key, entry = entry, list = list,
          has = call('SISMEMBER', key, entry) == 1}
end

local is_set_whole             -- as likers.lua believes it

local function sets_are_whole()
  if is_set_whole == nil then
    local v = call('HMGET', STATE, 'lists_at', 'pass_at', 'pass_prev')
    local since = tonumber(v[1])
    is_set_whole = LISTS or (since and (since == 0 or watermark(v[2], v[3]) > since))
      or false
  end
  return is_set_whole
end

-- Where the pair has its places.
local function places_read(p, owner, member)
  p.sides, p.sets = {}, {}
  if LISTS then
    local follow, fans = follow_key(owner), fans_key(member)
    p.sides = {side_read(follow, member), side_read(fans, owner)}
    p.sets = {set_read(UNSYNCED .. follow, member, follow),
              set_read(UNSYNCED .. fans, owner, fans)}
  elseif UNSYNCED_SETS then
    p.sets = {set_read(OF_OWNER .. owner, member), set_read(OF_MEMBER .. member, owner)}
  end
end

local function put(mark, x)
  mark[#mark + 1] = tostring(x)
end

-- All that is known here of a pair, and its mark.
local function pair_read(owner, member)
  local p = {owner = owner, member = member, key = edge_key(owner, member)}
  local v = pcall_redis('HMGET', p.key, 'status', 'mtime', 'synced', 'ctime',
                        'claimed', 'others')
  local mark = {}
  p.h, p.why = edge_read(p.key, v)
  p.is_marked = is_marked(owner, member)
  for i = 1, 6 do
    put(mark, v[i] or '')
  end
  put(mark, p.is_marked)
  places_read(p, owner, member)
  for _, side in ipairs(p.sides) do
    put(mark, side.whole)
    put(mark, side.score)
  end
  for _, set in ipairs(p.sets) do
    put(mark, set.has)
  end
  local h = p.h
  p.is_ours = h and h.syn and h.gen == gen and not h.others and not v[6]
  p.is_synced = p.is_ours and h.st == h.syn and h.m == h.sm and not h.assumed
  p.is_clean = p.is_synced and not p.is_marked
  p.mark = table.concat(mark, ' ')
  return p
end

-- Whether only its row tells what is right.
local function needs_row(p)
  if p.is_marked then
    return false
  elseif p.h == nil then
    for _, side in ipairs(p.sides) do
      if side.whole then
        return true
      end
    end
  end
  return p.is_clean
end

local function in_words(st, us, ct)
  if us == 0 then
    return 'no row'
  elseif LISTS and st == 1 then
    return format('status 1 of %s since %s', time_text(us), time_text(ct))
  end
  return format('status %d of %s', st, time_text(us))
end

local function set_add(set)
  if set.list then
    unsynced_add(set.list, set.entry)
  else
    call('SADD', set.key, set.entry)
  end
end

local function set_remove(set)
  if set.list then
    unsynced_remove(set.list, set.entry, idle_ttl)
  else
    call('SREM', set.key, set.entry)
  end
end

-- ---- hashes ----

-- Its event was recorded: it goes to PostgreSQL. What belongs to it in a counter
-- that is at 0 was lost, too.
local function set_marked(p)
  local owner = p.owner
  if COUNTER_PRE and not is_dirty(owner)
     and call('HEXISTS', ON_RECORD, owner) == 0
     and (pcall_redis('GET', counter_key(owner)) or '0') == '0'
     and p.h.st ~= p.h.syn then
    call('INCRBY', counter_key(owner), TEXT[p.h.st - p.h.syn])
  end
  call('PERSIST', p.key)
  call('SADD', SET .. owner, p.member)
  call('SADD', REGISTRY, owner)
  for _, set in ipairs(p.sets) do
    set_add(set)
  end
end

local function check_hash(p, row, found)
  local h = p.h
  if h == false and not p.is_marked then
    found[#found + 1] = {'h', p.why}
  elseif p.is_ours and not p.is_synced and not p.is_marked then
    found[#found + 1] = {'h', p.key .. ' is not synced, and marked nowhere',
                         function() set_marked(p) end}
  elseif p.is_clean and (h.st ~= row.st or h.m ~= row.m
                         or (LISTS and h.st == 1 and h.ct ~= row.ct)) then
    found[#found + 1] = {'h', format('%s has %s, PostgreSQL %s', p.key,
                                     in_words(h.st, h.m, h.ct),
                                     in_words(row.st, row.m, row.ct)),
                         function() call('DEL', p.key) end}
  elseif p.is_clean and call('TTL', p.key) < 0 then
    found[#found + 1] = {'h', p.key .. ' is synced, and has no TTL',
                         function()
                           if h.m == 0 then
                             call('DEL', p.key)
                           else
                             set_marked(p) -- the ack gives it one
                           end
                         end}
  end
end

-- ---- lists ----

local function side_mend(side, time)
  if not time then
    list_remove(side.list, side.entry)
  elseif side.score then
    call('ZADD', side.list, time, side.entry)
  else
    list_add(side.list, side.entry, time)
  end
end

-- An app may have put a member there that is not ours.
local function is_others_member(side, row)
  return row and row.m == 0 and side.score
    and call('HGET', LIST .. side.list, 'own') ~= '1'
end

local function check_side(p, side, st, ct, row, found)
  local want = st == 1 and time_text(ct) or nil
  local has = side.score and time_text(floor(side.score * SECOND + 0.5))
  if want == has then
    return
  end
  local text = format('%s: %s has %s, should be %s', side.list, side.entry,
                      has or 'no place', want or 'none')
  if is_others_member(side, row) and not p.h then
    found[#found + 1] = {'l', text .. '; likesyncctl adopt follows takes it over'}
  else
    found[#found + 1] = {'l', text, function() side_mend(side, want) end}
  end
end

-- What the lists have to hold: the row, or the hash that is newer.
local function check_lists(p, row, found)
  local st, ct
  if row then
    st, ct = row.st, row.ct
  elseif p.is_ours then
    st, ct = p.h.st, p.h.ct
  else
    return
  end
  for _, side in ipairs(p.sides) do
    if side.whole then
      check_side(p, side, st, ct, row, found)
    end
  end
end

local function check_unsynced(p, found)
  local is_synced = not p.is_marked and (p.h == nil or p.is_clean)
  local is_not = p.is_ours and not p.is_synced and p.is_marked
  for _, set in ipairs(p.sets) do
    if set.has and is_synced then
      found[#found + 1] = {'u', set.key .. ' has ' .. set.entry ..
                           ', which is synced', function() set_remove(set) end}
    elseif is_not and not set.has and sets_are_whole() then
      found[#found + 1] = {'u', set.key .. ' misses ' .. set.entry,
                           function() set_add(set) end}
    end
  end
end

-- ---- verdict ----

local function tell(found)
  local lines = {}
  for i, each in ipairs(found) do
    local kind, text, mend = each[1], each[2], each[3]
    if mends and mend then
      mend()
    end
    lines[i] = kind .. ((mends and mend) and '+' or '-') .. text
  end
  return table.concat(lines, '\n')
end

local function verify(at)
  local p, mark, seen, row = pair_read(ARGV[at], ARGV[at + 1]), ARGV[at + 2],
                             ARGV[at + 3] + 0, nil
  local is_again = mark == '!' .. p.mark
  if needs_row(p) then
    if seen == 0 or seen > now or now - seen > ASKED_MAX
       or not (is_again or mark == p.mark) then
      return LOOK, is_again and mark or p.mark
    end
    row = {st = ARGV[at + 4] + 0, m = ARGV[at + 5] + 0, ct = ARGV[at + 6] + 0}
  end
  local found = {}
  check_hash(p, row, found)
  check_lists(p, row, found)
  check_unsynced(p, found)
  if #found == 0 then
    return FINE, ''
  elseif not is_again then
    return LATER, '!' .. p.mark
  end
  return WRONG, tell(found)
end

local out = {us_text(now)}
for at = 3, #ARGV, 7 do
  out[#out + 1], out[#out + 2] = verify(at)
end
return out
