-- ARGV: as for an acquire. Claims a name that was handed to the caller, in time and on the terms that
-- it requested, by the lock key only; returns nil in any other case.
local id = sub(ARGV[1], 1, ID_END)
local value = redis.pcall('GET', LOCK)
if type(value) == 'string' and sub(value, 1, STATE) == id .. 'h'
  and sub(value, TERMS) == sub(ARGV[2], TERMS - WINDOW + 1) and call('PTTL', LOCK) > CLAIM_MARGIN then
  call('PEXPIRE', LOCK, ARGV[3])
  call('SETRANGE', LOCK, AT_STATE, 'g')
  return sub(value, TOKEN, TOKEN_END)
end
