-- SPDX-License-Identifier: MIT
-- Takes events in order.
--   ARGV: ttl, most edges of an owner (0: no limit), deadline (us), then per event:
--     owner, member, op, base
--     op    "1" or "0"; "+" behind it: do not insist on the limit where the list is
--           not loaded; "@us" behind it when the client gave a time
--     base  ""; "a" assume that PostgreSQL has nothing; or
--           "seen status mtime ctime" (us): what a lookup found that was begun
--           after this script answered MISS at the time `seen`; in this life
-- Reply: now, then a code per event, then the last error's text if any. Only now:
-- the deadline is over, nothing was done; the daemon may have given these events up,
-- and have told newer ones of the same pairs to another connection.
local SAME, CHANGED, MISS, FUTURE, BAD, FULL, REFUSED = 0, 1, 2, 3, 4, 5, 6
local LIST_FIRST, LIMIT = 7, 8 -- load the owner's list first; it is full

local ttl, most = ARGV[1], ARGV[2] + 0
local now = now_us()
if now > ARGV[3] + 0 then
  return {us_text(now)}
end
local state = call('HMGET', STATE, 'gen', 'floor', 'pass_at', 'lists_at', 'life')
local gen = tonumber(state[1]) or 0
local low = least_us(state[2], state[3]) + 1
local behind = low > now       -- the clock of this host is behind what was made
local err_text

local function failed(err)
  err_text = err
  if sub(err, 1, 3) == 'OOM' then
    return FULL
  elseif sub(err, 1, 9) == 'WRONGTYPE' or sub(err, 1, 3) == 'ERR' then
    return BAD
  end
  return REFUSED
end

-- Owners; of each whether its counter is known to be right; and what is gathered
-- of its further pairs.
local marked, counted, members, deltas = {}, {}, {}, {}
local unsynced = {}            -- what is gathered for these sets
local registry_type

local function mark_first(owner, member)
  registry_type = registry_type or call('TYPE', REGISTRY).ok
  if registry_type ~= 'set' and registry_type ~= 'none' then
    return {err = 'WRONGTYPE ' .. REGISTRY .. ' is not a set'}
  end
  return pcall_redis('SADD', SET .. owner, member)
end

