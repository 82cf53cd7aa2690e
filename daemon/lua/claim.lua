-- SPDX-License-Identifier: MIT
-- Puts up to `max` dirty pairs on record under a batch, and takes them out of
-- the dirty sets. All that is dirty when a pass starts belongs to that pass; a
-- new one starts when the last is used up, so that the watermark advances
-- under constant load.
--   ARGV: batch, orphan batch, lease_ms, max, 1 when a pass may be started
-- Reply: now, floor for the ledger, owners left in this pass, number of rows,
-- rows of 6 (common.lua, row_put), number of orphans, pairs of owner and delta,
-- owners that are no ids, or whose keys hold something else: they leave the
-- registry.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local batch, orphan_batch, lease, max = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
local GRACE = SECOND / 4       -- others' commands for one event may come apart
local OWNERS = 64

local now = now_us()
local state = call('HMGET', STATE, 'gen', 'floor', 'pass_at', 'pass_prev')
local gen, high = tonumber(state[1]) or 0, tonumber(state[2]) or 0
if now > high then
  high = now
end

local rows, n_rows, orphans, bad, back = {}, 0, {}, {}, {}
local record, orphan_record = {}, {}

-- A second look at what could not be explained: pairs whose hash was missing,
-- owners with nothing dirty. What is there now goes back to the registry.
local function look_again(item)
  call('ZREM', AGAIN, item)
  local owner, member = match(item, '^([^ ]+) (.*)$')
  if member then
    if edge_load(edge_key(owner, member)) then
      call('SADD', SET .. owner, member)
      call('SADD', REGISTRY, owner)
    end
  elseif is_dirty(item) then
    call('SADD', REGISTRY, item)
  elseif COUNTER_PRE and call('HEXISTS', ON_RECORD, item) == 0 then
    local value = pcall_redis('GET', counter_key(item))
    -- As INCRBY writes it; 18 digits, so that no sum overflows.
    local delta = type(value) == 'string' and #value < 20
      and match(value, '^%-?[1-9]%d*$')
    if value == '0' then
      call('DEL', counter_key(item))
    elseif value and not (delta and #match(delta, '%d+') < 19) then
      bad[#bad + 1] = item
    elseif delta then
      orphans[#orphans + 1], orphans[#orphans + 2] = item, delta
      orphan_record[#orphan_record + 1] = item
      orphan_record[#orphan_record + 1] = delta
    end
  end
end

for _, item in ipairs(call('ZRANGEBYSCORE', AGAIN, '-inf',
                           format('%.0f', now - GRACE), 'LIMIT', 0, 100)) do
  look_again(item)
end

if ARGV[5] == '1' and call('EXISTS', PASS) == 0 then
  if call('EXISTS', REGISTRY) == 1 then
    call('RENAME', REGISTRY, PASS)
  end
  -- Where this host's clock is behind, time is what the floor says.
  local at = math.max(now, (tonumber(state[2]) or 0) + 1)
  state[4] = state[3]
  state[3] = format('%.0f', at)
  call('HSET', STATE, 'pass_at', state[3], 'pass_prev', state[4] or '0')
  if at > now then
    call('HSET', STATE, 'floor', state[3])
  end
end

local function take(owner)
  if owner == '' or string.find(owner, ' ', 1, true) then
    bad[#bad + 1] = owner        -- no id, and a record could not hold it
    return
  end
  local part, set = PART .. owner, SET .. owner
  local from = part
  if call('EXISTS', part) == 0 then
    from = set
    local n = pcall_redis('SCARD', set)
    if type(n) == 'table' then
      bad[#bad + 1] = owner
      return
    elseif n == 0 then
      call('ZADD', AGAIN, 'NX', now, owner)
      return
    elseif n > max - n_rows then
      call('RENAME', set, part)
      from = part
    end
  end
  local taken = 0
  for _, member in ipairs(call('SPOP', from, max - n_rows)) do
    local h = edge_load(edge_key(owner, member), true)
    if h == nil then
      call('ZADD', AGAIN, 'NX', now, owner .. ' ' .. member)
    else
      high = high_put(high, row_put(rows, owner, member, h, gen), now)
      n_rows, taken = n_rows + 1, taken + 1
      record[#record + 1], record[#record + 2] = owner .. ' ' .. member, ''
    end
  end
  if taken > 0 then
    call('HINCRBY', ON_RECORD, owner, taken)
  end
  if from == part and call('EXISTS', part) == 1 then
    back[#back + 1] = owner
  end
end

while n_rows < max do
  local owners = call('SPOP', PASS, math.min(OWNERS, max - n_rows))
  if #owners == 0 then
    break
  end
  for _, owner in ipairs(owners) do
    if n_rows < max then
      take(owner)
    else
      back[#back + 1] = owner
    end
  end
  if #back > 0 then
    call('SADD', PASS, unpack(back))
    back = {}
  end
end

local function put_on_record(id, fields)
  for i = 1, #fields, 1000 do
    call('HSET', BATCH .. id, unpack(fields, i, math.min(i + 999, #fields)))
  end
  call('ZADD', BATCHES, 'NX', state[4] or '0', id)
  call('ZADD', LEASES, now + lease * 1000, id)
end

if n_rows > 0 then
  put_on_record(batch, record)
end
if #orphans > 0 then
  put_on_record(orphan_batch, orphan_record)
  for i = 1, #orphans, 2 do
    call('HINCRBY', ON_RECORD, orphans[i], 1)
  end
end

local out = {format('%.0f', now), format('%.0f', high), call('SCARD', PASS), n_rows}
for i = 1, #rows do
  out[#out + 1] = rows[i]
end
out[#out + 1] = #orphans / 2
for i = 1, #orphans do
  out[#out + 1] = orphans[i]
end
for i = 1, #bad do
  out[#out + 1] = bad[i]
end
return out
