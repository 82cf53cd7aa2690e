-- SPDX-License-Identifier: MIT
-- Takes over hashes that others wrote and have nowhere marked as unsynced, so that
-- their counter does not hold them: they get their `synced` from a lookup, and
-- the counter their belief; those that PostgreSQL does not have so become dirty.
--   ARGV: ttl, then per pair: owner, member, seen (us: a lookup was begun after this
--     time; 0: none), status, mtime, ctime (us) of what it found
-- Reply: now, then a code per pair, or why it is refused.
call('SETRANGE', 'likesync:none', 0, '') -- a first write: refused at maxmemory
local GONE, TAKEN, KNOWN, ASK, LATER = 0, 1, 2, 3, 4
local YOUNG = 2 * SECOND       -- others' commands for one event may come apart

local registry_type = call('TYPE', REGISTRY).ok
if registry_type ~= 'set' and registry_type ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. REGISTRY .. ' is not a set')
end
local ttl, now = ARGV[1], now_us()
local state = call('HMGET', STATE, 'gen', 'lists_at')
local gen = tonumber(state[1]) or 0
local unsynced = {}            -- what is gathered for these sets

-- Whether the flusher has it, or will find it; or false and why that cannot be told.
local function is_unsynced(owner, member)
  local r = pcall_redis('SISMEMBER', SET .. owner, member)
  if type(r) == 'table' then
    return false, SET .. owner .. ': ' .. r.err
  elseif r == 1 then
    call('SADD', REGISTRY, owner) -- where its entry may be lost
    return true
  end
  return call('SISMEMBER', PART .. owner, member) == 1
    or call('ZSCORE', AGAIN, owner .. ' ' .. member)
    or is_pair_on_record(owner, member)
end

local function set_dirty(key, owner, member, h)
  call('PERSIST', key)
  call('SADD', SET .. owner, member)
  call('SADD', REGISTRY, owner)
  if LISTS then
    lists_set(owner, member, h.st, h.ct)
    lists_unsynced(owner, member)
  elseif UNSYNCED_SETS then
    gather_pair(unsynced, owner, member)
  elseif state[2] then
    lists_unknown(now)
  end
end

local function take(key, owner, member, h, status, mtime, ctime)
  edge_merge(h, status, mtime, ctime, gen)
  local belief = h.st - h.syn
  if COUNTER_PRE and belief ~= 0 then
    local r = pcall_redis('INCRBY', counter_key(owner), TEXT[belief])
    if type(r) == 'table' then
      return counter_key(owner) .. ': ' .. r.err
    end
  end
  call('HSET', key, 'status', TEXT[h.st], 'mtime', time_text(h.m), 'synced',
       synced_text(h))
  if LISTS then
    call('HSET', key, 'ctime', time_text(h.ct))
  end
  if belief ~= 0 or h.m ~= h.sm then
    set_dirty(key, owner, member, h)
  else
    call('EXPIRE', key, ttl)
    if LISTS then
      lists_set(owner, member, h.st, h.ct, true)
    end
  end
  return TAKEN
end

local function adopt(owner, member, seen, status, mtime, ctime)
  local key = edge_key(owner, member)
  local v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'ctime',
                        'claimed')
  local h, why = edge_read(key, v)
  if h == nil and call('EXISTS', key) == 0 then
    return GONE
  elseif h and (h.syn or v[5]) then
    return KNOWN
  elseif not h or h.m == 0 or h.m > now + AT_AHEAD then
    return v.err and why or 'it has no valid status and mtime (Unix seconds)'
  end
  local known
  known, why = is_unsynced(owner, member)
  if known or why then
    return why or KNOWN
  elseif math.abs(now - h.m) < YOUNG then
    return LATER
  elseif seen == 0 or seen > now or now - seen > ASKED_MAX then
    return ASK
  end
  return take(key, owner, member, h, status, mtime, ctime)
end

local out = {us_text(now)}
for i = 2, #ARGV, 6 do
  out[#out + 1] = adopt(ARGV[i], ARGV[i + 1], ARGV[i + 2] + 0, ARGV[i + 3] + 0,
                        ARGV[i + 4] + 0, ARGV[i + 5] + 0)
end
call_sets('SADD', unsynced)
return out
