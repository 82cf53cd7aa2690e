-- SPDX-License-Identifier: MIT
-- What all scripts of a kind share. Made in front of this text, per kind
-- (core/edge.c): the locals KIND, REGISTRY, SET, HASH, OWNER_FIELD,
-- MEMBER_FIELD, COUNTER_PRE, COUNTER_POST (false without counters), LISTS (and
-- then lists.lua behind this text); and UNSYNCED_SETS (services/engine.c).
--
-- An edge is a hash HASH..owner..'_'..member. Its fields:
--   status, mtime, ctime, OWNER_FIELD, MEMBER_FIELD   contract
--   synced   "status mtime_us [generation [a]]": what PostgreSQL is believed to
--            hold; generation is left out when 0. `a` marks an assumed state, of
--            which PostgreSQL may have an older ctime; `b` one whose ctime is
--            right (as it is once others wrote it). Missing: others wrote the
--            hash, and it was not looked up yet.
--   claimed  highest time (us) that was claimed since others wrote it
--   others   (lists) an event came over what others wrote: their own commands for
--            the lists may come behind it, and the ack sets the lists right
-- ctime is the time of the first status 1 ever; for a kind with lists, that of the
-- present one.
--
-- Times are microseconds in here (exact in a double until the year 2255),
-- "seconds.micros" in hashes. A time that has not six decimals is others'.
-- Scripts check first and write last: a script that fails keeps its writes.
--
-- Where the time goes: a redis.call takes about a microsecond beside the command
-- itself, so what belongs to many pairs is gathered into one call; a number given
-- to it is printed as a double, so text goes in where it can; captures make
-- strings, so the usual text is only looked at.

local STATE = 'likesync:state:' .. KIND     -- generation, floor, pass times
local PASS = 'likesync:pass:' .. KIND       -- owners of the pass under way
local PARTS = 'likesync:parts:' .. KIND     -- owners whose rest is in a part
local PART = 'likesync:part:' .. KIND .. ':' -- rest of a big set, same pass
local AGAIN = 'likesync:again:' .. KIND     -- second looks: owner, or owner member
local ON_RECORD = 'likesync:onrecord:' .. KIND -- owner -> its pairs on record
local BATCHES = 'likesync:batches:' .. KIND -- batch -> watermark while it lives
local LEASES = 'likesync:leases:' .. KIND   -- batch -> end of its lease
local TAKERS = 'likesync:takers:' .. KIND   -- batch -> how often it was taken over
local BATCH = 'likesync:batch:'             -- .. id: the record itself
-- With UNSYNCED_SETS, sets of what is not in PostgreSQL yet: the members of an owner,
-- the owners of a member. Since lists_at (STATE) all daemons have kept them; 0: nothing
-- was unsynced then. lists_off: when a daemon was last seen that does not.
local OF_OWNER = 'likesync:unsynced:' .. KIND .. ':' .. OWNER_FIELD:sub(1, -4) .. ':'
local OF_MEMBER = 'likesync:unsynced:' .. KIND .. ':' .. MEMBER_FIELD:sub(1, -4) .. ':'
local COUNT = 'likesync:count:' .. KIND .. ':' -- generation:owner -> base of a total
local HOLD = 'likesync:hold:' .. KIND       -- owners that claims leave alone until
local HELD = 300 * 1000                     -- that long, in us
-- Owners whose base is being asked for, and of which nothing came on record since the
-- epoch of this number.
local FILL = 'likesync:fill:' .. KIND
local SECOND = 1000000
local AT_AHEAD = 60 * SECOND
-- What PostgreSQL was asked longer ago does not count: it may be older than what a
-- hash held and has expired since. The least cache.ttl is twice this.
local ASKED_MAX = 30 * SECOND
local YEAR_9999 = 253402300799

local call, pcall_redis = redis.call, redis.pcall
local match, find, format = string.match, string.find, string.format
local sub, byte, floor = string.sub, string.byte, math.floor
local BIT, TEXT = {['0'] = 0, ['1'] = 1}, {[0] = '0', [1] = '1', [-1] = '-1'}

local function now_us()
  local t = call('TIME')
  return t[1] * SECOND + t[2]
end

local last_us, last_text -- most events of one call have one time

local function time_text(us)
  if us ~= last_us then
    last_us, last_text = us, format('%d.%06d', floor(us / SECOND), us % SECOND)
  end
  return last_text
