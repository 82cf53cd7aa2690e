-- SPDX-License-Identifier: MIT
-- Takes written pairs off the record and brings back what PostgreSQL holds.
--   ARGV: batch, ttl, then per pair:
--     owner, member, status and mtime (us) that PostgreSQL holds after the
--     write, mtime (us) that was written, "d" when the row went to the dead
--     letters
-- Reply: pairs acked, pairs left on this record.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local batch, ttl = ARGV[1], ARGV[2]
local record = BATCH .. batch
local now = now_us()
local gen = tonumber(call('HGET', STATE, 'gen')) or 0

-- The usual case, without numbers: the pair is as it was written, PostgreSQL
-- took it, no generation is to be kept. nil: not that.
local function ack_usual(key, v, row)
  local ps, pm = ARGV[row + 2], ARGV[row + 3]
  local synced, m = v[3], v[2]
  if not (synced and m and gen == 0 and v[1] == ps and ARGV[row + 5] == ''
          and ours_us(m) and sub(m, 1, 10) .. sub(m, 12) == pm
          and find(synced, '^[01] %d+$') and sub(synced, 3) + 0 <= pm + 0) then
    return nil
  end
  call('HSET', key, 'synced', ps .. ' ' .. pm)
  call('EXPIRE', key, ttl)
  return byte(synced) - byte(ps)
end

local function ack_edge(key, owner, member, h, ps, pm, written, dead)
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
    call('HSET', key, 'status', TEXT[ps], 'mtime', time_text(pm), 'synced',
         synced_text(h))
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

-- The pair of ARGV[row ...]. Returns the change in belief.
local function ack(row)
  local owner, member = ARGV[row], ARGV[row + 1]
  local key = edge_key(owner, member)
  local v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced')
  return ack_usual(key, v, row)
    or ack_edge(key, owner, member, edge_read(key, v), ARGV[row + 2] + 0,
                ARGV[row + 3] + 0, ARGV[row + 4] + 0, ARGV[row + 5] == 'd')
end

local fields, here = {}, {}
for row = 3, #ARGV, 6 do
  fields[#fields + 1] = ARGV[row] .. ' ' .. ARGV[row + 1]
end
local owners, n, delta, at = {}, {}, {}, {}
local on_record = #fields > 0 and call('HMGET', record, unpack(fields)) or {}
for i, there in ipairs(on_record) do
  if there then
    local row = 6 * i - 3
    local owner = ARGV[row]
    local k = at[owner]
    if not k then
      k = #owners + 1
      at[owner], owners[k], n[k], delta[k] = k, owner, 0, 0
    end
    here[#here + 1] = fields[i]
    n[k], delta[k] = n[k] + 1, delta[k] + ack(row)
  end
end
if #here > 0 then
  call('HINCRBY', STATE, 'epoch', 1)
  call('HDEL', record, unpack(here))
  owners_settle(owners, n, delta, now)
end
local left = call('HLEN', record)
if left == 0 then
  call('ZREM', BATCHES, batch)
  call('ZREM', LEASES, batch)
end
return {#here, left}
