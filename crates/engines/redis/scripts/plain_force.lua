-- KEYS: lock, and the list of releases if there is one.
-- ARGV: the value of a holder, which may be another library's.
-- Ends the hold if the key still has this value.
local value, other = look(KEYS[1])
if other then return { 'foreign', other } end
if value and #value > MAX_VALUE then return { 'foreign', 'a text that is too long for a lock' } end
if value ~= ARGV[1] then return 'nothing' end
free(KEYS[1], KEYS[2])
return 'done'
