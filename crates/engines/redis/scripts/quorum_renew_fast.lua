-- ARGV: the pass; for each lock key lease id and `g`; hold (l, d) or w to look only, client, inbox;
--       lease in ms.
-- Renews where nothing but the time changes: what is left is the answer. The rest is for the rules.
local replies, rest = {}, {}
local votes = redis.pcall('HGET', NODE, 'p') == ARGV[1]
for line = 1, votes and #KEYS - 1 or 0 do
  local at = 3 * line
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
if votes and #rest == 0 then return replies end
