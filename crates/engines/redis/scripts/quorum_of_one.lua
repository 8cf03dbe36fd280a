-- A script about one name on a node of a quorum. KEYS: lock, and the node's key if it is not the default
-- one.
local LOCK, NODE, OWN = KEYS[1], KEYS[2] or 'holdline:node:1', ''
