-- A counting semaphore without leases, stored as Redisson's RSemaphore stores it: the number of
-- available permits as a string under the name itself. Each rise is published on its channel, with
-- the number as the message. The message goes first: a server that refuses it changes nothing.
-- KEYS: the name. ARGV: set, acquire, release, drain or look; how many; the channel; PUBLISH or
-- SPUBLISH; the largest number.
local key = KEYS[1]
local text = redis.pcall('GET', key)
if type(text) == 'table' then return { 'foreign', text.err } end
local before = tonumber(text or '0')
local is_number = not text or string.match(text, '^%-?%d+$') and #text <= 11
if not is_number or math.abs(before) > 2147483648 then
  return { 'foreign', 'a text that is no number of permits' }
end
local verb, by = ARGV[1], tonumber(ARGV[2])
local after = before
if verb == 'set' and not text then
  after = by
elseif verb == 'acquire' and before >= by then
  after = before - by
elseif verb == 'release' then
  after = before + by
elseif verb == 'drain' and before > 0 then
  after = 0
end
if after > math.max(before, tonumber(ARGV[5])) then return { 'many', before } end
if after ~= before then
  if after > before then redis.call(ARGV[4], ARGV[3], string.format('%.0f', after)) end
  -- Keeps the expiry, which Redisson may have set.
  redis.call('INCRBY', key, string.format('%.0f', after - before))
end
return { 'counting', before, after }
