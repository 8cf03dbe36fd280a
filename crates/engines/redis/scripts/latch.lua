-- A count-down latch. Its key has the text `latch:` and the count; there is no key at zero. Any other
-- value is foreign data, and is left as it is.
-- KEYS: the latch. ARGV: set, down or count; by how much.
local key, MAX_COUNT = KEYS[1], 1000000000
local text = redis.pcall('GET', key)
if type(text) == 'table' then return { 'foreign', key } end
local digits = text and string.match(text, '^latch:([1-9]%d*)$')
if text and (not digits or tonumber(digits) > MAX_COUNT) then return { 'foreign', key } end
local count, by = tonumber(digits or '0'), tonumber(ARGV[2])
local after = count
if ARGV[1] == 'set' and count == 0 then after = by end
if ARGV[1] == 'down' then after = math.max(count - by, 0) end
if after == count then return { 'latch', string.format('%.0f', count), '0' } end
if after == 0 then
  redis.call('DEL', key)
else
  redis.call('SET', key, 'latch:' .. string.format('%.0f', after))
end
return { 'latch', string.format('%.0f', after), '1' }