-- Puts the pair into the set and moves the counter; or returns the error, before
-- anything was written. An owner's first pair goes at once, so that its keys are
-- known to be right; what follows is gathered (mark_end).
local function mark_pair(owner, member, delta)
  local known, added = counted[owner], 0
  if known == nil then
    added = mark_first(owner, member)
    if type(added) == 'table' then
      return added.err
    end
  end
  local now_known = known or false
  if not known and COUNTER_PRE and delta ~= 0 then
    local r = pcall_redis('INCRBY', counter_key(owner), TEXT[delta] or delta)
    if type(r) == 'table' then
      if added == 1 then         -- not what was there before
        call('SREM', SET .. owner, member)
      end
      return r.err
    end
    now_known = r < 2^52 and r > -2^52   -- so that a sum of these cannot fail
    delta = 0
  end
  counted[owner] = now_known
  if known == nil then
    marked[#marked + 1] = owner
    return nil
  end
  local list = members[owner]
  if list then
    list[#list + 1] = member
  else
    members[owner] = {member}
  end
  deltas[owner] = (deltas[owner] or 0) + delta
  return nil
end

-- Marks the pair dirty; or returns the error.
local function mark(owner, member, delta)
  local err = mark_pair(owner, member, delta)
  if UNSYNCED_SETS and not err then
    gather_pair(unsynced, owner, member)
  end
  return err
end

local function mark_end()
  if #marked == 0 then
    return
  end
  if UNSYNCED_SETS then
    call_sets('SADD', unsynced)
  elseif state[4] then
    lists_unknown(now)
  end
  for owner, list in pairs(members) do
    call('SADD', SET .. owner, unpack(list))
    if COUNTER_PRE and deltas[owner] ~= 0 then
      call('INCRBY', counter_key(owner), deltas[owner])
    end
  end
  call('SADD', REGISTRY, unpack(marked))
end

-- Lists that have neither a key nor a mark.
local is_new = {}
-- Pairs that wait for a list: what comes behind waits with them.
local held = {}

local function no_list(key)
  return failed('WRONGTYPE ' .. key ..
                ' is not a sorted set: run likesyncctl adopt follows')
end

-- Whether the edge may come into the lists, or go: nil, or a code. Before anything
-- is written.
local function lists_refuse(owner, member, is_more, op)
  local list, fans = follow_key(owner), fans_key(member)
  local card, n_fans = pcall_redis('ZCARD', list), pcall_redis('ZCARD', fans)
  if type(card) == 'table' then
    return no_list(list)
  elseif type(n_fans) == 'table' then
    return no_list(fans)
  end
  is_new[list] = card == 0 and list_check_empty(list)
  is_new[fans] = n_fans == 0 and list_check_empty(fans)
  if not is_more or most == 0 or call('ZSCORE', list, member) then
    return nil
  elseif card >= most then
    return LIMIT
  elseif not find(op, '+', 1, true) and list_state(list) ~= 'end' then
    held[edge_key(owner, member)] = true
    return LIST_FIRST
  end
end

local function list_take(list, entry, time)
  if is_new[list] then
    list_start(list, entry, time)
  else
    list_add(list, entry, time)
    unsynced_add(list, entry)
  end
end

local function lists_change(owner, member, status, ctime)
  if status == 1 then
    local time = time_text(ctime)
    list_take(follow_key(owner), member, time)
    list_take(fans_key(member), owner, time)
  else
    lists_set(owner, member, status, ctime)
    lists_unsynced(owner, member)
  end
end

-- An end of what there is no edge of. Others may have put one into a list only,
-- where it would be taken over later.
local function lists_leave(owner, member)
  local follow = pcall_redis('ZSCORE', follow_key(owner), member)
  local fan = pcall_redis('ZSCORE', fans_key(member), owner)
  if type(follow) == 'string' or type(fan) == 'string' then
    lists_set(owner, member, 0)
  end
end

local function save(key, owner, member, h)
  if h.new then
    call('HSET', key, 'status', TEXT[h.st], OWNER_FIELD, raw(owner), MEMBER_FIELD,
         raw(member), 'ctime', h.ctime, 'mtime', time_text(h.m), 'synced',
         synced_text(h))
  elseif h.syn and h.touched then
    call('HSET', key, 'status', TEXT[h.st], 'mtime', time_text(h.m), 'synced',
         synced_text(h))
  else
    call('HSET', key, 'status', TEXT[h.st], 'mtime', time_text(h.m))
  end
  if LISTS and not h.new then
    call('HSET', key, 'ctime', time_text(h.ct))
  end
end

-- Keeps what a lookup brought though the event changes nothing. A merged state
-- that PostgreSQL does not have is dirty.
local function keep(key, owner, member, h)
  if h.new then
    local r = pcall_redis('HSET', key, 'status', TEXT[h.st], OWNER_FIELD, raw(owner),
                          MEMBER_FIELD, raw(member), 'ctime', h.ctime, 'mtime',
                          time_text(h.m), 'synced', synced_text(h))
    if type(r) ~= 'table' then
      call('EXPIRE', key, ttl)
    end
  elseif h.merged then
    local synced = h.st == h.syn and h.m == h.sm and h.merged == 0
    if not synced then
      local err = mark(owner, member, h.merged)
      if err then
        return err
      end
      call('PERSIST', key)
      if LISTS then
        lists_unsynced(owner, member)
      end
    end
    if h.others then
      call('HSET', key, 'synced', synced_text(h))
    else
      save(key, owner, member, h)
    end
    if LISTS then
      lists_set(owner, member, h.st, h.ct, synced)
    end
  end
end

-- The highest time that the pair has had: who writes whole seconds may have set
-- it back behind what is claimed or synced, where no new state would win.
local function last_time(key, h)
  local m = h.m
  if h.others then
    m = math.max(m, h.sm or 0, tonumber(call('HGET', key, 'claimed')) or 0)
  end
  return m
end

local function new_time(last)
  local m = now
  if low > m then
    m = low
  end
  if last >= m then
    m = last + 1
  end
  if m % SECOND == 0 then
    m = m + 1              -- whole seconds are others'
  end
  if behind then
    low = m + 1
  end
  return m
end

-- What is known of the pair, from the hash and the base; or a code.
local function known(key, owner, member, base, v)
  local h, err = edge_read(key, v)
  if h == false then
    return nil, failed(err)
  end
  if h and h.syn and h.gen == gen then
    return h
  end
  if base == '' then
    return nil, MISS
  end
  if base == 'a' then
    if not h then
      return {st = 0, m = 0, syn = 0, sm = 0, gen = gen, assumed = 'a', new = true}
    end
    if h.syn then
      h.gen, h.touched = gen, true
    end
    if not h.assumed then
      -- An end that PostgreSQL does not have yet: what begins now is new.
      h.assumed = h.st == 0 and h.m > (h.sm or 0) and 'b' or 'a'
    end
    return h
  end
  local seen, st, m, ctime = match(base, '^(%d+) ([01]) (%d+) (%d+)$')
  seen, st, m = tonumber(seen), tonumber(st), tonumber(m)
  local born = tonumber(state[5]) or 0 -- in the future: the clock was set back
  if seen > now or now - seen > ASKED_MAX or (seen < born and born <= now) then
    return nil, MISS
  end
  if not h then
    return {st = st, m = m, syn = st, sm = m, gen = gen, new = true,
            ct = tonumber(ctime), ctime = m > 0 and time_text(tonumber(ctime)) or nil}
  end
  h.touched = true
  h.merged = edge_merge(h, st, m, tonumber(ctime), gen)
  return h
end

local last_base, last_nothing

-- Whether the base says that PostgreSQL has nothing; mostly the same one for all.
local function base_is_nothing(base)
  if base ~= last_base then
    local seen = tonumber(match(base, '^(%d+) 0 0 0$'))
    last_base = base
    last_nothing = seen and seen <= now and now - seen <= ASKED_MAX
  end
  return last_nothing
end

-- No hash, no client's time. nil: not a usual case.
local function event_new(key, owner, member, op, base)
  if base == '' then
    return MISS
  elseif op ~= '1' or not base_is_nothing(base) then
    return nil
  end
  local no = LISTS and lists_refuse(owner, member, true, op)
  if no then
    return no
  end
  local err = mark(owner, member, 1)
  if err then
    return failed(err)
  end
  local us = new_time(0)
  local t = time_text(us)
  call('HSET', key, 'status', '1', OWNER_FIELD, raw(owner), MEMBER_FIELD, raw(member),
       'ctime', t, 'mtime', t, 'synced', '0 0')
  if LISTS then
    lists_change(owner, member, 1, us)
  end
  return CHANGED
end

-- The usual cases, without a table: no client's time, and a state that is ours
-- and known, or nothing at all. nil: not one of them.
local function event_usual(key, owner, member, op, base, v)
  local st, want = v[1], BIT[op]
  if not want or gen ~= 0 then
    return nil
  elseif not st and not v[2] and not v[3] and not v.err then
    return event_new(key, owner, member, op, base)
  end
  local m = BIT[st] and ours_us(v[2])
  if not (m and v[3] and find(v[3], '^[01] %d+$')) then
    return nil
  elseif st == op then
    if LISTS and want == 0 then
      lists_leave(owner, member)
    end
    return SAME
  end
  local no = LISTS and lists_refuse(owner, member, want == 1, op)
  if no then
    return no
  end
  local err = mark(owner, member, want - BIT[st])
  if err then
    return failed(err)
  end
  local us = new_time(m)
  if LISTS and want == 1 then
    call('HSET', key, 'status', op, 'mtime', time_text(us), 'ctime', time_text(us))
  else
    call('HSET', key, 'status', op, 'mtime', time_text(us))
  end
  call('PERSIST', key)
  if LISTS then
    lists_change(owner, member, want, us)
  end
  return CHANGED
end

-- The lists and the time of the present follow.
local function event_lists(owner, member, h, changed)
  if changed and h.st == 1 or not h.ct then
    h.ct = h.m
  end
  h.ctime = time_text(h.ct)
  if h.st == 0 and h.assumed == 'a' then
    h.assumed, h.touched = 'b', true
  end
  if h.others then
    call('HSET', edge_key(owner, member), 'others', '1')
  end
  lists_change(owner, member, h.st, h.ct)
end

local function event(owner, member, op, base)
  local key = edge_key(owner, member)
  if held[key] then
    return LIST_FIRST
  end
  local v = edge_fields(key)
  local done = event_usual(key, owner, member, op, base, v)
  if done then
    return done
  end
  local h, code = known(key, owner, member, base, v)
  if not h then
    return code
  end
  local want = byte(op) - 48
  local at = tonumber(match(op, '@(%d+)$'))
  if at and at > now + AT_AHEAD then
    return FUTURE
  end
  local last = last_time(key, h)
  if (at and at <= last) or (h.st == want and not h.assumed) then
    h.ctime = h.ctime or (h.new and time_text(now))
    local err = not h.assumed and keep(key, owner, member, h)
    if LISTS and want == 0 and h.st == 0 and not at then
      lists_leave(owner, member)
    end
    return err and failed(err) or SAME
  end
  local changed = h.st ~= want and CHANGED or SAME
  local no = LISTS and lists_refuse(owner, member, changed == CHANGED and want == 1, op)
  if no then
    return no
  end
  local err = mark(owner, member, want - h.st + (h.merged or 0))
  if err then
    return failed(err)
  end
  h.st, h.m = want, at or new_time(last)
  if LISTS then
    event_lists(owner, member, h, changed == CHANGED)
  end
  h.ctime = h.ctime or (h.new and time_text(h.m))
  save(key, owner, member, h)
  if not h.new then
    call('PERSIST', key)
  end
  return changed
end

local out, n = {us_text(now)}, 1
for i = 4, #ARGV, 4 do
  n = n + 1
  out[n] = event(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
end
mark_end()
if behind then
  pcall_redis('HSET', STATE, 'floor', format('%.0f', low - 1))
end
if err_text then
  out[#out + 1] = err_text
end
return out
