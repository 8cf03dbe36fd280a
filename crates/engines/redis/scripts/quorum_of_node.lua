-- A script about the node itself, or about many names. KEYS: node, and the lock keys of the names.
local NODE, OWN = KEYS[1], ''
