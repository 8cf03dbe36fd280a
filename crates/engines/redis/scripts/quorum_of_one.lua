-- The keys of a script about one name on a node of a quorum: lock, and the node's own where that is not
-- the usual one.
local LOCK, NODE, OWN = KEYS[1], KEYS[2] or 'holdline:node:1', ''
