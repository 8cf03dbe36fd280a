-- KEYS and ARGV as for a lock. A free lock without a queue and without a mark of the lease id is taken at once:
-- defining the functions of the other cases costs more than these commands.
if ARGV[5] == '-' and redis.call('EXISTS', KEYS[1], KEYS[2], KEYS[3]) == 0 then
  local token = not KEYS[6] and 1 or redis.pcall('INCR', KEYS[6])
  local is_number = type(token) == 'number'
  if is_number and token >= 1 and token <= MAX_TOKEN then
    local time = redis.call('TIME')
    local record = string.format('%016.0f:%010d%06d:%s:%s', token, time[1], time[2], ARGV[3], ARGV[4])
    redis.call('HSET', KEYS[1], ARGV[1], '1', 'holdline', record)
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return string.sub(record, 1, 16)
  end
  if is_number then redis.call('DECR', KEYS[6]) end
end
