-- The same keys in the plain dialect: what is kept besides a lock key stands under our own prefix.
local LOCK, NODE = KEYS[1], KEYS[2] or 'holdline:node:1'
local OWN = sub(NODE, 1, -7)
