-- One name on one server. KEYS: lock, and the counter if it is not the default one.
local LOCK, COUNTER, CLUSTER, COUNTER_LIFE = KEYS[1], KEYS[2] or 'holdline:fence', false, nil