end

-- A whole number as text; "%.0f" takes far longer.
local function us_text(us)
  if us < SECOND then
    return format('%d', us)
  end
  return format('%d%06d', floor(us / SECOND), us % SECOND)
end

-- Microseconds of a time that is ours and of this century; else nil.
local function ours_us(s)
  if s and #s == 17 and find(s, '^%d+%.%d%d%d%d%d%d$') then
    local us = floor(s * SECOND + 0.5)
    if us < 4000 * SECOND * SECOND then   -- exact below 2^32 seconds
      return us
    end
  end
  return nil
end

-- Microseconds, and whether others wrote it; nil when it is not a time.
local function time_us(s)
  if not s then
    return nil
  end
  local us = ours_us(s)
  if us then
    return us, false
  end
  local sec, frac = match(s, '^(%d+)%.(%d%d%d%d%d%d)$')
  if sec and #sec < 12 then
    return sec * SECOND + frac, false
  end
  if #s < 24 and match(s, '^%d+%.?%d*$') and tonumber(s) < YEAR_9999 then
    return floor(tonumber(s) * SECOND + 0.5), true
  end
  return nil
end

-- Key form to raw form (core/ids.h).
local function raw(id)
  if find(id, '%', 1, true) then
    return (string.gsub(id, '%%(%x%x)', function(hex)
      return string.char(tonumber(hex, 16))
    end))
  end
  return id
end

-- What a time made now has to be above: the floor, and the start of the pass,
-- whose watermark covers all that is not newer. Both are in the past, unless the
-- clock of this host was set back.
local function least_us(low, pass_at)
  return math.max(tonumber(low) or 0, tonumber(pass_at) or 0)
end

-- Every event acked before this time is in PostgreSQL or in the dead letters.
local function watermark(pass_at, pass_prev)
  local is_under_way = call('EXISTS', PASS, PARTS) > 0
  local through = tonumber(is_under_way and pass_prev or pass_at) or 0
  local oldest = tonumber(call('ZRANGE', BATCHES, 0, 0, 'WITHSCORES')[2])
  return oldest and math.min(oldest, through) or through
end

local function edge_key(owner, member)
  return HASH .. owner .. '_' .. member
end

-- Its status, mtime and synced; and ctime, where that may change.
local function edge_fields(key)
  if LISTS then
    return pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'ctime')
  end
  return pcall_redis('HMGET', key, 'status', 'mtime', 'synced')
end

-- The edge as a table; nil when there is none; false and a reason when the key
-- holds something else. `v`: its fields as edge_fields gives them.
local function edge_read(key, v)
  if v.err then
    return false, v.err
  end
  local text = v[3]
  if not v[1] and not v[2] and not text then
    return nil
  end
  local m, others = time_us(v[2])
  local st = BIT[v[1]]
  if not m or not st then
    return false, 'ERR ' .. key .. ' has no valid status and mtime'
  end
  local h = {st = st, m = m, others = others, gen = 0}
  if LISTS then
    h.ct = time_us(v[4]) or m
  end
  if not text then
    return h
  elseif find(text, '^[01] %d+$') then
    h.syn, h.sm, h.assumed = byte(text) - 48, sub(text, 3) + 0, false
    return h
  end
  local s, sm, gen, assumed = match(text, '^([01]) (%d+) ?(%d*) ?([ab]?)$')
  if s then
    h.syn, h.sm = s + 0, sm + 0
    h.gen = tonumber(gen) or 0
    h.assumed = assumed ~= '' and (others and 'b' or assumed)
  end
  return h
end

local function edge_load(key)
  return edge_read(key, edge_fields(key))
end

local function synced_text(h)
  local s = TEXT[h.syn] .. ' ' .. us_text(h.sm)
  if h.assumed then
    return s .. ' ' .. format('%d', h.gen) .. ' ' .. h.assumed
  end
  if h.gen ~= 0 then
    return s .. ' ' .. format('%d', h.gen)
  end
  return s
end

-- Since when the edge of a hash is there, which is newer than PostgreSQL's row: a
-- repeated event keeps the first time, also where the hash alone cannot know it.
local function edge_since(h, status, mtime, ctime)
  if h.st == 0 or (h.syn and h.assumed ~= 'a') then
    return h.ct
  elseif status == 1 and (h.syn or h.ct <= mtime) then
    return ctime
  elseif h.ct <= mtime then
    return h.m                   -- it is the time of an older one
  end
  return h.ct
