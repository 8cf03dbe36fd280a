-- KEYS: lock.
local value, other = look(KEYS[1])
if other then return { 'foreign', other } end
if not value then return 'free' end
return { 'held', format('%.0f', microseconds()), left_of(KEYS[1]), value }
