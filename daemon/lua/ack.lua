-- SPDX-License-Identifier: MIT
-- Takes written pairs off the record and brings back what PostgreSQL holds.
--   ARGV: batch, taker, ttl, ttl of lists, then per pair:
--     owner, member, status and mtime (us) that PostgreSQL holds after the
--     write, mtime (us) that was written, "d" when the row went to the dead
--     letters, and behind it, for a kind with lists, the ctime (us) that
--     PostgreSQL holds, when it was read back
-- Reply: pairs acked, pairs left on this record; or -1: the batch is with another
-- taker, who acks it.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local batch, ttl, idle_ttl = ARGV[1], ARGV[3], ARGV[4]
local record = BATCH .. batch
local is_mine = taker_of(batch) == ARGV[2]
local now = now_us()
local state = call('HMGET', STATE, 'gen', 'lists_off', 'pg_life')
local gen = tonumber(state[1]) or 0
local keeps_sets = UNSYNCED_SETS or state[2] -- or did
-- It may have been written before PostgreSQL failed over, and be gone.
local is_doubtful = state[3] and match(ARGV[2], '^%d+') + 0 < state[3] + 0
local synced = {}                  -- what is gathered for these sets

local function pair_synced(owner, member)
  if LISTS then
    lists_synced(owner, member, idle_ttl)
  elseif keeps_sets then
    gather_pair(synced, owner, member)
  end
end

-- The usual case, without numbers: the pair is as it was written, PostgreSQL
-- took it, no generation is to be kept. nil: not that; else the change in belief,
-- and whether `synced` moved by the opposite.
local function ack_usual(key, owner, member, v, row)
  local ps, pm = ARGV[row + 2], ARGV[row + 3]
  local syn, m = v[3], v[2]
  if not (syn and m and gen == 0 and not v[5] and v[1] == ps
          and ARGV[row + 5] == '' and ours_us(m) and sub(m, 1, 10) .. sub(m, 12) == pm
          and find(syn, '^[01] %d+$') and sub(syn, 3) + 0 <= pm + 0) then
    return nil
  end
  call('HSET', key, 'synced', ps .. ' ' .. pm)
  call('EXPIRE', key, ttl)
  pair_synced(owner, member)
  return byte(syn) - byte(ps), true
end

-- The ctime that PostgreSQL holds, when its row is not the one that was written.
local function bring_back_lists(key, owner, member, h, note)
  h.ct = tonumber(match(note, '%d+')) or h.ct
  call('HSET', key, 'ctime', time_text(h.ct))
  lists_set(owner, member, h.st, h.ct, true)
end

local function ack_edge(key, owner, member, h, ps, pm, written, note, others)
  local dead = sub(note, 1, 1) == 'd'
  if not h or not h.syn then
    if (LISTS or keeps_sets) and (not h or dead) and not is_dirty_pair(owner, member) then
      pair_synced(owner, member)
    end
    return 0, false
  end
  if pm < h.sm then             -- an ack older than the last one
    if not dead then
      return 0, true
    end
    ps, pm = h.syn, h.sm
  end
  local before = h.st - h.syn
  local known = h.gen == gen and not h.assumed and not h.others and not dead
  local newer = h.m > ((dead and written > pm) and written or pm)
  local changed = false
  if not newer and not h.others then
    changed = h.st ~= ps or h.m ~= pm
    h.st, h.m, h.gen = ps, pm, gen
  end
  h.syn, h.sm = ps, pm
  h.assumed = LISTS and newer and h.assumed
  if changed then
    call('HSET', key, 'status', TEXT[ps], 'mtime', time_text(pm), 'synced',
         synced_text(h))
    if LISTS then
      bring_back_lists(key, owner, member, h, note)
    end
  else
    call('HSET', key, 'synced', synced_text(h))
  end
  if h.st == ps and h.m == pm then
    local clean = not changed and not h.others
    if clean or not is_dirty_pair(owner, member) then
      call('EXPIRE', key, ttl)
      pair_synced(owner, member)
      if others then
        lists_set_others(owner, member, h.st, h.ct)
        call('HDEL', key, 'others')
      end
    end
  elseif h.others and not is_dirty_pair(owner, member) then
    call('SADD', SET .. owner, member) -- their hash came behind their sets
    call('SADD', REGISTRY, owner)
  end
  return h.st - h.syn - before, known and not changed
end

