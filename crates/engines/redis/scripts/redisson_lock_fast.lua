-- KEYS: lock, mark of the lease id, list and scores of the queue of a fair lock, heartbeats of its waiters, and
--       the token counter with fencing.
-- ARGV: owner, lease in ms, hold and terms as requested, the holder's metadata, k if the id must be known.
local LOCK, MARK, QUEUE, COUNTER = KEYS[1], KEYS[2], KEYS[3], KEYS[6]
local owner, lease, terms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if ARGV[5] == '-' and call('EXISTS', LOCK, MARK, QUEUE) == 0 then
  local token, other = draw(COUNTER)
  if not token then return { 'foreign', other } end
  call('HSET', LOCK, owner, '1', RECORD, record_of(token, terms, ARGV[4]))
  call('PEXPIRE', LOCK, lease)
  return token
end
