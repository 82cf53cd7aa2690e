-- SPDX-License-Identifier: MIT
-- Once an interval: renews the leases of our batches, takes over batches whose
-- lease has run out, and tells how things stand.
--   ARGV: lease_ms, how many batches may be taken over, how many owners follow,
--     owners that had most events of late, our batches...
-- Reply: now (the floor where the clock is behind it), watermark (every event
-- acked before it is in PostgreSQL or in the dead letters), owners in the
-- registry, owners left in the pass, when the oldest second look was asked for
-- (0: none), batches on record, owners with pairs on record, pairs that wait to be
-- claimed, batches taken over, each with its taker...
--
-- How many pairs wait is exact where registry, pass and parts hold up to SAMPLE
-- owners each. Beyond that the owners named in ARGV and those of BIG are counted one
-- by one, and SAMPLE of the others, taken at random, stand for the rest. That is right
-- on the average, and near where those others are alike. It is far off, either way,
-- while there are many big owners that are not known: those of other daemons or of
-- before a start, until a sample meets them, and all beyond KEPT; and in the one tick
-- that meets one. Pairs on record are not in it, nor owners that are in no registry.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local now = now_us()
local lease_end = format('%.0f', now + ARGV[1] * 1000)
leases_at(now, #ARGV > 3 + ARGV[3])
for i = 4 + ARGV[3], #ARGV do
  call('ZADD', LEASES, 'XX', lease_end, ARGV[i])
end
local taken = {}
if ARGV[2] + 0 > 0 then
  taken = call('ZRANGEBYSCORE', LEASES, '-inf', format('%.0f', now), 'LIMIT', 0,
               ARGV[2])
  leases_at(now, #taken > 0)
  for _, id in ipairs(taken) do
    call('ZADD', LEASES, 'XX', lease_end, id)
  end
end

-- Second looks that were asked for before the clock of this host was set back.
local LOOKS = 1000
local ahead = call('ZRANGEBYSCORE', AGAIN, format('(%.0f', now), '+inf', 'LIMIT', 0,
                   LOOKS)
for _, item in ipairs(ahead) do
  call('ZADD', AGAIN, now, item)
end

-- When the oldest was, by the clock that is told. There may be more of those.
local function oldest_look(clock)
  local at = call('ZRANGE', AGAIN, 0, 0, 'WITHSCORES')[2]
  if at and #ahead == LOOKS then
    return '1'
  end
  return at and format('%.0f', at + clock - now) or '0'
end

-- ---- pairs that wait ----

local BIG = 'likesync:big:' .. KIND -- owners of which most pairs waited last time
-- Above SAMPLE: KEPT (SLOWLOG shows their SADD whole) and those of ARGV.
local SAMPLE, KEPT, MANY = 100, 30, 10

local known, is_known = {}, {} -- to be counted one by one
local sizes = {}               -- of each that was counted
local is_sampled = false

local function know(owner)
  if not is_known[owner] then
    known[#known + 1], is_known[owner] = owner, true
  end
end

-- A key of another type is the claim's to complain of.
local function size_of(owner, prefix)
  local size = pcall_redis('SCARD', prefix .. owner)
  size = type(size) == 'number' and size or 0
  sizes[owner] = (sizes[owner] or 0) + size
  return size
end

-- Of the owners in this set; those that are in `but`, too, have been counted there.
local function pairs_of(owners, prefix, but)
  local n, waiting, sampled, sum = call('SCARD', owners), 0, 0, 0
  local is_big = n > SAMPLE
  local function size_here(owner)
    local is_there = but and call('SISMEMBER', but, owner) == 1
    return is_there and 0 or size_of(owner, prefix)
  end
  for _, owner in ipairs(is_big and known or {}) do
    if call('SISMEMBER', owners, owner) == 1 then
      n = n - 1
      waiting = waiting + size_here(owner)
    end
  end
  for _, owner in ipairs(n > 0 and call('SRANDMEMBER', owners, SAMPLE) or {}) do
    if not (is_big and is_known[owner]) then
      sampled, sum = sampled + 1, sum + size_here(owner)
    end
  end
  is_sampled = is_sampled or is_big
  return waiting + (sampled > 0 and sum * n / sampled or 0)
end

-- The biggest that were met are known the next time.
local function keep_biggest()
  local big = {}
  for owner, size in pairs(sizes) do
    if size >= MANY then
      big[#big + 1] = owner
    end
  end
  table.sort(big, function(a, b) return sizes[a] > sizes[b] end)
  call('DEL', BIG)
  if is_sampled and #big > 0 then
    call('SADD', BIG, unpack(big, 1, math.min(#big, KEPT)))
  end
end

for i = 4, 3 + ARGV[3] do
  know(ARGV[i])
end
for _, owner in ipairs(call('SRANDMEMBER', BIG, KEPT)) do
  know(owner)
end
local waiting = pairs_of(REGISTRY, SET) + pairs_of(PASS, SET, REGISTRY)
  + pairs_of(PARTS, PART)
keep_biggest()

local state = call('HMGET', STATE, 'pass_at', 'pass_prev', 'floor')
local clock = math.max(now, least_us(state[3], state[1])) -- as for a new pass
local left = call('SCARD', PASS) + call('SCARD', PARTS)
local batches, on_record = call('ZCARD', BATCHES), call('HLEN', ON_RECORD)
if batches == 0 and on_record > 0 then -- Redis has thrown a record away
  call('DEL', ON_RECORD)
  on_record = 0
end
local out = {format('%.0f', clock), format('%.0f', watermark(state[1], state[2])),
             call('SCARD', REGISTRY), left, oldest_look(clock), batches, on_record,
             floor(waiting + 0.5)}
for _, id in ipairs(taken) do
  call('HINCRBY', TAKERS, id, 1)
  out[#out + 1], out[#out + 2] = id, taker_of(id)
end
return out
