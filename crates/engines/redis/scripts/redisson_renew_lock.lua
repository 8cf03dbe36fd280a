-- KEYS: lock. ARGV: owner, lease in ms, l or d. Renews a mutex by its own key; returns nil in any other case.
local found = redis.pcall('HMGET', KEYS[1], 'mode', ARGV[1], RECORD)
if not found.err and not found[1] and found[2] and found[3] and sub(found[3], KIND, KIND) == ARGV[3] then
  return { extend(KEYS[1], tonumber(ARGV[2])) }
end
