-- SPDX-License-Identifier: MIT
-- Merges what PostgreSQL holds into hashes of an older generation, as their next
-- event would. They stay dirty.
--   ARGV: a time (us) when PostgreSQL had not been asked yet, epoch at that time, then
--     per pair: owner, member, status, mtime, ctime (us)
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local gen, age = tonumber(generation()), now_us() - ARGV[1]
if age < 0 or age > ASKED_MAX or match(ARGV[2], '^%d+') ~= life() then
  return 0
end
local n = 0
for i = 3, #ARGV, 5 do
  local owner, member = ARGV[i], ARGV[i + 1]
  local key = edge_key(owner, member)
  local h = edge_load(key)
  if h and h.syn and h.gen ~= gen then
    local delta = edge_merge(h, ARGV[i + 2] + 0, ARGV[i + 3] + 0, ARGV[i + 4] + 0, gen)
    call('HSET', key, 'status', TEXT[h.st], 'mtime', time_text(h.m), 'synced',
         synced_text(h))
    if COUNTER_PRE and delta ~= 0 then
      pcall_redis('INCRBY', counter_key(owner), delta)
    end
    if LISTS then
      call('HSET', key, 'ctime', time_text(h.ct))
      lists_set(owner, member, h.st, h.ct)
    end
    n = n + 1
  end
end
return n
