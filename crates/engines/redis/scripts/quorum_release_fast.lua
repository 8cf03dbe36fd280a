-- ARGV: lease id and `g-`, and for how many ms to leave a mark that it was given up.
-- A grant that nobody waits for is deleted, and that is all.
if not ARGV[2] and redis.pcall('GETRANGE', LOCK, '0', '33') == ARGV[1] then
  call('DEL', LOCK)
  return 'released'
end
