-- SPDX-License-Identifier: MIT
-- Compares the bases of totals that are kept with what PostgreSQL counts.
--   ARGV: 1 to mend, unused, then per owner: owner, its mark, seen (us: PostgreSQL
--     was asked after this time; 0: it was not), what it counts
-- Reply: now, then per owner a code and a text (verify_pairs.lua); "b" a base.
-- A base is wrong when nothing was claimed or acked since before PostgreSQL was
-- asked, and nothing of the owner is on record.
local FINE, LOOK, LATER, WRONG = 0, 1, 2, 3
local mends, now, at = ARGV[1] == '1', now_us(), epoch()

local function verify(owner, mark, seen, count)
  local key = count_key(owner)
  local base = call('GET', key)
  local here = (base or '') .. ' ' .. at
  if not base then
    return FINE, ''
  elseif seen == 0 then
    return LOOK, here
  elseif base == count then
    return FINE, ''
  elseif mark ~= here or call('HEXISTS', ON_RECORD, owner) == 1 then
    return LATER, ''
  end
  if mends then
    call('DEL', key)
  end
  return WRONG, format('b%s%s is %s, PostgreSQL counts %s', mends and '+' or '-',
                       key, base, count)
end

local out = {us_text(now)}
for i = 3, #ARGV, 4 do
  out[#out + 1], out[#out + 2] = verify(ARGV[i], ARGV[i + 1], ARGV[i + 2] + 0,
                                        ARGV[i + 3])
end
return out
