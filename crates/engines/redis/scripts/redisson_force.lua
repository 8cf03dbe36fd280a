-- KEYS: lock, token counter, list and scores of the queue of a fair lock, heartbeats of its waiters.
-- ARGV: the owner, its token, the verbs that publish, the tag of the name.
-- Ends the hold of a Redisson client that drew the last token, all its re-entries with it.
local lock, other = lock_at(KEYS[1])
if other then return { 'foreign', other } end
if not lock or lock.mode or lock.record or not lock.counts[ARGV[1]] then return 'nothing' end
if tonumber(call('GET', KEYS[2]) or 0) ~= tonumber(ARGV[2]) then return 'nothing' end
call('DEL', KEYS[1])
publish(ARGV[3], 'redisson_lock__channel:' .. ARGV[4], '0')
wake_next({ list = KEYS[3], scores = KEYS[4], beats = KEYS[5] }, ARGV[3], ARGV[4])
return 'done'
