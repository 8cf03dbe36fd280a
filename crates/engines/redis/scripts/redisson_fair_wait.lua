-- The heartbeat of a waiter for a fair lock. It never takes the lock.
-- KEYS: lock, mark of the lease id, list and scores of the queue, heartbeats.
-- ARGV: owner, the verbs that publish, the tag of the name.
local LOCK, MARK = KEYS[1], KEYS[2]
local queue = fair_queue(KEYS[3], KEYS[4], KEYS[5])
local owner, verbs, tag = ARGV[1], ARGV[2], ARGV[3]

local lock, other = lock_at(LOCK)
other = other or queue.other()
if other then return { 'foreign', other } end
local left = lock and (left_of(LOCK) or MAX_LEASE)
if lock and lock.counts[owner] then return { 'held', left } end
local head, removed = queue.settle()
if removed and not lock and head ~= owner then wake_waiter(head, verbs, tag) end
local place = queue.place(owner)
if not place then
  local reason = reason_of(call('GET', MARK))
  if reason then return { 'revoked', reason, 0 } end
  return { 'unknown' }
end
queue.beat(owner, place)
if not lock and place == 0 then return { 'held', SILENCE } end
return { 'queued', ahead(place, lock), math.min(left or HEARTBEAT, HEARTBEAT) }
