-- The same in the plain dialect: keys other than the lock key start with our prefix.
local LOCK, NODE = KEYS[1], KEYS[2] or 'holdline:node:1'
local OWN = sub(NODE, 1, -7)
