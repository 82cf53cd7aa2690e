-- SPDX-License-Identifier: MIT
-- Gives claimed hashes that others wrote their `synced`, from a lookup. Before
-- the write, so that from then on belief alone moves the counter, however
-- often the batch is written or acked.
-- One that was assumed gets the ctime that a repeated event keeps.
--   ARGV: batch, its taker, a time (us) when PostgreSQL had not been asked yet, then
--     per pair: owner, member, status, mtime, ctime (us) of what PostgreSQL holds
-- Reply: now; then per pair, unless it was asked too long ago: status (-1, -2 as in
-- row_put), mtime and ctime to write.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local gen = tonumber(call('HGET', STATE, 'gen')) or 0
local now = now_us()
local out = {us_text(now)}
local is_mine = taker_of(ARGV[1]) == ARGV[2] -- else nothing is to be written
local age = now - ARGV[3]
if is_mine and (age < 0 or age > ASKED_MAX) then
  return out
end

local function adopt_others(key, owner, h, status, mtime, ctime)
  local was = h.m
  local delta = edge_merge(h, status, mtime, ctime, gen)
  call('HSET', key, 'synced', synced_text(h))
  if h.m ~= was then
    call('HSET', key, 'status', h.st, 'mtime', time_text(h.m))
  end
  if COUNTER_PRE and delta ~= 0 then
    pcall_redis('INCRBY', counter_key(owner), delta)
  end
end

local function adopt(key, owner, member, h, status, mtime, ctime)
  local st, ct = h.st, h.ct
  if not h.syn then
    adopt_others(key, owner, h, status, mtime, ctime)
  elseif LISTS and h.assumed == 'a' and h.st == 1 and mtime < h.m then
    h.ct = edge_since(h, status, mtime, ctime)
    h.assumed = 'b'
    call('HSET', key, 'synced', synced_text(h))
  end
  if LISTS and (h.st ~= st or h.ct ~= ct) then
    call('HSET', key, 'ctime', time_text(h.ct))
    lists_set(owner, member, h.st, h.ct)
  elseif LISTS and mtime <= h.m then
    lists_set_others(owner, member, h.st, h.ct)
  end
end

for i = 4, #ARGV, 5 do
  local owner, member = ARGV[i], ARGV[i + 1]
  local key, n = edge_key(owner, member), #out
  local v = pcall_redis('HMGET', key, 'status', 'mtime', 'synced', 'ctime')
  local h
  -- Once a batch is over, nothing tells any more that another had taken it over.
  if is_mine and call('HEXISTS', BATCH .. ARGV[1], owner .. ' ' .. member) == 1 then
    h = edge_read(key, v)
  end
  if not h then
    out[n + 1], out[n + 2], out[n + 3] = h == nil and -2 or -1, 0, 0
  else
    adopt(key, owner, member, h, ARGV[i + 2] + 0, ARGV[i + 3] + 0, ARGV[i + 4] + 0)
    out[n + 1], out[n + 2] = h.st, h.m
    out[n + 3] = LISTS and h.ct or time_us(v[4]) or h.m
  end
end
return out
