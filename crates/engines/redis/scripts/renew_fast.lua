-- Renews exclusive grants where only the expiry changes; the reply is the ms left. The rules handle the
-- others. The fragment before this one sets `renewals`, their number; `before`, the arguments that
-- precede theirs; and `accepts`, without which the rules reply.
local replies, rest = {}, {}
for index = 1, renewals do
  local at = 3 * index - 1 + before
  local key, purpose, value = KEYS[index + 1], ARGV[at], false
  local kind = sub(purpose, 1, 1)
  if kind ~= 'w' then value = redis.pcall('GET', key) end
  if type(value) == 'string' and sub(value, 1, STATE) == ARGV[at - 1] then
    local left, ms = call('PTTL', key), tonumber(ARGV[at + 1])
    local updated = kind == 'l' and purpose or 'd' .. sub(value, CLIENT, INBOX_END)
    local changes = sub(value, HOLD, INBOX_END) ~= updated
    -- First a command that needs no memory: a full server then accepts the others.
    if left < ms then
      call('PEXPIRE', key, ARGV[at + 1])
      left = ms
    elseif changes then
      call('PEXPIRE', key, left)
    end
    if changes then call('SETRANGE', key, AT_HOLD, updated) end
    replies[index] = left
  else
    rest[#rest + 1] = index
  end
end
if accepts and #rest == 0 then return replies end
