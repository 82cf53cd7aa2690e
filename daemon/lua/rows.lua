-- SPDX-License-Identifier: MIT
-- Rows as claim and reload return them. In front of this: common.lua, and lists.lua
-- for a kind with lists.

-- A state that others wrote in whole seconds may not be above one that this
-- hash had before and that was claimed (`last`) or acked since. Without
-- `claimed`, an event of our own may have been claimed unnoticed.
local function edge_bump(h, claimed, gen)
  local m, last = h.m, tonumber(claimed) or 0
  if h.syn and h.gen == gen then
    if m % SECOND == 0 and
       (not claimed or h.sm == 0 or h.sm % SECOND ~= 0) then
      m = m + SECOND - 1
    end
    if h.st ~= h.syn and h.sm > last then
      last = h.sm
    end
  end
  h.m = math.max(m, last + 1)
end

-- The ctime of a row that others wrote, in the hash and in the lists. What was not
-- looked up yet may be older than PostgreSQL's row: then adopt.lua sets the lists.
local function others_lists(key, owner, member, h, gen)
  if h.st == 1 and h.syn == 0 and h.ct <= h.sm then
    h.ct = h.m
    call('HSET', key, 'ctime', time_text(h.ct))
  end
  if h.syn and h.gen == gen then
    lists_set_others(owner, member, h.st, h.ct)
  end
  lists_unsynced(owner, member)
end

-- The row of a pair as claim and reload return it: owner, member, status
-- (-1 malformed, -2 missing), mtime, ctime, 1 when it must be looked up first.
-- `ctime`, `claimed`: as they are in the hash.
local function row_put(out, owner, member, h, ctime, claimed, gen)
  local n = #out
  out[n + 1], out[n + 2] = owner, member
  if not h then
    out[n + 3], out[n + 4], out[n + 5], out[n + 6] = h == nil and -2 or -1, 0, 0, 0
    return 0
  end
  local key, last = edge_key(owner, member), tonumber(claimed) or 0
  if h.others then
    edge_bump(h, claimed, gen)
    call('HSET', key, 'mtime', time_text(h.m), 'claimed', us_text(h.m))
    if LISTS then
      others_lists(key, owner, member, h, gen)
    end
  elseif claimed and h.m > last then
    call('HSET', key, 'claimed', us_text(h.m))
  end
  if UNSYNCED_SETS and (h.others or not h.syn) then
    call('SADD', OF_OWNER .. owner, member)
    call('SADD', OF_MEMBER .. member, owner)
  end
  out[n + 3], out[n + 4] = h.st, h.m
  out[n + 5] = h.ct or time_us(ctime) or h.m
  out[n + 6] = (not h.syn or (LISTS and h.st == 1 and h.assumed == 'a')) and 1 or 0
  return h.m
end

-- The ledger's floor: the highest time that may have been made here. Client
-- times more than a minute ahead are not ours.
local function high_put(high, m, most)
  if m > high and m <= most then
    return m
  end
  return high
end
