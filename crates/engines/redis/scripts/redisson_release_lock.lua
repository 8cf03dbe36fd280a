-- KEYS: lock. ARGV: owner, the verbs that publish, the tag of the name. Releases a mutex by its own key;
-- returns nil in any other case.
local found = redis.pcall('HMGET', KEYS[1], 'mode', ARGV[1], RECORD)
if not found.err and not found[1] and found[2] then
  call('DEL', KEYS[1])
  publish(ARGV[2], 'redisson_lock__channel:' .. ARGV[3], '0')
  local since = held_for(found[3])
  return since and { 'released', tonumber(since) } or 'released'
end
