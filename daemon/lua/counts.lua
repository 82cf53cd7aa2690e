-- SPDX-License-Identifier: MIT
-- Reads counters. ARGV: owners.
-- Reply: the epoch (it moves with every claim and every ack), then per owner
-- its counter and how many of its pairs are on record.
local out = {tonumber(call('HGET', STATE, 'epoch')) or 0}
for i = 1, #ARGV do
  local value = pcall_redis('GET', counter_key(ARGV[i]))
  out[2 * i] = type(value) == 'string' and value or '0'
  out[2 * i + 1] = tonumber(call('HGET', ON_RECORD, ARGV[i])) or 0
end
return out
