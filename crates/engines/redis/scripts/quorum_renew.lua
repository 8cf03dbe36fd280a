local largest, instead = admitted(ARGV[1])
if not largest then return instead end

local function renew(lock, id)
  local value, other = holder(lock)
  if other then return { 'foreign', other } end
  local mine = value and sub(value, 1, ID_END) == id
  if mine and sub(value, STATE, STATE) == 'g' then return left_of(lock) end
  local reason = reason_of((mark_of(lock, id)))
  if mine then return { 'revoked', reason or '', left_of(lock) } end
  if reason then return { 'revoked', reason, 0 } end
  return { 'gone', value and 0 or 1 }
end

for _, index in ipairs(rest) do
  replies[index] = renew(KEYS[index + 1], sub(ARGV[3 * index - 1], 1, ID_END))
end
return replies
