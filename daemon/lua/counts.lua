-- SPDX-License-Identifier: MIT
-- Reads totals. ARGV: owners.
-- Reply: the epoch (epoch()), then per owner its total, or nothing when its base is
-- not kept.
local out = {epoch()}
for from = 1, #ARGV, 250 do
  local to, keys = math.min(from + 249, #ARGV), {}
  for i = from, to do
    keys[#keys + 1], keys[#keys + 2] = count_key(ARGV[i]), counter_key(ARGV[i])
  end
  local values = call('MGET', unpack(keys))
  for i = 1, #values, 2 do
    local base = values[i]
    out[#out + 1] = base and base + (tonumber(values[i + 1]) or 0)
  end
end
return out
