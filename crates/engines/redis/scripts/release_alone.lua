-- ARGV: lease id and `g-`. Ends a grant that nobody waits for, by its lock key alone; anything else
-- is nil.
if redis.pcall('GETRANGE', LOCK, '0', '33') == ARGV[1] then
  call('DEL', LOCK)
  return 'released'
end
