-- SPDX-License-Identifier: MIT
-- Begins to load a list, or goes on where somebody else left off.
--   ARGV: side, user, idle_ttl
-- Reply: now, pos ("end": nothing to do), members so far, members that are not
-- synced, when this load began, 1 when its members must be looked up, too: they
-- may be from an older Redis.
local key, now = list_key(ARGV[1], ARGV[2]), us_text(now_us())
local pos, card, err = list_state(key)
if err then
  return redis.error_reply(err)
end
if not pos then
  local mark = call('HMGET', LIST .. key, 'gen', 'own', 'n')
  local own = mark[2] or (call('TTL', key) >= 0 and '1') -- its mark was evicted
  if own == '1' and mark[3] and list_has_others(key, mark[3] + 0, card) then
    own = '0'
    call('PERSIST', LIST .. key)
  elseif own == '1' and mark[1] ~= generation() then
    call('UNLINK', key)          -- from an older Redis: what is true comes anew
    card = 0
  end
  if card == 0 then
    own = '1'
  end
  pos = 'o'
  call('HSET', LIST .. key, 'gen', generation(), 'pos', pos, 'n', card, 'own',
       own or '0', 'at', now)
  list_touch(key, ARGV[3])
end
local mark = call('HMGET', LIST .. key, 'own', 'at')
local look_up = mark[1] ~= '1' and card > 0 and generation() ~= '0'
return {now, pos, card, call('SCARD', UNSYNCED .. key), mark[2],
        look_up and 1 or 0}
