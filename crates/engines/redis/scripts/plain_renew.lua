-- KEYS: for each line the lock, and, where ARGV[1] is 2, the mark of the lease id.
-- ARGV: how many keys a line has; for each line the lease, what it is about (l or d to keep the
--       grant, w to wait), and the lease in ms.
local width, replies = tonumber(ARGV[1]), {}

local function renew(lock, mark, lease, kind, ms)
  local value, other = look(lock)
  if other then return { 'foreign', other } end
  if not is_of(lease, value) then
    local words = words_of(mark and call('GET', mark))
    if words then return { 'revoked', words, 0 } end
    return { 'unknown' }
  end
  if kind == 'w' then return { 'handed', left_of(lock) or ms } end
  local left = keep(lock, ms)
  local was = field(lease, value, KIND, 1)
  if was and was ~= kind then call('SETRANGE', lock, #lease + KIND - 1, kind) end
  return left
end

for line = 1, #KEYS / width do
  local first, words = (line - 1) * width + 1, 3 * line - 1
  replies[line] = renew(KEYS[first], width == 2 and KEYS[first + 1], ARGV[words], ARGV[words + 1],
    tonumber(ARGV[words + 2]))
end
return replies
