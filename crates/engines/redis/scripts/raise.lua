-- KEYS: counter. ARGV: the largest token that may have been given, 16 digits.
local last = redis.call('GET', KEYS[1])
if last and not tonumber(last) then return { 'foreign', KEYS[1] } end
if not last or tonumber(last) < tonumber(ARGV[1]) then redis.call('SET', KEYS[1], ARGV[1]) end
return 'done'
