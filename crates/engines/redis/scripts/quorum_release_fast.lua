-- ARGV: lease id and `g-`, and for how many ms to leave a mark that it was given up.
-- A grant without waiters is deleted.
if not ARGV[2] and redis.pcall('GETRANGE', LOCK, '0', AT_WAITS) == ARGV[1] then
  call('DEL', LOCK)
  return 'released'
end
