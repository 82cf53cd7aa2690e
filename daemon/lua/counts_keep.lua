-- SPDX-License-Identifier: MIT
-- Keeps bases of totals that PostgreSQL was asked for, where nothing moved since.
--   ARGV: epoch of counts.lua before that, ttl, 1 when owners may be held, then per
--     owner: owner, what PostgreSQL counts
-- Reply: the epoch now; then per owner its total, or nothing: ask again; the time now;
-- owner and member of pairs to be merged first (merge.lua): their hashes are from an
-- older Redis, and what they add to the counter is not known to be right.
local HELD = 300 * SECOND / 1000 -- for so long claims leave an owner alone,
local HELD_AGAIN = SECOND        -- and not again within this time
local STALE_MAX = 200            -- dirty pairs that are looked at
local now, gen = now_us(), tonumber(generation())
local this_epoch = epoch()
local out, stale = {this_epoch}, {}

-- Puts the pairs of an owner into `stale` that are from an older generation. True:
-- the owner cannot be counted yet.
local function is_stale(owner)
  if gen == 0 or not is_dirty(owner) then
    return false
  end
  local n = 0
  for _, set in ipairs({SET .. owner, PART .. owner}) do
    if call('SCARD', set) > STALE_MAX then
      return true
    end
    for _, member in ipairs(call('SMEMBERS', set)) do
      local h = edge_load(edge_key(owner, member))
      if h and h.syn and h.gen ~= gen then
        n = n + 1
        stale[#stale + 1], stale[#stale + 2] = owner, member
      end
    end
  end
  return n > 0
end

local function hold(owner)
  local till = call('ZSCORE', HOLD, owner)
  if not till or till + HELD_AGAIN < now then
    call('ZREMRANGEBYSCORE', HOLD, '-inf', us_text(now - HELD_AGAIN))
    call('ZADD', HOLD, us_text(now + HELD), owner)
    call('EXPIRE', HOLD, 2)
  end
end

for i = 4, #ARGV, 2 do
  local owner, count = ARGV[i], ARGV[i + 1]
  local total = false
  if call('HEXISTS', ON_RECORD, owner) == 1 then
    if ARGV[3] == '1' then
      hold(owner)
    end
  elseif this_epoch == ARGV[1] and not is_stale(owner) then
    if type(pcall_redis('SET', count_key(owner), count, 'EX', ARGV[2])) ~= 'string' then
      total = count + (tonumber(call('GET', counter_key(owner))) or 0)
    end
  end
  out[#out + 1] = total
end
out[#out + 1] = us_text(now)
for i = 1, #stale do
  out[#out + 1] = stale[i]
end
return out
