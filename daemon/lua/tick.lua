-- SPDX-License-Identifier: MIT
-- Once an interval: renews the leases of our batches, takes over batches whose
-- lease has run out, and tells how things stand.
--   ARGV: lease_ms, how many batches may be taken over, our batches...
-- Reply: now (the floor where the clock is behind it), watermark (every event
-- acked before it is in PostgreSQL or in the dead letters), owners in the
-- registry, owners left in the pass, when the oldest second look was asked for
-- (0: none), batches on record, owners with pairs on record, pairs that wait to be
-- claimed (about), batches taken over, each with its taker...
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local now = now_us()
local lease_end = format('%.0f', now + ARGV[1] * 1000)
for i = 3, #ARGV do
  call('ZADD', LEASES, 'XX', lease_end, ARGV[i])
end
local taken = {}
if ARGV[2] + 0 > 0 then
  taken = call('ZRANGEBYSCORE', LEASES, '-inf', format('%.0f', now), 'LIMIT', 0,
               ARGV[2])
  for _, id in ipairs(taken) do
    call('ZADD', LEASES, 'XX', lease_end, id)
  end
end

-- How many pairs of these owners wait: about, where there are more than SAMPLE of
-- them. A key of another type is the claim's to complain of.
local SAMPLE = 100

local function pairs_of(owners, prefix)
  local n, waiting = call('SCARD', owners), 0
  local some = n > 0 and call('SRANDMEMBER', owners, SAMPLE) or {}
  for _, owner in ipairs(some) do
    local size = pcall_redis('SCARD', prefix .. owner)
    waiting = waiting + (type(size) == 'number' and size or 0)
  end
  return n > #some and waiting * n / #some or waiting
end

local waiting = pairs_of(REGISTRY, SET) + pairs_of(PASS, SET) + pairs_of(PARTS, PART)
local state = call('HMGET', STATE, 'pass_at', 'pass_prev', 'floor')
local clock = math.max(now, least_us(state[3], state[1])) -- as for a new pass
local left = call('SCARD', PASS) + call('SCARD', PARTS)
local out = {format('%.0f', clock), format('%.0f', watermark(state[1], state[2])),
             call('SCARD', REGISTRY), left, call('ZRANGE', AGAIN, 0, 0, 'WITHSCORES')[2] or '0',
             call('ZCARD', BATCHES),
             call('HLEN', ON_RECORD), floor(waiting)}
for _, id in ipairs(taken) do
  call('HINCRBY', TAKERS, id, 1)
  out[#out + 1], out[#out + 2] = id, taker_of(id)
end
return out
