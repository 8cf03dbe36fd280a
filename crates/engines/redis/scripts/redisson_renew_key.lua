-- Renews one key of a grant, for a name whose slot migrates: then the keys may be on two nodes.
-- KEYS: the key. ARGV: record, lock, hold or permits; the lease in ms; what the key must have:
--   record: its field, and l or d   lock: the field of the holder   permits: the lease id, and how many
-- Returns how many ms are left, and for a record how many permits it is of; nil if the key has no such grant.
local key, part, ms, wanted = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
if part == 'record' then
  local record = call('HGET', key, wanted)
  if not record or sub(record, KIND, KIND) ~= ARGV[4] then return nil end
  extend(key, ms + MARGIN)
  return permits_of(record)
end
if part == 'permits' then return extend_permits(key, wanted, tonumber(ARGV[4]), ms) end
local is_there = part == 'hold' and call('EXISTS', key) == 1 or part == 'lock' and call('HGET', key, wanted)
return is_there and extend(key, ms)
