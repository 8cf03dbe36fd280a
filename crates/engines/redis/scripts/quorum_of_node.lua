-- The keys of a script about a node of a quorum: its own, and then the lock keys of names.
local NODE, OWN = KEYS[1], ''
