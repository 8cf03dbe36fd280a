-- ARGV: lease id and `g-`. Releases a grant without waiters by the lock key only; returns nil in any
-- other case.
if redis.pcall('GETRANGE', LOCK, '0', AT_WAITS) == ARGV[1] then
  call('DEL', LOCK)
  return 'released'
end
