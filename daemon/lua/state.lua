-- SPDX-License-Identifier: MIT
-- Reads the state of pairs. ARGV: per pair: owner, member.
-- Reply: per pair 0 or 1; 2 when only PostgreSQL knows; "status mtime" (us) when
-- the newer of this and PostgreSQL's row is right.
local gen = tonumber(call('HGET', STATE, 'gen')) or 0
local out = {}
for i = 1, #ARGV, 2 do
  local h = edge_load(edge_key(ARGV[i], ARGV[i + 1]))
  if not h then
    out[#out + 1] = 2
  elseif h.syn and not h.assumed and h.gen == gen then
    out[#out + 1] = h.st
  else
    out[#out + 1] = format('%d %.0f', h.st, h.m)
  end
end
return out
