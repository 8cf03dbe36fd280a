-- A count-down latch as Redisson's RCountDownLatch: the count as a string under the object's own
-- key, no key at zero, and a message on its channel: '0' at zero, '1' when it is set.
-- KEYS: the object. ARGV: set, down or count; by how much; the channel; the verbs that publish.
local key = KEYS[1]
local function publish(message)
  for verb in string.gmatch(ARGV[4], '%u+') do redis.call(verb, ARGV[3], message) end
end
local text = redis.pcall('GET', key)
if type(text) == 'table' then return { 'foreign', text.err } end
if text and not string.match(text, '^%d+$') then return { 'foreign', 'a text that is no count' } end
local count, by = tonumber(text or '0'), tonumber(ARGV[2])
local after = count
if ARGV[1] == 'set' and count == 0 then after = by end
if ARGV[1] == 'down' then after = math.max(count - by, 0) end
if after == count then return { 'latch', string.format('%.0f', count), '0' } end
if after == 0 then
  redis.call('DEL', key)
  publish('0')
else
  redis.call('SET', key, string.format('%.0f', after))
  if ARGV[1] == 'set' then publish('1') end
end
return { 'latch', string.format('%.0f', after), '1' }
