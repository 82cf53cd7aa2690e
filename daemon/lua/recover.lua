-- SPDX-License-Identifier: MIT
-- At each connect, before anything else: raises the generation when this is not
-- the Redis (or not the history) that was seen last, and the floor to what
-- PostgreSQL holds. `since` is new whenever what Redis has been through is.
--   ARGV: run id, replication id, floor (us)
-- Reply: generation, 1 when it was raised.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local run, repl, low = ARGV[1], ARGV[2], tonumber(ARGV[3])
local state = call('HMGET', STATE, 'run_id', 'replid', 'gen', 'floor', 'since')
local gen, raised = tonumber(state[3]) or 0, 0
if state[1] and (state[1] ~= run or state[2] ~= repl) then
  gen, raised = gen + 1, 1
end
if not state[1] or raised == 1 then
  call('HSET', STATE, 'run_id', run, 'replid', repl, 'gen', format('%d', gen))
end
if not state[1] or not state[5] or raised == 1 then
  call('HSET', STATE, 'since', us_text(now_us()))
end
if low > (tonumber(state[4]) or 0) then
  call('HSET', STATE, 'floor', format('%.0f', low))
end
return {gen, raised}
