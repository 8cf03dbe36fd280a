-- One name in a cluster. Each name has a counter of its own, which lasts COUNTER_LIFE ms after its last
-- use. KEYS: lock, counter, and a key that never exists.
local LOCK, COUNTER, CLUSTER, COUNTER_LIFE = KEYS[1], KEYS[2], true, '86400000'
