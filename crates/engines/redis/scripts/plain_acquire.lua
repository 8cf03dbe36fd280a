-- KEYS: counter, lock, mark of the lease id.
-- ARGV: lease, lease in ms, terms as asked (l or d, ms), k when the id must be known, the holder's
--       own words.
local lease, terms = ARGV[1], ARGV[3]
local value, other = look(KEYS[2])
if other then return { 'foreign', other } end
if is_of(lease, value) then
  local asked = find(value, ':', #lease + KIND, true)
  if not asked or sub(value, #lease + KIND + 1, asked - 1) ~= terms then return { 'terms' } end
  return { 'granted', field(lease, value, TOKEN, 16), left_of(KEYS[2]) or ARGV[2] }
end
local mark = call('GET', KEYS[3])
if mark and sub(mark, 1, 1) == 'g' then return { 'cancelled' } end
if mark then return { 'revoked', words_of(mark) } end
if ARGV[4] == 'k' then return { 'unknown' } end
if value then
  return { 'busy', format('%.0f', microseconds()), left_of(KEYS[2]), value }
end
local since = stamp(call('TIME'))
local token = draw(since)
call('SET', KEYS[2], lease .. ':' .. token .. ':' .. since .. ':' .. sub(terms, 1, 1) .. terms .. ':'
  .. ARGV[5], 'PX', ARGV[2])
return token
