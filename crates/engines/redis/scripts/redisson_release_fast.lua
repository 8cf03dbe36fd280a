-- KEYS and ARGV as for a release. Releases a mutex by its own key, if nobody waits for it in a queue; goes on in
-- any other case. Without the key of the queue, the next waiter finds the lock free by its heartbeat. How long it
-- was held is the client's to say: a look at the clock costs a fifth of a cycle.
if ARGV[3] == '0' then
  local found = redis.pcall('HMGET', KEYS[1], 'mode', ARGV[1])
  local is_lock = not found.err and not found[1] and found[2]
  if is_lock and not (KEYS[6] and redis.call('EXISTS', KEYS[6]) == 1) then
    redis.call('DEL', KEYS[1])
    for verb in string.gmatch(ARGV[4], '%u+') do
      redis.pcall(verb, 'redisson_lock__channel:' .. ARGV[5], '0')
    end
    return 'released'
  end
end
