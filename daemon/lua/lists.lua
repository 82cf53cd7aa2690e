-- SPDX-License-Identifier: MIT
-- The two lists that go with a kind of edge: sorted sets of those whom a user
-- follows and of those who follow the user, score = time of the follow. In front
-- of this: common.lua; FOLLOW_PRE, FOLLOW_POST, FANS_PRE, FANS_POST.
--
-- Truth is PostgreSQL with what the edge hashes have newer; the lists are made
-- from it. Beside a list, under its key:
--   LIST      the mark, a hash:
--     gen     generation in which the list is believed
--     pos     how far it is loaded: "o" the unsynced edges come first, "s" the
--             rows come next, "time_us id" all that is newer than this time is
--             there, "end" all is there
--     n       how many members we know of; half of them gone: the list has
--             vanished, and this is another
--     own     1: all members came from us: the list may expire, and a stale one
--             may be dropped. Else it may be all that an app has.
--     at      when this load began: what an earlier one read does not count
--   UNSYNCED  a set: members whose edge is not in PostgreSQL yet. While there are
--             such, the list has no TTL.
-- Every step of a load leaves a mark that any daemon can go on from. No edge can
-- be missed: what the rows of a step do not hold yet stands in a hash, which lives
-- at least cache.ttl longer than it takes a step to be applied (ASKED_MAX).

local LIST = 'likesync:list:'
local UNSYNCED = 'likesync:unsynced:'

local function follow_key(user)
  return FOLLOW_PRE .. user .. FOLLOW_POST
end

local function fans_key(user)
  return FANS_PRE .. user .. FANS_POST
end

-- Side 0: those whom the user follows; 1: those who follow the user.
local function list_key(side, user)
  return side == '0' and follow_key(user) or fans_key(user)
end

-- The mark of a list that has none; n members in it are known to be from us. So
-- are all where there is a TTL, or was (had_ttl): the mark was evicted, and its
-- generation forgotten.
local function list_mark(key, n, had_ttl)
  if call('HSETNX', LIST .. key, 'gen', generation()) == 1 then
    local card = call('ZCARD', key)
    local evicted = card > 0 and (had_ttl or call('TTL', key) >= 0)
    call('HSET', LIST .. key, 'gen', evicted and '' or generation(), 'pos', 'o', 'n',
         card, 'own', (evicted or card == n or card == 0) and '1' or '0', 'at',
         us_text(now_us()))
  end
end

-- After ZADD brought n members more.
local function list_grew(key, n)
  if call('HINCRBY', LIST .. key, 'n', n) == n then
    list_mark(key, n)
  end
end

-- After ZREM took n members away.
local function list_shrank(key, n)
  if call('HINCRBY', LIST .. key, 'n', -n) < 0 then
    list_mark(key, -1)
    call('HSET', LIST .. key, 'n', call('ZCARD', key))
  end
end

local function list_add(key, member, time)
  if pcall_redis('ZADD', key, time, member) == 1 then
    list_grew(key, 1)
  end
end

-- PostgreSQL has an edge that the list may have been loaded without.
local function list_doubt(key)
  if call('EXISTS', LIST .. key) == 1 then
    call('HSET', LIST .. key, 'pos', 'o')
  end
end

-- Of an edge that PostgreSQL has: a list that has gone, or was empty, gets it when
-- it is loaded, and would have no TTL.
local function list_add_synced(key, member, time)
  if call('EXISTS', key) == 1 then
    list_add(key, member, time)
  else
    list_doubt(key)
  end
end

local function list_remove(key, member)
  if pcall_redis('ZREM', key, member) == 1 then
    list_shrank(key, 1)
  end
end

-- Makes both lists hold the edge, or not. `synced`: PostgreSQL has it as it is.
local function lists_set(owner, member, status, ctime, synced)
  local follow, fans = follow_key(owner), fans_key(member)
  if status == 1 then
    local time, add = time_text(ctime), synced and list_add_synced or list_add
    add(follow, member, time)
    add(fans, owner, time)
  else
    list_remove(follow, member)
    list_remove(fans, owner)
  end
end

-- Others take members out of a list one by one; one that was evicted or deleted
-- begins anew. A small one is soon loaded again.
local function list_has_gone(n, card)
  return n > 0 and 2 * card <= n
end

