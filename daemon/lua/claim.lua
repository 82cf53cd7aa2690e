-- SPDX-License-Identifier: MIT
-- Puts dirty pairs on record under a batch, and takes them out of the dirty sets:
-- up to `max`, counting also those without a hash, and owners. All that is dirty
-- when a pass starts belongs to that pass; a new one starts when the last is used
-- up, so that the watermark advances under constant load.
--   ARGV: batch, orphan batch ("" when the batch goes on: no second looks; the
--     ledger adds a delta once per orphan batch and owner), lease_ms, max, 1 when
--     a pass may be started, ttl, ttl of lists
-- Reply: now, floor for the ledger, owners left in this pass without those on hold,
-- number of rows, the batch's taker, rows of 6 (rows.lua, row_put), number of orphans, pairs of owner
-- and delta, owners that are no ids, or whose keys hold something else: they leave
-- the registry.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local batch, orphan_batch, lease, max = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
local GRACE = SECOND / 4       -- others' commands for one event may come apart
local OWNERS = 64
local PAIR = LISTS and 2 or 1  -- so much work, also for the ack; an owner is 1
local is_first = orphan_batch ~= ''

local registry_type = call('TYPE', REGISTRY).ok
if registry_type ~= 'set' and registry_type ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. REGISTRY .. ' is not a set')
end
local now = now_us()
local state = call('HMGET', STATE, 'gen', 'floor', 'pass_at', 'pass_prev',
                   'lists_off')
local keeps_sets = UNSYNCED_SETS or state[5] -- or did
local gen = tonumber(state[1]) or 0

local HEAD = 5                 -- of the reply, filled in at its end
local out, n_rows, seen, orphans, bad = {0, 0, 0, 0, 0}, 0, 0, {}, {}
local record, orphan_record = {}, {}
local is_any_held = COUNTER_PRE and call('EXISTS', HOLD) == 1
local gone = {}                -- pairs, from the sets of what is not synced
local held = {}                -- registry and owner of those left alone
local takers, n_taken, taker_at = {}, {}, {} -- owners, and how many rows of each

