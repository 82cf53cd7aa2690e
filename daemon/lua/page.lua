-- SPDX-License-Identifier: MIT
-- Reads a part of a list.
--   ARGV: side, user, idle_ttl, "d" newest first or "a" oldest first, then
--     "r", start, stop (as ZRANGE counts), limit, max: at most `limit` entries,
--       while the whole range may have `max`; or
--     "c", time, member, limit: what comes behind this entry ("" "": from the
--       start on), whether it is still there or not
-- Reply: 1, how many entries the whole range has ("r"), or 1 when more may come
--   behind these ("c"), then member and time each;
--   0, members so far, how many of the newest must be loaded first (0: all);
--   2, how many entries the range has: more than max.
local key = list_key(ARGV[1], ARGV[2])
local newest_first = ARGV[4] == 'd'
local RANGE = newest_first and 'ZREVRANGE' or 'ZRANGE'
local pos, card, err = list_state(key)
if err then
  return redis.error_reply(err)
end

-- So many from the start on are sure to be there.
local whole, there = pos == 'end', 0
if whole then
  there = card
elseif pos and newest_first and find(pos, '^%d') then
  there = call('ZCOUNT', key, '(' .. time_text(match(pos, '^%d+') + 0), '+inf')
end

-- Not by Lua's order of strings, which is that of the locale.
local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

-- Rank of the first entry behind a position.
local function rank_behind(time, member)
  local low = newest_first and call('ZCOUNT', key, '(' .. time, '+inf')
              or call('ZCOUNT', key, '-inf', '(' .. time)
  local high = low + call('ZCOUNT', key, time, time)
  while low < high do
    local middle = floor((low + high) / 2)
    local at = call(RANGE, key, middle, middle)[1]
    local behind
    if newest_first then
      behind = is_less(at, member)
    else
      behind = is_less(member, at)
    end
    if behind then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function reply(x, start, stop)
  local out = {1, x}
  if stop >= start then
    local entries = call(RANGE, key, start, stop, 'WITHSCORES')
    for i = 1, #entries do
      out[i + 2] = entries[i]
    end
  end
  list_touch(key, ARGV[3])
  return out
end

if ARGV[5] == 'r' then
  local start, stop, limit, max = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9] + 0
  local from_end = start < 0 or stop < 0
  if start < 0 then
    start = math.max(card + start, 0)
  end
  if stop < 0 then
    stop = card + stop
  end
  local n = math.min(stop, card - 1) - start + 1
  if n > max then                -- a list that is loaded only grows
    return {2, n}
  elseif not whole and (from_end or stop >= there) then
    return {0, card, (from_end or not newest_first) and 0 or stop + 1}
  end
  return reply(math.max(n, 0), start, start + math.min(n, limit) - 1)
end

local rank, limit = 0, ARGV[8] + 0
if ARGV[6] ~= '' then
  rank = rank_behind(ARGV[6], ARGV[7])
end
if not whole and rank + limit > there then
  return {0, card, newest_first and rank + limit or 0}
end
return reply((not whole or rank + limit < card) and 1 or 0, rank, rank + limit - 1)
