-- The same keys in the plain dialect: what is kept besides a lock key stands under our own prefix.
local NODE, OWN = KEYS[1], sub(KEYS[1], 1, -7)