end

-- Rule 5 and 6: a hash of an older generation, or one that others wrote, meets
-- what PostgreSQL holds; the newer wins. Returns the counter's change.
local function edge_merge(h, status, mtime, ctime, gen)
  local before = h.st - (h.syn or status)
  if mtime > h.m or (mtime == h.m and h.syn) then
    h.st, h.m, h.others = status, mtime, false
    h.ct = ctime
  elseif LISTS then
    h.ct = edge_since(h, status, mtime, ctime)
  end
  h.syn, h.sm, h.gen, h.assumed = status, mtime, gen, false
  return h.st - h.syn - before
end

local function gather(sets, key, member)
  local list = sets[key]
  if list then
    list[#list + 1] = member
  else
    sets[key] = {member}
  end
end

-- A pair for `sets`, by key, which then go to Redis at once: SADD of what is not
-- synced, SREM of what is.
local function gather_pair(sets, owner, member)
  gather(sets, OF_OWNER .. owner, member)
  gather(sets, OF_MEMBER .. member, owner)
end

local function call_sets(command, sets)
  for key, list in pairs(sets) do
    call(command, key, unpack(list))
  end
end

-- This daemon does not keep these sets, so they do not hold all any more.
local function lists_unknown(now)
  call('HDEL', STATE, 'lists_at')
  call('HSET', STATE, 'lists_off', us_text(now))
end

-- Whether such a daemon was here not long ago: they come every two seconds.
local function lists_are_off(at)
  return at and math.abs(now_us() - at) < 5 * SECOND
end

-- Leases end by the clock of this host. Where it was set back since the last one
-- began (STATE, leased_at), all end as much sooner: none is longer than it was.
--   given: one begins now
local function leases_at(now, given)
  local at = tonumber(call('HGET', STATE, 'leased_at')) or 0
  if at > now then
    local leases = call('ZRANGE', LEASES, 0, -1, 'WITHSCORES')
    for i = 1, #leases, 2 do
      call('ZADD', LEASES, format('%.0f', leases[i + 1] - (at - now)), leases[i])
    end
  end
  if at > now or given then
    call('HSET', STATE, 'leased_at', us_text(now))
  end
end

-- Nothing of the batch is on record any more.
local function batch_end(batch)
  call('ZREM', BATCHES, batch)
  call('ZREM', LEASES, batch)
  call('HDEL', TAKERS, batch)
end

local function counter_key(owner)
  return COUNTER_PRE .. owner .. COUNTER_POST
end

local generation_text

local function generation()
  generation_text = generation_text or call('HGET', STATE, 'gen') or '0'
  return generation_text
end

-- A clean hash of an older generation: PostgreSQL has what it says, or something newer;
-- or has lost it (recover.lua). An event merges it all the same, and what was lost is
-- written again; for a read only the row counts.
local function is_outdated(key, h)
  return h.syn and h.gen ~= tonumber(generation()) and call('TTL', key) >= 0
end

local life_text

-- When this history of Redis began (recover.lua). A generation comes again where Redis
-- comes back twice as the same copy.
local function life()
  life_text = life_text or call('HGET', STATE, 'life') or '0'
  return life_text
end

-- Who a batch is with: "life:n" after n takeovers. What anybody else read of its
-- record or wrote of it counts no more: the taker has newer states, and what was
-- written before a failover PostgreSQL may have gone beyond.
local function taker_of(batch)
  return life() .. ':' .. (call('HGET', TAKERS, batch) or '0')
end

-- Another with every claim, reload and ack, and after a failover, where the number
-- may be one that was there before.
local function epoch()
  return life() .. ':' .. (call('HGET', STATE, 'epoch') or '0')
end

-- The base of an owner's total: what PostgreSQL has, as Redis believes. The total is
-- the base and the counter. It is kept while both are known to be right together
-- (counts_keep.lua), and the acks move or drop it. An older generation's is never
-- read.
local function count_key(owner)
  return COUNT .. generation() .. ':' .. owner
end

-- What an ack changed: moves[i] of owners[i]; or its base is not known any more.
local function counts_move(owners, moves, unknown)
  local keys, drop = {}, {}
  for i, owner in ipairs(owners) do
    keys[i] = count_key(owner)
  end
  for i, base in ipairs(call('MGET', unpack(keys))) do
    if base and unknown[i] then
      drop[#drop + 1] = keys[i]
    elseif base and moves[i] ~= 0 then
      call('INCRBY', keys[i], moves[i])
    end
  end
  if #drop > 0 then
    call('DEL', unpack(drop))
  end
end

local function is_dirty(owner)
  return call('EXISTS', SET .. owner, PART .. owner) > 0
end

-- Whether a pair is marked dirty, also in the rest of a big set.
local function is_dirty_pair(owner, member)
  return call('SISMEMBER', SET .. owner, member) == 1
         or call('SISMEMBER', PART .. owner, member) == 1
end

local batches_now

-- Whether any batch has the pair on its record.
local function is_pair_on_record(owner, member)
  if call('HEXISTS', ON_RECORD, owner) == 0 then
    return false
  end
  batches_now = batches_now or call('ZRANGE', BATCHES, 0, -1)
  for _, id in ipairs(batches_now) do
    if call('HEXISTS', BATCH .. id, owner .. ' ' .. member) == 1 then
      return true
    end
  end
  return false
end

-- Where is anything dirty, of these owners? Returns a table of them.
local function find_dirty(owners)
  local dirty, GROUP = {}, 50
  for from = 1, #owners, GROUP do
    local to, keys = math.min(from + GROUP - 1, #owners), {}
    for i = from, to do
      keys[#keys + 1], keys[#keys + 2] = SET .. owners[i], PART .. owners[i]
    end
    if call('EXISTS', unpack(keys)) > 0 then
      for i = from, to do
        dirty[owners[i]] = is_dirty(owners[i])
      end
    end
  end
  return dirty
end

-- Moves the counts of pairs on record: n[i] more (or less) of owners[i], each of
-- which is there once. Returns how many each has then.
local function on_record_add(owners, n)
  local left, there, gone = call('HMGET', ON_RECORD, unpack(owners)), {}, {}
  for i, owner in ipairs(owners) do
    left[i] = (tonumber(left[i]) or 0) + n[i]
    if left[i] > 0 then
      there[#there + 1], there[#there + 2] = owner, format('%d', left[i])
    else
      gone[#gone + 1] = owner
    end
  end
  if #there > 0 then
    call('HSET', ON_RECORD, unpack(there))
  end
  if #gone > 0 then
    call('HDEL', ON_RECORD, unpack(gone))
  end
  return left
end

-- Owners come on record: whoever asks for their bases has to ask again.
local function fills_end(owners)
  if COUNTER_PRE and #owners > 0 and call('EXISTS', FILL) == 1 then
    call('HDEL', FILL, unpack(owners))
  end
end

-- After n[i] pairs of owners[i] left the record: moves its counter by delta[i].
-- One at 0 goes when all is clean; what is left in one when nothing is dirty or
-- on record was added without a row and gets a second look.
local function owners_settle(owners, n, delta, now)
  local less = {}
  for i = 1, #owners do
    less[i] = -n[i]
  end
  local left = on_record_add(owners, less)
  if not COUNTER_PRE then
    return
  end
  local keys, rest, zero = {}, {}, {}
  for i, owner in ipairs(owners) do
    keys[i] = counter_key(owner)
  end
  local values = call('MGET', unpack(keys))
  for i, owner in ipairs(owners) do
    local value, change = values[i], format('%d', delta[i])
    if left[i] <= 0 and value == format('%d', -delta[i]) then
      rest[#rest + 1], zero[owner] = owner, change
    else
      if delta[i] ~= 0 then
        value = pcall_redis('INCRBY', keys[i], change)
      end
      if left[i] <= 0 and value and type(value) ~= 'table' then
        rest[#rest + 1], zero[owner] = owner, value == 0 and '0'
      end
    end
  end
  local dirty, gone = find_dirty(rest), {}
  for _, owner in ipairs(rest) do
    local change = zero[owner] -- that makes it 0, and was not made yet
    if dirty[owner] then
      if change and change ~= '0' then
        call('INCRBY', counter_key(owner), change)
      end
    elseif change then
      gone[#gone + 1] = counter_key(owner)
    else
      call('ZADD', AGAIN, 'NX', now, owner)
    end
  end
  if #gone > 0 then
    call('DEL', unpack(gone))
  end
end
