-- SPDX-License-Identifier: MIT
-- Keeps bases of totals that PostgreSQL was asked for, where nothing was claimed since.
--   ARGV: epoch of counts.lua before that, ttl, then per owner: owner, what PostgreSQL
--     counts
-- Reply: the epoch now; then per owner its total, or nothing: ask again; the time now;
-- owner and member of pairs to be merged first (merge.lua): their hashes are from an
-- older Redis, and what they add to the counter is not known to be right.
local STALE_MAX = 200            -- dirty pairs that are looked at
-- For so long after a failover PostgreSQL may still commit what a daemon sent before
-- it died, and no ack tells of it: until then bases are asked for again soon.
local UNSURE, UNSURE_TTL = 60 * SECOND, 2
local now, gen = now_us(), tonumber(generation())
local out, stale = {epoch()}, {}
local asked_life, asked = match(ARGV[1], '^(%d+):(%d+)$')

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

-- Whether nothing of an owner was on record since counts.lua: a mark that was made
-- again is above its epoch.
local function was_at_rest(owner)
  local mark = asked_life == life() and call('HGET', FILL, owner)
  return mark and mark + 0 <= asked + 0
end

local kept = {}
local ttl = ARGV[2]
local since = gen > 0 and tonumber(call('HGET', STATE, 'since')) or 0
if since > now then              -- the clock of this host was set back
  since = now
  pcall_redis('HSET', STATE, 'since', us_text(now))
end
if gen > 0 and now - since < UNSURE then
  ttl = UNSURE_TTL
end
for i = 3, #ARGV, 2 do
  local owner = ARGV[i]
  local base = call('GET', count_key(owner))
  if not base and was_at_rest(owner) and not is_stale(owner) then
    base = ARGV[i + 1]
    kept[#kept + 1] = owner
    -- Nothing was written before: at maxmemory this is refused.
    pcall_redis('SET', count_key(owner), base, 'EX', ttl)
  end
  out[#out + 1] = base and base + (tonumber(call('GET', counter_key(owner))) or 0)
end
if #kept > 0 then
  call('HDEL', FILL, unpack(kept))
end
out[#out + 1] = us_text(now)
for i = 1, #stale do
  out[#out + 1] = stale[i]
end
return out
