-- SPDX-License-Identifier: MIT
-- Reads the state of pairs. ARGV: per pair: owner, member.
-- Reply: per pair 0 or 1; 2 when only PostgreSQL knows; "status mtime" (us) when
-- the newer of this and PostgreSQL's row is right. Behind all, what names the
-- history of this Redis: generation and when it began; "" not known.
local state = call('HMGET', STATE, 'gen', 'since')
local gen = tonumber(state[1]) or 0
local out = {}

local whole = {}                -- by list: is it loaded

local function is_whole(list)
  if whole[list] == nil then
    whole[list] = list_state(list) == 'end'
  end
  return whole[list]
end

-- From one of the two lists, if it is whole; of many pairs with one user in common
-- it is that user's list which is asked for first.
local function from_lists(owner, member)
  local follow, fans = follow_key(owner), fans_key(member)
  if whole[follow] or (not whole[fans] and is_whole(follow)) then
    return call('ZSCORE', follow, member) and 1 or 0
  elseif is_whole(fans) then
    return call('ZSCORE', fans, owner) and 1 or 0
  end
end

for i = 1, #ARGV, 2 do
  local h = edge_load(edge_key(ARGV[i], ARGV[i + 1]))
  local is_known = h and h.syn and not h.assumed and h.gen == gen
  local listed = LISTS and not is_known and from_lists(ARGV[i], ARGV[i + 1])
  if is_known then
    out[#out + 1] = h.st
  elseif listed then
    out[#out + 1] = listed
  elseif not h or is_outdated(edge_key(ARGV[i], ARGV[i + 1]), h) then
    out[#out + 1] = 2
  else
    out[#out + 1] = format('%d %.0f', h.st, h.m)
  end
end
out[#out + 1] = state[1] and state[2] and state[1] .. ' ' .. state[2] or ''
return out
