-- KEYS: counter, lock, mark of the lease id.
-- ARGV: lease, lease in ms, terms as asked (l or d, ms), k when the id must be known, the holder's
--       own words.
local lease, terms = ARGV[1], ARGV[3]
local value, other = look(KEYS[2])
if other then return { 'foreign', other } end
if is_of(lease, value) then
  local asked = find(value, ':', #lease + KIND, true)
  if not asked or sub(value, #lease + KIND + 1, asked - 1) ~= terms then return { 'terms' } end
  local left = left_of(KEYS[2]) or keep(KEYS[2], tonumber(ARGV[2]))
  return { 'granted', field(lease, value, TOKEN, 16), left }
end
local mark = call('GET', KEYS[3])
if mark and sub(mark, 1, 1) == 'g' then return { 'cancelled' } end
if mark then return { 'revoked', words_of(mark) } end
if ARGV[4] == 'k' then return { 'unknown' } end
-- The lock is not free: what is, and not marked, was taken before.
local left = left_of(KEYS[2]) or (is_ours(value) and keep(KEYS[2], LONGEST_LEASE))
return { 'busy', format('%.0f', microseconds()), left, value }
