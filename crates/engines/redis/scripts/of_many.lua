-- The keys of a script about many names: the counter, and then the names'.
local COUNTER = KEYS[1]
