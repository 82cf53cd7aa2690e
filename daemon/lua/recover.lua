-- SPDX-License-Identifier: MIT
-- At each connect, before anything else: raises the generation when this is not
-- the Redis (or not the history) that was seen last, and the floor to what
-- PostgreSQL holds. `since` is new whenever what Redis has been through is.
--   ARGV: run id, replication id, floor (us)
-- Reply: generation, 1 when it was raised.

-- A user of Redis who may not do all that scripts do would see one of them end in
-- the middle of its writes. Redis 7.0 and newer can be asked before.
local COMMANDS = 'del exists expire get hdel hexists hget hincrby hlen hmget hscan ' ..
  'hset hsetnx incrby mget persist rename sadd scard set setrange sismember ' ..
  'smembers spop srem time ttl type unlink zadd zcard zcount zrange ' ..
  'zrangebyscore zrem zremrangebyscore zrevrange zscore'

local function missing_permission()
  for command in COMMANDS:gmatch('%a+') do
    if not redis.acl_check_cmd(command, STATE, STATE, STATE) then
      return "run the '" .. command .. "' command on " .. STATE
    end
  end
  for _, key in ipairs({REGISTRY, SET .. '0', HASH .. '0_0', BATCH .. '0'}) do
    if not redis.acl_check_cmd('del', key) then
      return "access the key '" .. key .. "'"
    end
  end
end

local missing = redis.acl_check_cmd and missing_permission()
if missing then
  return redis.error_reply('NOPERM this user has no permissions to ' .. missing)
end

call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local run, repl, low = ARGV[1], ARGV[2], tonumber(ARGV[3])
local state = call('HMGET', STATE, 'run_id', 'replid', 'gen', 'floor', 'since')
local gen, raised = tonumber(state[3]) or 0, 0
if state[1] and (state[1] ~= run or state[2] ~= repl) then
  gen, raised = gen + 1, 1
end
if not state[1] or raised == 1 then
  call('HSET', STATE, 'run_id', run, 'replid', repl, 'gen', format('%d', gen),
       'life', us_text(now_us()))
end
if not state[1] or not state[5] or raised == 1 then
  call('HSET', STATE, 'since', us_text(now_us()))
end
if low > (tonumber(state[4]) or 0) then
  call('HSET', STATE, 'floor', format('%.0f', low))
end

-- Since when the sets of what is not synced are kept. A daemon that does not keep
-- them says so whenever it is here.
local lists = call('HMGET', STATE, 'lists_at', 'lists_off', 'floor', 'pass_at')
if not LISTS and not UNSYNCED_SETS and (lists[1] or lists[2]) then
  lists_unknown(now_us())
elseif UNSYNCED_SETS and not lists[1] and not lists_are_off(lists[2]) then
  local clean = call('EXISTS', REGISTRY, PASS, PARTS, AGAIN, BATCHES) == 0
  -- Not below any pass that has begun.
  local at = math.max(now_us(), least_us(lists[3], lists[4]))
  call('HDEL', STATE, 'lists_off')
  call('HSET', STATE, 'lists_at', clean and '0' or us_text(at))
end
return {gen, raised}
