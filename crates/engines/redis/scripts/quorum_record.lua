-- ARGV: the lease id.
local value, other = holder(LOCK)
if other then return { 'foreign', other } end
if not value or sub(value, 1, ID_END) ~= ARGV[1] then return 'nothing' end
return { 'record', value }
