-- SPDX-License-Identifier: MIT
-- Gives claimed hashes that others wrote their `synced`, from a lookup. Before
-- the write, so that from then on belief alone moves the counter, however
-- often the batch is written or acked.
--   ARGV: per pair: owner, member, status, mtime (us) of what PostgreSQL holds
-- Reply: per pair: status (-1, -2 as in row_put) and mtime to write.
call('DEL', 'likesync:none')   -- a first write that is allowed at maxmemory
local gen = tonumber(call('HGET', STATE, 'gen')) or 0
local out = {}
for i = 1, #ARGV, 4 do
  local owner, member = ARGV[i], ARGV[i + 1]
  local key = edge_key(owner, member)
  local h = edge_load(key)
  local n = #out
  if not h then
    out[n + 1], out[n + 2] = h == nil and -2 or -1, 0
  else
    if not h.syn then
      local was = h.m
      local delta = edge_merge(h, ARGV[i + 2] + 0, ARGV[i + 3] + 0, gen)
      call('HSET', key, 'synced', synced_text(h))
      if h.m ~= was then
        call('HSET', key, 'status', h.st, 'mtime', time_text(h.m))
      end
      if COUNTER_PRE and delta ~= 0 then
        pcall_redis('INCRBY', counter_key(owner), delta)
      end
    end
    out[n + 1], out[n + 2] = h.st, h.m
  end
end
return out
