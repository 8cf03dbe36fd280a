-- KEYS: lock, token counter, list and scores of the queue of a fair lock, heartbeats of its waiters.
-- ARGV: the owner, its token or nothing, the verbs that publish, the tag of the name.
-- Ends the hold of a Redisson client, all its re-entries with it; with a token only if it drew the last one.
local lock, other = lock_at(KEYS[1])
if other then return { 'foreign', other } end
if lock and lock.mode then return { 'foreign', 'a read/write lock of a Redisson client' } end
if not lock or lock.record or not lock.counts[ARGV[1]] then return 'nothing' end
if ARGV[2] ~= '' and tonumber(call('GET', KEYS[2]) or 0) ~= tonumber(ARGV[2]) then return 'nothing' end
call('DEL', KEYS[1])
publish(ARGV[3], 'redisson_lock__channel:' .. ARGV[4], '0')
wake_next({ list = KEYS[3], scores = KEYS[4], beats = KEYS[5] }, ARGV[3], ARGV[4])
return 'done'