-- The pair of ARGV[row ...]. Returns the change in belief, and whether the base of
-- the owner's total moves by the opposite.
local function ack(row)
  local owner, member = ARGV[row], ARGV[row + 1]
  local key = edge_key(owner, member)
  local v = LISTS and pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'ctime',
                                  'others')
            or edge_fields(key)
  local change, known = ack_usual(key, owner, member, v, row)
  if change then
    return change, known
  end
  return ack_edge(key, owner, member, edge_read(key, v), ARGV[row + 2] + 0,
                ARGV[row + 3] + 0, ARGV[row + 4] + 0, ARGV[row + 5],
                v[5])
end

-- A dirty pair was looked up before this write: its belief is too old, and would make
-- the next ack move a base that has the write already. Where nobody knows whether
-- PostgreSQL still has it, the pair is looked up again, as one of before its failover.
local function learn(key, owner, h, ps, pm)
  if not (h.syn and h.sm < pm and h.gen == gen and not h.assumed and not h.others) then
    return
  end
  if is_doubtful then
    h.gen = gen - 1
  else
    if h.syn ~= ps then
      pcall_redis('INCRBY', counter_key(owner), TEXT[h.syn - ps])
    end
    h.syn, h.sm = ps, pm
  end
  call('HSET', key, 'synced', synced_text(h))
end

-- PostgreSQL got something newer than what is dirty or on some record here, of which
-- the ack may tell what it held before: it becomes what that ack would make of it. One
-- of an older generation stays so: PostgreSQL may have gone on since this write, too.
local function overtaken(key, owner, member, h, ps, pm)
  if COUNTER_PRE and h.st ~= h.syn then
    pcall_redis('INCRBY', counter_key(owner), TEXT[h.syn - h.st])
  end
  h.st, h.m, h.syn, h.sm, h.assumed = ps, pm, ps, pm, false
  call('HSET', key, 'status', TEXT[ps], 'mtime', time_text(pm), 'synced',
       synced_text(h))
  if not is_dirty_pair(owner, member) then
    call('EXPIRE', key, ttl)
  end
end

-- A pair that is on the record no more: it was acked already, or Redis has lost
-- the record. Then what was looked up before this write and is kept is too old, here
-- or by a daemon (services/recall.c).
local function ack_lost(row)
  local owner, member = ARGV[row], ARGV[row + 1]
  local ps, pm = ARGV[row + 2] + 0, ARGV[row + 3] + 0
  local key = edge_key(owner, member)
  local h = edge_load(key)
  if COUNTER_PRE then
    call('DEL', count_key(owner))
    fills_end({owner})
  end
  if h and h.m >= pm then
    if COUNTER_PRE then
      learn(key, owner, h, ps, pm)
    end
    return
  end
  call('HSET', STATE, 'since', us_text(now))
  if h and h.syn and h.st == h.syn and h.m == h.sm
     and not is_dirty_pair(owner, member) then
    call('DEL', key)
  elseif h and h.syn and not h.others and not is_doubtful then
    overtaken(key, owner, member, h, ps, pm)
  end
  if LISTS then
    if ps == 0 then
      lists_set(owner, member, 0) -- a load only brings what is there
    end
    list_doubt(follow_key(owner))
    list_doubt(fans_key(member))
  end
end

local fields, here = {}, {}
for row = 5, #ARGV, 6 do
  fields[#fields + 1] = ARGV[row] .. ' ' .. ARGV[row + 1]
end
local owners, n, delta, at = {}, {}, {}, {}
local moves, unknown = {}, {}  -- of the bases of totals
local on_record = is_mine and #fields > 0 and call('HMGET', record, unpack(fields)) or {}
for i = 1, #fields do
  if not on_record[i] then
    ack_lost(6 * i - 1)
  else
    local row = 6 * i - 1
    local owner = ARGV[row]
    local k = at[owner]
    if not k then
      k = #owners + 1
      at[owner], owners[k], n[k], delta[k], moves[k] = k, owner, 0, 0, 0
    end
    local change, known = ack(row)
    here[#here + 1] = fields[i]
    n[k], delta[k] = n[k] + 1, delta[k] + change
    moves[k] = moves[k] - change
    unknown[k] = unknown[k] or not known
  end
end
if #fields > 0 then              -- also of what is lost: fills end
  call('HINCRBY', STATE, 'epoch', 1)
end
if #here > 0 then
  call_sets('SREM', synced)
  call('HDEL', record, unpack(here))
  if COUNTER_PRE then
    counts_move(owners, moves, unknown)
  end
  owners_settle(owners, n, delta, now)
end
if not is_mine then
  return {-1, 0}
end
local left = call('HLEN', record)
if left == 0 then
  batch_end(batch)
end
return {#here, left}
