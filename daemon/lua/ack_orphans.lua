-- SPDX-License-Identifier: MIT
-- Takes written orphan deltas off the record and out of the counters.
--   ARGV: batch, then per owner: owner, delta
-- Reply: owners acked, owners left on this record.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local record, now, acked = BATCH .. ARGV[1], now_us(), 0
for i = 2, #ARGV, 2 do
  local owner = ARGV[i]
  if call('HDEL', record, owner) == 1 then
    acked = acked + 1
    call('DECRBY', counter_key(owner), ARGV[i + 1])
    owner_settle(owner, on_record_less(owner, 1), now)
  end
end
local left = call('HLEN', record)
if left == 0 then
  call('ZREM', BATCHES, ARGV[1])
  call('ZREM', LEASES, ARGV[1])
end
return {acked, left}
