-- Renews the grants of a name by its lock key only.
-- KEYS: lock. ARGV: for each renewal the owner, the lease in ms, l or d.
-- Returns for each renewal how many ms the grant has left; or its kind (read, write, permits) if it has other keys
-- besides; or false in any other case. Returns nil if all are false.
local function renew(owner, ms, hold)
  local found = redis.pcall('HMGET', KEYS[1], 'mode', owner, owner .. ':write', RECORD)
  if found.err then return call('TYPE', KEYS[1]).ok == 'string' and 'permits' end
  local mode, reads, writes, record = unpack(found)
  if mode then return (writes and 'write') or (reads and 'read') end
  return reads and record and sub(record, KIND, KIND) == hold and extend(KEYS[1], ms)
end

local replies, some = {}, false
for at = 1, #ARGV, 3 do
  local reply = renew(ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2])
  replies[#replies + 1], some = reply, some or reply
end
if some then return replies end
