-- SPDX-License-Identifier: MIT
-- Reads what is not synced of an owner, or of a member, as the hashes have it.
--   ARGV: "o" members of this owner, "m" owners of this member; its id
-- Reply: a code; when it is 0, then per pair: the other id, status, mtime (us).
local KNOWN, TOO_MANY, NOT_YET, OFF = 0, 1, 2, 3
local MOST = 1000
local state = call('HMGET', STATE, 'lists_at', 'lists_off', 'pass_at', 'pass_prev')
local since = tonumber(state[1])
if not since then
  return {lists_are_off(state[2]) and OFF or NOT_YET}
elseif since > 0 and watermark(state[3], state[4]) <= since then
  return {NOT_YET}
end
local is_owner, id = ARGV[1] == 'o', ARGV[2]
local set = (is_owner and OF_OWNER or OF_MEMBER) .. id
if call('SCARD', set) > MOST then
  return {TOO_MANY}
end
local out = {KNOWN}
for _, other in ipairs(call('SMEMBERS', set)) do
  local h = edge_load(is_owner and edge_key(id, other) or edge_key(other, id))
  if h then
    local n = #out
    out[n + 1], out[n + 2], out[n + 3] = other, h.st, us_text(h.m)
  end
end
return out
