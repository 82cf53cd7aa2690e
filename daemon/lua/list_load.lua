-- SPDX-License-Identifier: MIT
-- Puts rows of PostgreSQL into a list, or what the edges' hashes have newer.
--   ARGV: side, user, idle_ttl, when the load began, seen (us: the query was begun
--     after this time), pos that the mark must have, pos that it gets ("": it
--     stays), then per row: member, status, mtime, ctime (us; 0 0 0 without a row)
-- Reply: 1; or 0 when nothing was done: the query took too long, or the mark has
-- another pos; now, pos of the mark ("" when the load has to begin anew), members.
-- A member without row and hash is left as it is: an app may have put it there.
local side, user, idle_ttl = ARGV[1], ARGV[2], ARGV[3]
local key = list_key(side, user)
local now = now_us()
local seen = ARGV[5] + 0
local pos, card, err = list_state(key)
if err then
  return redis.error_reply(err)
elseif call('HGET', LIST .. key, 'at') ~= ARGV[4] then
  pos = nil
end
if pos ~= ARGV[6] or seen > now or now - seen > ASKED_MAX then
  return {0, us_text(now), pos or '', card}
end

local function truth(member, status, mtime, ctime)
  local hash = side == '0' and edge_key(user, member) or edge_key(member, user)
  local h = edge_read(hash, pcall_redis('HMGET', hash, 'status', 'mtime', 'synced',
                                        'ctime'))
  if h and is_outdated(hash, h) then
    h = nil
  end
  if not h and mtime == 0 then
    return nil
  elseif not h or h.m < mtime then
    return status, ctime
  end
  return h.st, edge_since(h, status, mtime, ctime)
end

local adds, removes = {}, {}
for i = 8, #ARGV, 4 do
  local member = ARGV[i]
  local status, ctime = truth(member, ARGV[i + 1] + 0, ARGV[i + 2] + 0,
                              ARGV[i + 3] + 0)
  if status == 1 then
    adds[#adds + 1], adds[#adds + 2] = time_text(ctime), member
  elseif status == 0 then
    removes[#removes + 1] = member
  end
end

if #adds > 0 then
  local n = call('ZADD', key, unpack(adds))
  if n > 0 then
    list_grew(key, n)
  end
end
if #removes > 0 then
  local n = call('ZREM', key, unpack(removes))
  if n > 0 then
    list_shrank(key, n)
  end
end
if ARGV[7] ~= '' then
  pos = ARGV[7]
  call('HSET', LIST .. key, 'pos', pos)
end
list_touch(key, idle_ttl)
return {1, us_text(now), pos, call('ZCARD', key)}
