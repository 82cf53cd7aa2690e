-- SPDX-License-Identifier: MIT
-- Reads a part of a batch's record, with the states as they are now: for a
-- batch that was taken over, or a claim whose answer was lost.
--   ARGV: batch, its taker ("": the claim's answer was lost), cursor, count
-- Reply: now, floor for the ledger, next cursor ("0" at the end), number of rows,
-- the taker, rows of 6, number of orphans, pairs of owner and delta; or -1: it is
-- with another taker.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local taker = taker_of(ARGV[1])
if ARGV[2] ~= taker and (ARGV[2] ~= '' or not find(taker, ':0$')) then
  return {-1}
end
local now = now_us()
local state = call('HMGET', STATE, 'gen', 'floor', 'pass_at')
local gen = tonumber(state[1]) or 0
local high = math.max(now, least_us(state[2], state[3]))
local most_high = high + AT_AHEAD

local scan = call('HSCAN', BATCH .. ARGV[1], ARGV[3], 'COUNT', ARGV[4])
local rows, orphans = {}, {}
for i = 1, #scan[2], 2 do
  local field = scan[2][i]
  local owner, member = match(field, '^([^ ]+) (.*)$')
  if member then
    local key = edge_key(owner, member)
    local v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'ctime',
                          'claimed')
    local m = row_put(rows, owner, member, edge_read(key, v), v[4], v[5], gen)
    high = high_put(high, m, most_high)
  else
    orphans[#orphans + 1], orphans[#orphans + 2] = field, scan[2][i + 1]
  end
end

if #rows > 0 then
  call('HINCRBY', STATE, 'epoch', 1)
end
local out = {format('%.0f', now), format('%.0f', high), scan[1], #rows / 6, taker}
for i = 1, #rows do
  out[#out + 1] = rows[i]
end
out[#out + 1] = #orphans / 2
for i = 1, #orphans do
  out[#out + 1] = orphans[i]
end
return out
