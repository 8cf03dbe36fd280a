-- KEYS: lock, mark of the lease id, and the list of releases if there is one.
-- ARGV: lease, token of 16 digits, for how many ms to remember, the operator's reason.
local lease = ARGV[1]
local value, other = look(KEYS[1])
if other then return { 'foreign', other } end
if not is_of(lease, value) or field(lease, value, TOKEN_FIELD, 16) ~= ARGV[2] then return 'nothing' end
free(KEYS[1], KEYS[3])
call('SET', KEYS[2], '-r' .. ARGV[4], 'PX', ARGV[3])
return 'done'
