-- SPDX-License-Identifier: MIT
-- Takes written pairs off the record and brings back what PostgreSQL holds.
--   ARGV: batch, ttl, then per pair, an owner's pairs next to each other:
--     owner, member, status and mtime (us) that PostgreSQL holds after the
--     write, mtime (us) that was written, "d" when the row went to the dead
--     letters
-- Reply: pairs acked, pairs left on this record.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local batch, ttl = ARGV[1], ARGV[2]
local record = BATCH .. batch
local now = now_us()
local gen = tonumber(call('HGET', STATE, 'gen')) or 0

-- Returns the change in belief.
local function ack(owner, member, ps, pm, written, dead)
  local key = edge_key(owner, member)
  local h = edge_load(key)
  if not h or not h.syn then
    return 0
  end
  if pm < h.sm then             -- an ack older than the last one
    if not dead then
      return 0
    end
    ps, pm = h.syn, h.sm
  end
  local before = h.st - h.syn
  local newer = h.m > ((dead and written > pm) and written or pm)
  local changed = false
  if not newer and not h.others then
    changed = h.st ~= ps or h.m ~= pm
    h.st, h.m, h.gen = ps, pm, gen
  end
  h.syn, h.sm, h.assumed = ps, pm, false
  if changed then
    call('HSET', key, 'status', ps, 'mtime', time_text(pm), 'synced', synced_text(h))
  else
    call('HSET', key, 'synced', synced_text(h))
  end
  if h.st == ps and h.m == pm then
    local clean = not changed and not h.others
    if not clean then
      clean = call('SISMEMBER', SET .. owner, member) == 0
        and call('SISMEMBER', PART .. owner, member) == 0
    end
    if clean then
      call('EXPIRE', key, ttl)
    end
  end
  return h.st - h.syn - before
end

-- An owner's pairs, ARGV[first .. last]: those that are still on record.
local function ack_owner(owner, first, last)
  local fields, here = {}, {}
  for i = first, last, 6 do
    fields[#fields + 1] = owner .. ' ' .. ARGV[i + 1]
  end
  local on_record = call('HMGET', record, unpack(fields))
  local delta = 0
  for n, there in ipairs(on_record) do
    if there then
      local i = first + (n - 1) * 6
      here[#here + 1] = fields[n]
      delta = delta + ack(owner, ARGV[i + 1], ARGV[i + 2] + 0, ARGV[i + 3] + 0,
                          ARGV[i + 4] + 0, ARGV[i + 5] == 'd')
    end
  end
  if #here == 0 then
    return 0
  end
  call('HDEL', record, unpack(here))
  if COUNTER_PRE and delta ~= 0 then
    pcall_redis('INCRBY', counter_key(owner), delta)
  end
  owner_settle(owner, on_record_less(owner, #here), now)
  return #here
end

local acked, first = 0, 3
while first <= #ARGV do
  local owner, last = ARGV[first], first
  while ARGV[last + 6] == owner do
    last = last + 6
  end
  acked = acked + ack_owner(owner, first, last)
  first = last + 6
end
local left = call('HLEN', record)
if left == 0 then
  call('ZREM', BATCHES, batch)
  call('ZREM', LEASES, batch)
end
return {acked, left}
