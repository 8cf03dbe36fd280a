local largest, instead = admitted(ARGV[1])
if not largest then return instead end

local function renew(lock, id)
  local value, other = holder(lock)
  if other then return { 'foreign', other } end
  local mine = value and sub(value, 1, 32) == id
  if mine and sub(value, 33, 33) == 'g' then return left_of(lock) end
  local words = words_of((mark_of(lock, id)))
  if mine then return { 'revoked', words or '', left_of(lock) } end
  if words then return { 'revoked', words, 0 } end
  return { 'gone', value and 0 or 1 }
end

for _, line in ipairs(rest) do
  replies[line] = renew(KEYS[line + 1], sub(ARGV[3 * line - 1], 1, 32))
end
return replies
