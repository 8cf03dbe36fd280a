-- Takes a fair lock, or joins its queue.
-- KEYS: lock, mark of the lease id, list and scores of the queue, heartbeats, and the token counter with
--       fencing.
-- ARGV: owner, lease in ms, hold and terms as requested, the holder's metadata, k if the id must be known, how
--       many may wait, the verbs that publish, the tag of the name.
local LOCK, MARK, COUNTER = KEYS[1], KEYS[2], KEYS[6]
local queue = fair_queue(KEYS[3], KEYS[4], KEYS[5])
local owner, lease, terms, known, verbs, tag = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[5], ARGV[7], ARGV[8]

local lock, other = lock_at(LOCK)
other = other or queue.other()
if other then return { 'foreign', other } end
if lock and lock.mode then return { 'foreign', 'a read/write lock (RReadWriteLock)' } end
if lock and lock.counts[owner] then
  if not lock.record then return { 'foreign', 'a grant of ours without its record' } end
  if not has_terms(lock.record, terms) then return { 'terms' } end
  return { 'granted', sub(lock.record, 1, TOKEN_END), extend(LOCK, left_of(LOCK) or lease) }
end
local head, removed = queue.settle()
local place = queue.place(owner)
local refusal = ended(call('GET', MARK), place and '-' or known)
if refusal then return refusal end
if not lock and (not head or head == owner) then
  local token, problem = draw(COUNTER)
  if not token then return { 'foreign', problem } end
  if head then queue.take_head(owner) end
  call('HSET', LOCK, owner, '1', RECORD, record_of(token, terms, ARGV[4]))
  call('PEXPIRE', LOCK, lease)
  return token
end
local left = lock and (left_of(LOCK) or (lock.record and extend(LOCK, MAX_LEASE)))
if not place then
  place = queue.length()
  if place >= tonumber(ARGV[6]) then return { 'full' } end
  queue.join(owner, left)
end
queue.beat(owner, place)
if removed and not lock then wake_waiter(head, verbs, tag) end
local holder, count = head, '0'
if lock then holder, count = next(lock.counts) end
return { 'queued', format('%.0f', microseconds()), left or false, holder, count, lock and lock.record or false,
  ahead(place, lock), math.min(left or HEARTBEAT, HEARTBEAT) }
