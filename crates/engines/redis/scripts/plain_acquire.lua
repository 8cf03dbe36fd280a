-- KEYS: counter, lock, mark of the lease id.
-- ARGV: lease, lease in ms, terms as requested (l or d, ms), k if the id must be known, the holder's
--       metadata.
local lease, terms = ARGV[1], ARGV[3]
local value, other = look(KEYS[2])
if other then return { 'foreign', other } end
if is_of(lease, value) then
  local terms_end = find(value, ':', #lease + KIND, true)
  if not terms_end or sub(value, #lease + KIND + 1, terms_end - 1) ~= terms then return { 'terms' } end
  local left = left_of(KEYS[2]) or extend(KEYS[2], tonumber(ARGV[2]))
  return { 'granted', field(lease, value, TOKEN_FIELD, 16), left }
end
local mark = call('GET', KEYS[3])
if mark and sub(mark, 1, 1) == 'g' then return { 'cancelled' } end
if mark then return { 'revoked', reason_of(mark) } end
if ARGV[4] == 'k' then return { 'unknown' } end
-- The lock is not free: a free one without a mark was taken by the fast path.
local left = left_of(KEYS[2]) or (is_ours(value) and extend(KEYS[2], MAX_LEASE))
return { 'busy', format('%.0f', microseconds()), left, value }
