-- SPDX-License-Identifier: MIT
-- Compares counters with what they have to hold: of all pairs of the owner that are
-- not synced, the state less what PostgreSQL is believed to have. And, also for kinds
-- without counters: whether the flusher will find these pairs.
--   ARGV: 1 to mend, unused, then per owner: owner, its mark
-- Reply: now, then per owner a code and a text (verify_pairs.lua); "c" a counter,
-- "u" the set of what is not synced.
-- What a counter holds beyond that was added by others, who may be about to say so:
-- it is wrong when the difference stays the same for several looks, and no second
-- look of the flusher is due. It is somebody's likes all the same: mending gives it
-- to the flusher, which adds it to like_count and unattributed.
local FINE, LATER, WRONG = 0, 2, 3
local LOOKS = 4
local mends, now, left = ARGV[1] == '1', now_us(), 1000 -- pairs in one call
local registry_type = call('TYPE', REGISTRY).ok
if registry_type ~= 'set' and registry_type ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. REGISTRY .. ' is not a set')
end
if mends then
  call('SETRANGE', 'likesync:none', 0, '') -- a first write: refused at maxmemory
end

-- The members that are dirty, each once; nil: too many for this call.
local function dirty_members(owner)
  local members = {}
  for _, key in ipairs({SET .. owner, PART .. owner}) do
    local n = pcall_redis('SCARD', key)
    if type(n) == 'table' or n > left then
      return nil
    end
    left = left - n
    for _, member in ipairs(call('SMEMBERS', key)) do
      members[member] = true
    end
  end
  return members
end

-- What its unsynced pairs are worth, and whether there are any; nil when that
-- cannot be told now.
local function beliefs(owner)
  local members, sum = dirty_members(owner), 0
  if not members then
    return nil
  end
  for member in pairs(members) do
    local h = edge_load(edge_key(owner, member))
    if h == false or (h and not h.syn) then
      return nil
    end
    sum = sum + (h and h.st - h.syn or 0)
  end
  return sum, next(members) ~= nil
end

local function is_expected(owner)
  return call('SISMEMBER', REGISTRY, owner) == 1
    or call('SISMEMBER', PASS, owner) == 1 or call('ZSCORE', AGAIN, owner)
end

local function register(owner)
  call('SADD', REGISTRY, owner)
end

-- What is wrong, and how it is mended; nil: nothing. True: it cannot be told now.
local function check_counter(owner)
  local key = counter_key(owner)
  local value = pcall_redis('GET', key)
  if type(value) == 'table' or (value and not match(value, '^%-?%d+$')) then
    return key .. ' holds no integer'
  elseif call('HEXISTS', ON_RECORD, owner) == 1 then
    return true
  end
  local sum, is_any = beliefs(owner)
  if not sum then
    return true
  elseif value == '0' and not is_any and not is_expected(owner) then
    return key .. ' is 0, and nothing of it is unsynced',
           function() call('DEL', key) end
  elseif (tonumber(value) or 0) == sum then
    return nil
  elseif not value then
    return format('%s is missing: what is not synced is worth %d', key, sum),
           function() call('SET', key, sum) end
  elseif not is_any and is_expected(owner) then
    return true
  end
  return format('%s holds %d more than what is not synced explains', key,
                value - sum),
         function() register(owner) end
end

local function is_waiting(owner)
  for _, key in ipairs({SET .. owner, PART .. owner}) do
    local n = pcall_redis('SCARD', key)
    if type(n) == 'number' and n > 0 then
      return true
    end
  end
end

local function check(owner)
  if is_waiting(owner) and not is_expected(owner)
     and call('SISMEMBER', PARTS, owner) == 0 then
    return SET .. owner .. ' waits for a flush, and its owner is registered nowhere',
           function() register(owner) end, 'u'
  end
  if COUNTER_PRE then
    return check_counter(owner)
  end
end

local function verify(owner, mark)
  local text, mend, part = check(owner)
  if not text then
    return FINE, ''
  elseif text == true then
    return LATER, ''
  end
  local n, before = match(mark, '^(%d+) (.*)$')
  n = before == text and n + 1 or 1
  if n < LOOKS then
    return LATER, n .. ' ' .. text
  elseif mends and mend then
    mend()
    return WRONG, (part or 'c') .. '+' .. text
  end
  return WRONG, (part or 'c') .. '-' .. text
end

local out = {us_text(now)}
for i = 3, #ARGV, 2 do
  out[#out + 1], out[#out + 2] = verify(ARGV[i], ARGV[i + 1])
end
return out
