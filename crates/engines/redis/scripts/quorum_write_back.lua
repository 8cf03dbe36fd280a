-- ARGV: the proof, the lease id, the token of 16 digits.
local largest, floor = admitted(ARGV[1])
if not largest then return floor end
local value, other = holder(LOCK)
local last, odd = last_of(LOCK)
if other or odd then return { 'foreign', other or odd } end
if not value or sub(value, 1, ID_END) ~= ARGV[2] or is_healed(value) then return 'nothing' end
local token = later(later(ARGV[3], sub(value, TOKEN, TOKEN_END)), last)
call('SETRANGE', LOCK, AT_TOKEN, token)
count(LOCK, token, largest)
return token
