-- KEYS: counter, lock, line, data, tombstone of the lease id.
-- ARGV: lease id and `g-`, for how many ms to leave a tombstone (0: none).
-- A grant that nobody waits for is deleted, and that is all.
do
  local value = redis.pcall('GET', KEYS[2])
  if ARGV[2] == '0' and type(value) == 'string' and sub(value, 1, 34) == ARGV[1] then
    call('DEL', KEYS[2])
    return 'released'
  end
end
