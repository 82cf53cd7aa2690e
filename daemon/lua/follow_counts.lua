-- SPDX-License-Identifier: MIT
-- Reads what is known of users' counts. ARGV: users.
-- Reply: the epoch (epoch()), then per user
-- twice (follows, followers):
--   -1, the count; or
--   -2: too much of the list is not synced, load it; or
--   n, and n times other user, status, mtime (us): edges that may not be in
--     PostgreSQL yet
local MOST = 100
local out = {epoch()}

local function put_unsynced(key, user, side)
  local members = call('SMEMBERS', UNSYNCED .. key)
  local at, n = #out + 1, 0
  out[at] = 0
  for _, member in ipairs(members) do
    local h = edge_load(side == 0 and edge_key(user, member)
                        or edge_key(member, user))
    if h then
      n = n + 1
      out[#out + 1], out[#out + 2], out[#out + 3] = member, h.st, us_text(h.m)
    end
  end
  out[at] = n
end

local function put(key, user, side)
  local pos, card = list_state(key)
  if pos == 'end' then
    out[#out + 1], out[#out + 2] = -1, card
  elseif call('SCARD', UNSYNCED .. key) > MOST then
    out[#out + 1] = -2
  else
    put_unsynced(key, user, side)
  end
end

for i = 1, #ARGV do
  put(follow_key(ARGV[i]), ARGV[i], 0)
  put(fans_key(ARGV[i]), ARGV[i], 1)
end
return out
