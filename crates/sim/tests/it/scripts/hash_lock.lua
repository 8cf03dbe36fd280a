-- A re-entrant lock in a hash: field by owner, count as value.
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpireat', KEYS[1], 99999999999000)
  return nil
end
return redis.call('pexpiretime', KEYS[1])
