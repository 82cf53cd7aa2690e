-- SPDX-License-Identifier: MIT
-- Reads totals. ARGV: 1 when owners may be held, then owners.
-- Reply: the epoch (epoch()), then per owner its total; or nothing when its base is
-- not kept; or "written" when PostgreSQL need not be asked for it either: its rows are
-- on record, so its base cannot be kept (counts_keep.lua).
local HELD_AGAIN = SECOND        -- an owner is not held again within this time
local FILLS_MAX = 10000
local FILL_TTL = 10
local now, number = now_us(), nil

local function hold(owner)
  local till = call('ZSCORE', HOLD, owner)
  if not till or till + HELD_AGAIN < now or till - HELD > now then
    call('ZREMRANGEBYSCORE', HOLD, '-inf', us_text(now - HELD_AGAIN))
    call('ZADD', HOLD, us_text(now + HELD), owner)
    call('EXPIRE', HOLD, 2)
  end
end

local function first_missing()
  call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
  number = match(epoch(), '%d+$')
  if call('HLEN', FILL) >= FILLS_MAX then
    call('UNLINK', FILL)         -- they are asked for again
  end
end

local function missing(owner)
  if not number then
    first_missing()
  end
  if ARGV[1] == '1' then
    hold(owner)
  end
  if call('HEXISTS', ON_RECORD, owner) == 1 then
    return 'written'
  end
  local mark = call('HGET', FILL, owner)
  if not mark or mark + 0 > number + 0 then
    call('HSET', FILL, owner, number)
  end
  return false
end

local out = {epoch()}
for from = 2, #ARGV, 250 do
  local to, keys = math.min(from + 249, #ARGV), {}
  for i = from, to do
    keys[#keys + 1], keys[#keys + 2] = count_key(ARGV[i]), counter_key(ARGV[i])
  end
  local values = call('MGET', unpack(keys))
  for i = from, to do
    local base, counter = values[2 * (i - from) + 1], values[2 * (i - from) + 2]
    if base then
      out[#out + 1] = base + (tonumber(counter) or 0)
    else
      out[#out + 1] = missing(ARGV[i])
    end
  end
end
if number then
  call('EXPIRE', FILL, FILL_TTL)
end
return out
