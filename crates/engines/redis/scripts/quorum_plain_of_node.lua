-- The same in the plain dialect: keys other than the lock key start with our prefix.
local NODE, OWN = KEYS[1], sub(KEYS[1], 1, -7)
