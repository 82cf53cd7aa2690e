-- SPDX-License-Identifier: MIT
-- Takes over edges that stand in a list, or in a set, and have no hash, or one that
-- was taken back before: each becomes a hash as others write them, and dirty, so
-- that the flusher looks it up and the newer of it and PostgreSQL's row wins.
--   ARGV: side of the list (lists.lua), a staged set, which they then leave, or "";
--     a list that all has been seen of with these, so that its members come from us
--     from now on, or ""; then per pair: owner, member, time of the follow (us)
-- Reply: per pair 1 taken over, 0 known already, or why not.
call('SETRANGE', 'likesync:none', 0, '') -- a first write: refused at maxmemory
local side, staged, seen_list = ARGV[1], ARGV[2], ARGV[3]

local registry_type = call('TYPE', REGISTRY).ok
if registry_type ~= 'set' and registry_type ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. REGISTRY .. ' is not a set')
end

-- Why a key cannot be what it should be, or nil.
local function wrong(command, key)
  local r = pcall_redis(command, key)
  return type(r) == 'table' and key .. ': ' .. r.err or nil
end

local function take(key, owner, member, us)
  local why = wrong('SCARD', SET .. owner) or wrong('ZCARD', follow_key(owner))
    or wrong('ZCARD', fans_key(member))
  if why then
    return why
  end
  local time = time_text(us)
  call('HSET', key, 'status', '1', OWNER_FIELD, raw(owner), MEMBER_FIELD,
       raw(member), 'ctime', time, 'mtime', time)
  call('PERSIST', key)
  call('SADD', SET .. owner, member)
  lists_set_others(owner, member, 1, us)
  lists_unsynced(owner, member)
  return 1
end

-- Whether the edge came after it was taken back, of which the hash tells, and is
-- still there. The time of a set is that of its adoption, so it does not say so; a
-- state that PostgreSQL never had was looked up at ctime.
local function is_again(h, owner, member, us)
  if not h.syn or h.st == 1 or staged ~= '' or us <= math.max(h.m, h.ct) then
    return false
  elseif side == '0' then
    return pcall_redis('ZSCORE', follow_key(owner), member)
  end
  return pcall_redis('ZSCORE', fans_key(member), owner)
end

local function adopt(owner, member, us)
  local key = edge_key(owner, member)
  local h, why = edge_load(key)
  if h == false then
    return (string.gsub(why, '^ERR ', ''))
  elseif not h or is_again(h, owner, member, us) then
    return take(key, owner, member, us)
  elseif h.syn and h.st == 0 then
    lists_set(owner, member, 0) -- it was taken back before it was taken over
  end
  return 0
end

local function own(list)
  list_mark(list, -1)
  call('HSET', LIST .. list, 'own', '1', 'n', call('ZCARD', list))
end

local out, settled, owners = {}, {}, {}
local is_refused = false
for i = 4, #ARGV, 3 do
  local owner, member = ARGV[i], ARGV[i + 1]
  local result = adopt(owner, member, ARGV[i + 2] + 0)
  out[#out + 1] = result
  if result == 1 and owners[#owners] ~= owner then
    owners[#owners + 1] = owner
  end
  if type(result) == 'string' then
    is_refused = true
  else
    settled[#settled + 1] = side == '0' and member or owner
  end
end
if #owners > 0 then
  call('SADD', REGISTRY, unpack(owners))
end
if staged ~= '' and #settled > 0 then
  call('SREM', staged, unpack(settled))
end
if seen_list ~= '' and not is_refused then
  own(seen_list)
end
return out
