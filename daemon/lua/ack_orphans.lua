-- SPDX-License-Identifier: MIT
-- Takes written orphan deltas off the record and out of the counters.
--   ARGV: batch, taker, then per owner: owner, delta
-- Reply: owners acked, owners left on this record; or -1 as in ack.lua.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local record, now = BATCH .. ARGV[1], now_us()
if taker_of(ARGV[1]) ~= ARGV[2] then
  return {-1, 0}
end
local owners, n, deltas = {}, {}, {}
for i = 3, #ARGV, 2 do
  local owner = ARGV[i]
  if call('HDEL', record, owner) == 1 then
    owners[#owners + 1], n[#n + 1], deltas[#deltas + 1] = owner, 1, -ARGV[i + 1]
  end
end
if #owners > 0 then
  for _, owner in ipairs(owners) do
    call('DEL', count_key(owner))
  end
  call('HINCRBY', STATE, 'epoch', 1)
  owners_settle(owners, n, deltas, now)
end
local left = call('HLEN', record)
if left == 0 then
  batch_end(ARGV[1])
end
return {#owners, left}
