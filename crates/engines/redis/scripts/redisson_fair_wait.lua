-- The heartbeat of a waiter for a fair lock. It never takes the lock.
-- KEYS: lock, mark of the lease id, list and scores of the queue, heartbeats.
-- ARGV: owner, the verbs that publish, the tag of the name.
local LOCK, MARK = KEYS[1], KEYS[2]
local queue = { list = KEYS[3], scores = KEYS[4], beats = KEYS[5] }
local owner, verbs, tag = ARGV[1], ARGV[2], ARGV[3]

local lock, other = lock_at(LOCK)
other = other or not_a_queue(queue)
if other then return { 'foreign', other } end
local left = lock and (left_of(LOCK) or MAX_LEASE)
if lock and lock.counts[owner] then return { 'handed', left } end
local now = milliseconds()
local head, removed = settle(queue, now)
if removed and not lock and head ~= owner then wake(head, verbs, tag) end
local place = call('LPOS', queue.list, owner)
if not place then
  local reason = reason_of(call('GET', MARK))
  if reason then return { 'revoked', reason, 0 } end
  return { 'unknown' }
end
note_beat(queue, owner, place, now)
if not lock and place == 0 then return { 'handed', SILENCE } end
return { 'queued', ahead(place, lock), math.min(left or HEARTBEAT, HEARTBEAT) }
