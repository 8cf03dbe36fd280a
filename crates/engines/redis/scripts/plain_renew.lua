-- KEYS: for each renewal the lock, and, if ARGV[1] is 2, the mark of the lease id.
-- ARGV: how many keys a renewal has; for each renewal the lease, its purpose (l or d to keep the grant, w
--       to wait), and the lease in ms.
local width, replies = tonumber(ARGV[1]), {}

local function renew(lock, mark, lease, kind, ms)
  local value, other = look(lock)
  if other then return { 'foreign', other } end
  if not is_of(lease, value) then
    local reason = reason_of(mark and call('GET', mark))
    if reason then return { 'revoked', reason, 0 } end
    return { 'unknown' }
  end
  if kind == 'w' then return { 'held', left_of(lock) or ms } end
  local left = extend(lock, ms)
  local before = field(lease, value, KIND, 1)
  if before and before ~= kind then call('SETRANGE', lock, #lease + KIND - 1, kind) end
  return left
end

for index = 1, #KEYS / width do
  local first, argument = (index - 1) * width + 1, 3 * index - 1
  replies[index] = renew(KEYS[first], width == 2 and KEYS[first + 1], ARGV[argument],
    ARGV[argument + 1], tonumber(ARGV[argument + 2]))
end
return replies
