-- KEYS: counter, and for each line: lock, line, data.
-- ARGV: for each line: lease id and `g`; hold (l, d) or w for the queue heartbeat, client, inbox;
--       lease in ms.
-- Renews what one holder has alone, where nothing but its time changes. The rest is for the rules.
local replies, rest = {}, {}
for line = 1, #ARGV / 3 do
  local at = 3 * line - 1
  local purpose, value = ARGV[at], false
  local kind = sub(purpose, 1, 1)
  if kind ~= 'w' then value = redis.pcall('GET', KEYS[at]) end
  if type(value) == 'string' and sub(value, 1, 33) == ARGV[at - 1] then
    local left = math.max(call('PTTL', KEYS[at]), tonumber(ARGV[at + 1]))
    -- First what takes no memory: a full server then lets the rest pass.
    call('PEXPIRE', KEYS[at], left)
    if kind == 'l' then
      if sub(value, 35, 67) ~= purpose then call('SETRANGE', KEYS[at], 34, purpose) end
    elseif sub(value, 35, 35) ~= 'd' then
      call('SETRANGE', KEYS[at], 34, 'd')
    end
    replies[line] = { 'renewed', left }
  else
    rest[#rest + 1] = line
  end
end
if #rest == 0 then return replies end
