-- SPDX-License-Identifier: MIT
-- What all scripts of a kind share. Made in front of this text, per kind
-- (core/edge.c): the locals KIND, REGISTRY, SET, HASH, OWNER_FIELD,
-- MEMBER_FIELD, COUNTER_PRE, COUNTER_POST (false without counters).
--
-- An edge is a hash HASH..owner..'_'..member. Its fields:
--   status, mtime, ctime, OWNER_FIELD, MEMBER_FIELD   contract
--   synced   "status mtime_us [generation [a]]": what PostgreSQL is believed to
--            hold; generation is left out when 0, `a` marks an assumed state.
--            Missing: others wrote the hash, and it was not looked up yet.
--   claimed  highest time (us) that was claimed since others wrote it
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
local BATCH = 'likesync:batch:'             -- .. id: the record itself
local SECOND = 1000000
local AT_AHEAD = 60 * SECOND
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

local function edge_key(owner, member)
  return HASH .. owner .. '_' .. member
end

-- The edge as a table; nil when there is none; false and a reason when the key
-- holds something else. `v`: its status, mtime and synced as HMGET gives them.
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
  if not text then
    return {st = st, m = m, others = others, gen = 0}
  end
  if find(text, '^[01] %d+$') then
    return {st = st, m = m, others = others, gen = 0, syn = byte(text) - 48,
            sm = sub(text, 3) + 0, assumed = false}
  end
  local h = {st = st, m = m, others = others, gen = 0}
  local s, sm, gen, assumed = match(text, '^([01]) (%d+) ?(%d*) ?(a?)$')
  if s then
    h.syn, h.sm = s + 0, sm + 0
    h.gen = tonumber(gen) or 0
    h.assumed = assumed == 'a'
  end
  return h
end

local function edge_load(key)
  return edge_read(key, pcall_redis('HMGET', key, 'status', 'mtime', 'synced'))
end

local function synced_text(h)
  local s = TEXT[h.syn] .. ' ' .. us_text(h.sm)
  if h.assumed then
    return s .. ' ' .. format('%d', h.gen) .. ' a'
  end
  if h.gen ~= 0 then
    return s .. ' ' .. format('%d', h.gen)
  end
  return s
end

-- Rule 5 and 6: a hash of an older generation, or one that others wrote, meets
-- what PostgreSQL holds; the newer wins. Returns the counter's change.
local function edge_merge(h, status, mtime, gen)
  local before = h.st - (h.syn or status)
  if mtime > h.m or (mtime == h.m and h.syn) then
    h.st, h.m, h.others = status, mtime, false
  end
  h.syn, h.sm, h.gen, h.assumed = status, mtime, gen, false
  return h.st - h.syn - before
end

-- A state that others wrote in whole seconds may not be above one that this
-- hash had before and that was claimed (`last`) or acked since. Without
-- `claimed`, an event of our own may have been claimed unnoticed.
local function edge_bump(h, claimed, gen)
  local m, last = h.m, tonumber(claimed) or 0
  if h.syn and h.gen == gen then
    if m % SECOND == 0 and
       (not claimed or h.sm == 0 or h.sm % SECOND ~= 0) then
      m = m + SECOND - 1
    end
    if h.st ~= h.syn and h.sm > last then
      last = h.sm
    end
  end
  h.m = math.max(m, last + 1)
end

local function counter_key(owner)
  return COUNTER_PRE .. owner .. COUNTER_POST
end

local function is_dirty(owner)
  return call('EXISTS', SET .. owner, PART .. owner) > 0
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

-- The row of a pair as claim and reload return it: owner, member, status
-- (-1 malformed, -2 missing), mtime, ctime, 1 when it must be looked up first.
-- `ctime`, `claimed`: as they are in the hash.
local function row_put(out, owner, member, h, ctime, claimed, gen)
  local n = #out
  out[n + 1], out[n + 2] = owner, member
  if not h then
    out[n + 3], out[n + 4], out[n + 5], out[n + 6] = h == nil and -2 or -1, 0, 0, 0
    return 0
  end
  local key, last = edge_key(owner, member), tonumber(claimed) or 0
  if h.others then
    edge_bump(h, claimed, gen)
    call('HSET', key, 'mtime', time_text(h.m), 'claimed', us_text(h.m))
  elseif claimed and h.m > last then
    call('HSET', key, 'claimed', us_text(h.m))
  end
  out[n + 3], out[n + 4] = h.st, h.m
  out[n + 5] = time_us(ctime) or h.m
  out[n + 6] = h.syn and 0 or 1
  return h.m
end

-- The ledger's floor: the highest time that may have been made here. Client
-- times more than a minute ahead are not ours.
local function high_put(high, m, now)
  if m > high and m <= now + AT_AHEAD then
    return m
  end
  return high
end
