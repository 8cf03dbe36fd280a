-- KEYS: counter, and for each line the lock key.
-- ARGV: for each line: lease id and `g`; hold (l, d) or w for the queue heartbeat, client, inbox;
--       lease in ms.
-- Renews what one holder has alone, where nothing but its time changes: what is left is the answer.
-- The rest is for the rules.
local replies, rest = {}, {}
for line = 1, #ARGV / 3 do
  local at = 3 * line - 1
  local key, purpose, value = KEYS[line + 1], ARGV[at], false
  local kind = sub(purpose, 1, 1)
  if kind ~= 'w' then value = redis.pcall('GET', key) end
  if type(value) == 'string' and sub(value, 1, 33) == ARGV[at - 1] then
    local left, ms = call('PTTL', key), tonumber(ARGV[at + 1])
    local kept = kind == 'l' and purpose or 'd' .. sub(value, 36, 67)
    local changes = sub(value, 35, 67) ~= kept
    -- First what takes no memory: a full server then lets the rest pass.
    if left < ms then
      call('PEXPIRE', key, ARGV[at + 1])
      left = ms
    elseif changes then
      call('PEXPIRE', key, left)
    end
    if changes then call('SETRANGE', key, '34', kept) end
    replies[line] = left
  else
    rest[#rest + 1] = line
  end
end
if #rest == 0 then return replies end
