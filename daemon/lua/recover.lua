-- SPDX-License-Identifier: MIT
-- At each connect, before anything else: raises the generation when this is not
-- the Redis (or not the history) that was seen last, or PostgreSQL has another
-- history, and the floor to what PostgreSQL holds. `since` is new whenever what
-- Redis has been through is; `pg_life` is the life (common.lua) since which PostgreSQL
-- has this history.
--   ARGV: run id, replication id, floor (us), history of PostgreSQL ("": not known),
--     1 when keys were evicted
-- Reply: generation, 1 when it was raised, 2 when it was for PostgreSQL's sake; now.

-- A user of Redis who may not do all that scripts do would see one of them end in
-- the middle of its writes. Redis 7.0 and newer can be asked before; 8.0 wants to
-- see as many arguments as the command takes.
local COMMANDS = 'del 1 exists 1 expire 2 get 1 hdel 2 hexists 2 hget 2 hincrby 3 hlen 1 ' ..
  'hmget 2 hscan 2 hset 3 hsetnx 3 incrby 2 mget 1 persist 1 rename 2 ' ..
  'sadd 2 scard 1 set 2 setrange 3 sismember 2 smembers 1 spop 1 ' ..
  'srandmember 1 srem 2 time 0 ttl 1 type 1 unlink 1 zadd 3 zcard 1 ' ..
  'zcount 3 zrange 3 zrangebyscore 3 zrem 2 zremrangebyscore 3 zrevrange 3 ' ..
  'zscore 2'

local function missing_permission()
  for command, args in COMMANDS:gmatch('(%a+) (%d)') do
    if not redis.acl_check_cmd(command, unpack({STATE, STATE, STATE}, 1, args)) then
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
local run, repl, low, pg = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local state = call('HMGET', STATE, 'run_id', 'replid', 'gen', 'floor', 'since', 'pg')
local gen, raised = tonumber(state[3]) or 0, 0
local is_new_pg = state[6] and pg ~= '' and state[6] ~= pg
if state[1] and (state[1] ~= run or state[2] ~= repl) then
  gen, raised = gen + 1, 1
elseif is_new_pg then
  gen, raised = gen + 1, 2
end
if pg ~= '' and state[6] ~= pg then
  call('HSET', STATE, 'pg', pg)
end
if not state[1] or raised > 0 then
  local life = us_text(now_us())
  call('HSET', STATE, 'run_id', run, 'replid', repl, 'gen', format('%d', gen),
       'life', life)
  if is_new_pg then
    call('HSET', STATE, 'pg_life', life)
  end
end
if not state[1] or not state[5] or raised > 0 or ARGV[5] == '1' then
  call('HSET', STATE, 'since', us_text(now_us()))
end
if low > (tonumber(state[4]) or 0) then
  call('HSET', STATE, 'floor', format('%.0f', low))
end

-- Where any key may have been evicted (maxmemory-policy allkeys-*, set while Redis
-- ran), a batch may have lost its lease, and nobody would take it over; or its
-- watermark. Who has it renews the lease by the end of this one.
if ARGV[5] == '1' then
  for _, id in ipairs(call('ZRANGE', BATCHES, 0, -1)) do
    call('ZADD', LEASES, 'NX', format('%.0f', now_us() + 10 * SECOND), id)
  end
  for _, id in ipairs(call('ZRANGE', LEASES, 0, -1)) do
    call('ZADD', BATCHES, 'NX', call('HGET', STATE, 'pass_prev') or '0', id)
  end
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
return {gen, raised, us_text(now_us())}
