-- Many names on one server. KEYS: counter, and the lock key of each name.
local COUNTER, CLUSTER, COUNTER_LIFE = KEYS[1], false, nil
