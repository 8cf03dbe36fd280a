-- What the fast path did not grant. The queue of a fair lock of the name is never passed.
-- KEYS: lock, mark of the lease id, list and scores of the queue of a fair lock, heartbeats of its waiters, and
--       the token counter with fencing.
-- ARGV: owner, lease in ms, hold and terms as requested, the holder's metadata, k if the id must be known.
local LOCK, MARK, COUNTER = KEYS[1], KEYS[2], KEYS[6]
local owner, lease, terms = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local lock, other = lock_at(LOCK)
other = other or (lock and lock.mode and READ_WRITE)
if other then return ended(call('GET', MARK)) or { 'foreign', other } end
if lock and lock.counts[owner] then
  if not lock.record then return { 'foreign', 'a grant of ours without its record' } end
  if not has_terms(lock.record, terms) then return { 'terms' } end
  return { 'granted', sub(lock.record, 1, TOKEN_END), extend(LOCK, left_of(LOCK) or lease) }
end
local refusal = ended(call('GET', MARK), ARGV[5])
if refusal then return refusal end
if lock then
  local holder, count = next(lock.counts)
  local left = left_of(LOCK) or (lock.record and extend(LOCK, MAX_LEASE)) or false
  return { 'busy', format('%.0f', microseconds()), left, holder, count, lock.record or false }
end
-- A free one without a mark was taken by the fast path, unless somebody waits for it, or the counter is not as
-- it should be.
local queue = fair_queue(KEYS[3], KEYS[4], KEYS[5])
other = queue.other()
if other then return { 'foreign', other } end
local head = queue.settle()
if head then return { 'busy', format('%.0f', microseconds()), false, head, '0', false } end
local token, problem = draw(COUNTER)
if not token then return { 'foreign', problem } end
call('HSET', LOCK, owner, '1', RECORD, record_of(token, terms, ARGV[4]))
call('PEXPIRE', LOCK, lease)
return token
