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

local STATE = 'likesync:state:' .. KIND     -- generation, floor, pass times
local PASS = 'likesync:pass:' .. KIND       -- owners of the pass under way
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
local match, format, floor = string.match, string.format, math.floor

local function now_us()
  local t = call('TIME')
  return t[1] * SECOND + t[2]
end

local function time_text(us)
  return format('%d.%06d', floor(us / SECOND), us % SECOND)
end

-- Microseconds, and whether others wrote it; nil when it is not a time.
local function time_us(s)
  if not s then
    return nil
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
  if string.find(id, '%', 1, true) then
    return (string.gsub(id, '%%(%x%x)', function(hex)
      return string.char(tonumber(hex, 16))
    end))
  end
  return id
end

local function edge_key(owner, member)
  return HASH .. owner .. '_' .. member
end

-- The edge as a table; nil when there is none; false and a reason when the key
-- holds something else. `claimed` and `ctime` only when `all` is asked for.
local function edge_load(key, all)
  local v
  if all then
    v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'claimed', 'ctime')
  else
    v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced')
  end
  if v.err then
    return false, v.err
  end
  if not v[1] and not v[2] and not v[3] then
    return nil
  end
  local m, others = time_us(v[2])
  if not m or (v[1] ~= '0' and v[1] ~= '1') then
    return false, 'ERR ' .. key .. ' has no valid status and mtime'
  end
  local h = {st = v[1] + 0, m = m, others = others, claimed = v[4], ctime = v[5],
             gen = 0}
  if v[3] then
    local s, sm, gen, assumed = match(v[3], '^([01]) (%d+) ?(%d*) ?(a?)$')
    if s then
      h.syn, h.sm = s + 0, sm + 0
      h.gen = tonumber(gen) or 0
      h.assumed = assumed == 'a'
    end
  end
  return h
end

local function synced_text(h)
  local s = format('%d %.0f', h.syn, h.sm)
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
-- hash had before and that was claimed or acked since.
local function edge_bump(h, gen)
  local last = tonumber(h.claimed) or 0
  local m = h.m
  if h.syn and h.gen == gen then
    if m % SECOND == 0 and (h.sm == 0 or h.sm % SECOND ~= 0) then
      m = m + SECOND - 1
    end
    if h.st ~= h.syn and h.sm > last then
      last = h.sm
    end
  end
  h.m = math.max(m, last + 1)
  h.claimed = h.m
end

local function counter_key(owner)
  return COUNTER_PRE .. owner .. COUNTER_POST
end

local function is_dirty(owner)
  return call('EXISTS', SET .. owner, PART .. owner) > 0
end

-- After pairs of an owner left the record: a counter at 0 goes when all is
-- clean; what is left in one when nothing is dirty or on record was added
-- without a row and gets a second look.
local function owner_settle(owner, left, now)
  if left > 0 or not COUNTER_PRE then
    return
  end
  local value = pcall_redis('GET', counter_key(owner))
  if type(value) ~= 'string' or is_dirty(owner) then
    return
  end
  if value == '0' then
    call('DEL', counter_key(owner))
  else
    call('ZADD', AGAIN, 'NX', now, owner)
  end
end

-- Takes n pairs of an owner off the count; returns how many are left.
local function on_record_less(owner, n)
  local left = call('HINCRBY', ON_RECORD, owner, -n)
  if left <= 0 then
    call('HDEL', ON_RECORD, owner)
  end
  return left
end

-- The row of a pair as claim and reload return it: owner, member, status
-- (-1 malformed, -2 missing), mtime, ctime, 1 when it must be looked up first.
local function row_put(out, owner, member, h, gen)
  local n = #out
  out[n + 1], out[n + 2] = owner, member
  if not h then
    out[n + 3], out[n + 4], out[n + 5], out[n + 6] = h == nil and -2 or -1, 0, 0, 0
    return 0
  end
  if h.others then
    local key = edge_key(owner, member)
    edge_bump(h, gen)
    call('HSET', key, 'mtime', time_text(h.m), 'claimed', format('%.0f', h.m))
  elseif h.claimed and h.m > (tonumber(h.claimed) or 0) then
    call('HSET', edge_key(owner, member), 'claimed', format('%.0f', h.m))
  end
  out[n + 3], out[n + 4] = h.st, format('%.0f', h.m)
  out[n + 5] = format('%.0f', time_us(h.ctime) or h.m)
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
