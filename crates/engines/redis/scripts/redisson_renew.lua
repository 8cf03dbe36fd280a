-- KEYS: for each renewal those of a grant.
-- ARGV: for each renewal the owner, the lease id, its purpose (l or d to keep the grant, w to wait), and the
--       lease in ms.
local WIDTH = 5
local replies = {}

-- Makes a grant last for at least this many ms, and returns how many it has left.
local function keep(kind, keys, id, record, ms)
  if kind == 'lock' then return extend(keys.lock, ms) end
  extend(keys.records, ms + MARGIN)
  if kind == 'permits' then return extend_permits(keys.permits, id, permits_of(record), ms) end
  local left = extend(keys.lock, ms)
  return kind == 'read' and extend(keys.hold, ms) or left
end

local function renew(keys, owner, id, purpose, ms)
  local kind, record, other = grant_of(keys, owner, id)
  if other then return { 'foreign', other } end
  local left = kind and purpose ~= 'w' and keep(kind, keys, id, record, ms)
  if left then
    if record and sub(record, KIND, KIND) ~= purpose then
      record = sub(record, 1, KIND - 1) .. purpose .. sub(record, TERMS)
      if kind == 'lock' then
        call('HSET', keys.lock, RECORD, record)
      else
        call('HSET', keys.records, kind == 'permits' and id or owner, record)
      end
    end
    return left
  end
  if kind and purpose == 'w' then return { 'held', left_of(keys.lock) or MAX_LEASE } end
  local reason = reason_of(call('GET', keys.mark))
  if reason then return { 'revoked', reason, 0 } end
  return { 'unknown' }
end

for index = 1, #KEYS / WIDTH do
  local key, argument = (index - 1) * WIDTH, (index - 1) * 4
  local keys = { lock = KEYS[key + 1], mark = KEYS[key + 2], records = KEYS[key + 3],
    permits = KEYS[key + 4], hold = KEYS[key + 5] }
  replies[index] = renew(keys, ARGV[argument + 1], ARGV[argument + 2], ARGV[argument + 3],
    tonumber(ARGV[argument + 4]))
end
return replies
