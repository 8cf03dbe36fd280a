-- A queue in a list with deadlines in a sorted set, settled first.
local now = tonumber(redis.call('time')[1])
while true do
  local first = redis.call('lindex', KEYS[1], 0)
  if first == false then
    break
  end
  local deadline = tonumber(redis.call('zscore', 'timeouts', first))
  if deadline ~= nil and deadline > now then
    break
  end
  redis.call('zrem', 'timeouts', first)
  redis.call('lpop', KEYS[1])
end
redis.call('rpush', KEYS[1], 'waiter:' .. tostring(#ARGV))
redis.call('zadd', 'timeouts', 99999999999, 'waiter:' .. tostring(#ARGV))
return {redis.call('llen', KEYS[1]), redis.call('zcard', 'timeouts'), cjson and 1 or 0}
