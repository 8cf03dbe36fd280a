-- A bare lease with nothing else to do is deleted, and that is all. One more character than it has
-- is read, so that what begins like it is told apart.
if ARGV[3] == '-' and redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 'released'
end
