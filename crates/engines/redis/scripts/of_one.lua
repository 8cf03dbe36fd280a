-- The keys of a script about one name: lock, and the counter where it is not the usual one.
local LOCK, COUNTER = KEYS[1], KEYS[2] or 'holdline:fence'
