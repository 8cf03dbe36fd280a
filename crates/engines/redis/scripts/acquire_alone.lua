-- ARGV: as of an acquire. Claims a name that was handed over to who asks, in time and on the terms
-- that were asked, by its lock key alone; anything else is nil.
local id = sub(ARGV[1], 1, 32)
local value = redis.pcall('GET', LOCK)
if type(value) == 'string' and sub(value, 1, 33) == id .. 'h'
  and sub(value, 105) == sub(ARGV[2], 6) and call('PTTL', LOCK) > 9000 then
  call('PEXPIRE', LOCK, ARGV[3])
  call('SETRANGE', LOCK, '32', 'g')
  return sub(value, 68, 83)
end