-- A list in which others may have changed members; or, as all that is done to lists
-- here, no sorted set, which is left alone.
local function list_seen(key)
  local n, card = call('HGET', LIST .. key, 'n'), pcall_redis('ZCARD', key)
  if type(card) == 'table' then
    return
  elseif not n then
    list_mark(key, 1)
  elseif not list_has_gone(n + 0, card) then
    call('HSET', LIST .. key, 'n', card)
  end
end

-- Before an event brings members into a list that is not there. Returns whether
-- there is no mark either.
local function list_check_empty(key)
  local n = call('HGET', LIST .. key, 'n')
  if n and n + 0 > 0 then
    call('HSET', LIST .. key, 'pos', 'o', 'n', 0)
  end
  return not n
end

-- The first member of such a list, which is not synced: as list_add and unsynced_add
-- would do it.
local function list_start(key, member, time)
  call('ZADD', key, time, member)
  call('HSET', LIST .. key, 'gen', generation(), 'pos', 'o', 'n', 1, 'own', '1', 'at',
       us_text(now_us()))
  call('SADD', UNSYNCED .. key, member)
end

-- As an app wrote them that follows the recipe, or forgot to.
local function lists_set_others(owner, member, status, ctime)
  if status ~= 1 then
    lists_set(owner, member, status, ctime)
    list_seen(follow_key(owner))
    list_seen(fans_key(member))
    return
  end
  local function set(key, entry)
    local time = pcall_redis('ZSCORE', key, entry)
    if not time then
      list_add(key, entry, time_text(ctime))
    elseif type(time) ~= 'table' then
      list_seen(key)
    end
  end
  set(follow_key(owner), member)
  set(fans_key(member), owner)
end

local function list_has_only(key, member)
  local card = pcall_redis('ZCARD', key)
  return card == 0 or (card == 1 and call('ZSCORE', key, member))
end

local function unsynced_add(key, member)
  local set = UNSYNCED .. key
  if call('SADD', set, member) == 1 and call('SCARD', set) == 1 then
    local kept, marked = call('PERSIST', key), call('PERSIST', LIST .. key)
    if marked == 1 and kept == 0 then
      -- The list that went with the mark has gone; this is another, or none.
      call('HSET', LIST .. key, 'pos', 'o', 'own',
           list_has_only(key, member) and '1' or '0')
    elseif marked == 0 and kept == 1 then
      list_mark(key, 0, true)      -- while it is known that it is ours
    end
  end
end

-- The edge is not in PostgreSQL yet.
local function lists_unsynced(owner, member)
  unsynced_add(follow_key(owner), member)
  unsynced_add(fans_key(member), owner)
end

-- A clean list goes after idle_ttl seconds ("0": never).
local function list_expire(key, idle_ttl)
  if idle_ttl ~= '0' and call('HGET', LIST .. key, 'own') == '1' then
    call('EXPIRE', LIST .. key, idle_ttl)  -- not later than its list
    call('EXPIRE', key, idle_ttl)
  end
end

local function unsynced_remove(key, member, idle_ttl)
  local set = UNSYNCED .. key
  if call('SREM', set, member) == 1 and call('EXISTS', set) == 0 then
    list_expire(key, idle_ttl)
  end
end

-- The edge is in PostgreSQL, as its hash has it.
local function lists_synced(owner, member, idle_ttl)
  unsynced_remove(follow_key(owner), member, idle_ttl)
  unsynced_remove(fans_key(member), owner, idle_ttl)
end

-- A list was read or loaded: its time starts anew.
local function list_touch(key, idle_ttl)
  if call('EXISTS', UNSYNCED .. key) == 1 then
    return
  elseif idle_ttl == '0' then
    call('PERSIST', key)
    call('PERSIST', LIST .. key)
  else
    list_expire(key, idle_ttl)
  end
end

-- Whether members are not from us, although the mark says so: more than we know
-- of, or a list without the TTL that ours had and expired or was evicted with.
local function list_is_anothers(key, card)
  return card > 0 and call('TTL', LIST .. key) >= 0 and call('TTL', key) < 0
end

local function list_has_others(key, n, card)
  return card > n or list_is_anothers(key, card)
end

-- How far a list is loaded (pos above), or nil when nothing of it may be believed;
-- how many members it has; or an error's text: it is no sorted set.
local function list_state(key)
  local v = call('HMGET', LIST .. key, 'gen', 'pos', 'n')
  local card = pcall_redis('ZCARD', key)
  if type(card) == 'table' then
    return nil, 0, card.err
  elseif v[1] ~= generation() or list_has_gone(tonumber(v[3]), card)
         or list_is_anothers(key, card) then
    return nil, card
  end
  return v[2], card
end