-- A second look at what could not be explained: pairs whose hash was missing,
-- owners with nothing dirty. What is there now goes back to the registry.
local function look_again(item)
  call('ZREM', AGAIN, item)
  local owner, member = match(item, '^([^ ]+) (.*)$')
  if member then
    local h = edge_load(edge_key(owner, member))
    if h then
      if type(pcall_redis('SADD', SET .. owner, member)) == 'table' then
        bad[#bad + 1] = owner
      else
        call('SADD', REGISTRY, owner)
      end
    else
      call('ZADD', AGAIN, 'NX', now, owner) -- its counter, without this pair
      if h == nil and keeps_sets then
        gather_pair(gone, owner, member)
      end
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

if is_first then
  for _, item in ipairs(call('ZRANGEBYSCORE', AGAIN, '-inf',
                             format('%.0f', now - GRACE), 'LIMIT', 0, 100)) do
    look_again(item)
  end
end

if ARGV[5] == '1' and call('EXISTS', PASS, PARTS) == 0 then
  if call('EXISTS', REGISTRY) == 1 then
    call('RENAME', REGISTRY, PASS)
  end
  local at = math.max(now, least_us(state[2], state[3]) + 1)
  state[4] = state[3]
  state[3] = format('%.0f', at)
  call('HSET', STATE, 'pass_at', state[3], 'pass_prev', state[4] or '0')
  if at > now then
    call('HSET', STATE, 'floor', state[3])
  end
end
local high = math.max(now, least_us(state[2], state[3]))
local most_high = high + AT_AHEAD

-- The hash of its event was lost, or its row went to the dead letters, and PostgreSQL
-- has nothing: there is no row to write, but what a counter has of it.
local function pass_over(key, owner, member)
  call('EXPIRE', key, ARGV[6])
  if LISTS then
    lists_set(owner, member, 0)
    lists_synced(owner, member, ARGV[7])
  elseif keeps_sets then
    gather_pair(gone, owner, member)
  end
  call('ZADD', AGAIN, 'NX', now, owner)
end

-- The row of a pair: as row_put, the usual one without a table in between.
local function take_pair(owner, member)
  local key = edge_key(owner, member)
  local v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'ctime',
                        'claimed')
  local m = ours_us(v[2])
  if m and BIT[v[1]] and not v[5] and v[3]
     and find(v[3], '^[01] %d+ ?%d* ?[ab]?$')
     and not (LISTS and v[1] == '1' and sub(v[3], -1) == 'a') then
    local n = HEAD + 6 * n_rows
    out[n + 1], out[n + 2], out[n + 3], out[n + 4] = owner, member, v[1], m
    out[n + 5] = v[4] == v[2] and m or time_us(v[4]) or m
    out[n + 6] = 0
  else
    local h = edge_read(key, v)
    if h == nil then
      call('ZADD', AGAIN, 'NX', now, owner .. ' ' .. member)
      return
    elseif h and h.m == 0 and not h.others then
      pass_over(key, owner, member)
      return
    end
    m = row_put(out, owner, member, h, v[4], v[5], gen)
  end
  high = high_put(high, m, most_high)
  n_rows = n_rows + 1
  record[#record + 1], record[#record + 2] = owner .. ' ' .. member, ''
end

local function taken(owner, n)
  local i = taker_at[owner]
  if not i then
    i = #takers + 1
    taker_at[owner], takers[i], n_taken[i] = i, owner, 0
  end
  n_taken[i] = n_taken[i] + n
end

-- What is left in a set after SPOP becomes the owner's part of this pass.
local function put_back(owner, from)
  local part = PART .. owner
  if call('EXISTS', from) == 0 then
    return
  elseif from ~= part then
    if call('EXISTS', part) == 1 then
      call('SADD', PASS, owner)
      return
    end
    call('RENAME', from, part)
  end
  call('SADD', PARTS, owner)
end

local function nothing_in(owner, from)
  seen = seen + 1
  if from ~= PART .. owner and call('EXISTS', PART .. owner) == 1 then
    call('SADD', PARTS, owner)
  else
    call('ZADD', AGAIN, 'NX', now, owner)
  end
end

local function take(owner, from)
  if owner == '' or find(owner, ' ', 1, true) then
    seen = seen + 1
    bad[#bad + 1] = owner        -- no id, and a record could not hold it
    return
  end
  local room, before = math.max(floor((max - seen) / PAIR), 1), n_rows
  local members = pcall_redis('SPOP', from, room)
  if members.err then
    seen = seen + 1
    bad[#bad + 1] = owner
    return
  elseif #members == 0 then
    nothing_in(owner, from)
    return
  end
  for _, member in ipairs(members) do
    take_pair(owner, member)
  end
  seen = seen + PAIR * #members + 1
  if n_rows > before then
    taken(owner, n_rows - before)
  end
  if #members == room then
    put_back(owner, from)
  end
end

local function is_held(owner)
  local till = is_any_held and call('ZSCORE', HOLD, owner)
  return till and till + 0 > now and till - HELD <= now
end

-- Owners of `registry`, whose pairs are in `prefix`..owner. False: none there.
local function take_some(registry, prefix)
  local owners, back = call('SPOP', registry, math.min(OWNERS, max - seen)), {}
  for _, owner in ipairs(owners) do
    if is_held(owner) then
      held[#held + 1], held[#held + 2] = registry, owner
    elseif seen < max then
      take(owner, prefix .. owner)
    else
      back[#back + 1] = owner
    end
  end
  if #back > 0 then
    call('SADD', registry, unpack(back))
  end
  return #owners > 0
end

-- A batch goes on only in the pass in which it began, and while it is on record:
-- so no pair is on one record twice, where the first ack would take both off.
local function goes_on()
  return is_first or
         tonumber(call('ZSCORE', BATCHES, batch)) == tonumber(state[4] or '0')
end

if goes_on() then
  while seen < max and (take_some(PARTS, PART) or take_some(PASS, SET)) do
  end
end

call_sets('SREM', gone)
for i = 1, #held, 2 do
  call('SADD', held[i], held[i + 1])
end

local function put_on_record(id, fields)
  for i = 1, #fields, 1000 do
    call('HSET', BATCH .. id, unpack(fields, i, math.min(i + 999, #fields)))
  end
  call('HINCRBY', STATE, 'epoch', 1)
  call('ZADD', BATCHES, 'NX', state[4] or '0', id)
  call('ZADD', LEASES, now + lease * 1000, id)
end

if n_rows > 0 or #orphans > 0 then
  leases_at(now, true)
end
if n_rows > 0 then
  put_on_record(batch, record)
  on_record_add(takers, n_taken)
  fills_end(takers)
end
if #orphans > 0 then
  put_on_record(orphan_batch, orphan_record)
  for i = 1, #orphans, 2 do
    call('HINCRBY', ON_RECORD, orphans[i], 1)
    fills_end({orphans[i]})
  end
end

out[1], out[2], out[3], out[4], out[5] = us_text(now), us_text(high),
  call('SCARD', PASS) + call('SCARD', PARTS) - #held / 2, n_rows, taker_of(batch)
out[#out + 1] = #orphans / 2
for i = 1, #orphans do
  out[#out + 1] = orphans[i]
end
for i = 1, #bad do
  out[#out + 1] = bad[i]
end
return out
