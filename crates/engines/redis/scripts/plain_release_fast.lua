-- A bare lease without other keys is deleted. One character more than the lease is read, so that a longer
-- value with the same start differs.
if ARGV[3] == '-' and redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 'released'
end
