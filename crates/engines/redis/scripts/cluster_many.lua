-- One name in a cluster, by a script for many names. KEYS: counter, lock, and a key that never exists.
local COUNTER, CLUSTER, COUNTER_LIFE = KEYS[1], true, '86400000'
