local id = sub(ARGV[1], 1, 32)
local value, other = holder(LOCK)
local mark, strange = mark_of(LOCK, id)
if other or strange then return { 'foreign', other or strange } end
local mine = value and sub(value, 1, 32) == id
-- First what takes no memory: a full server then lets the rest pass.
if mine then call('DEL', LOCK) else redis.pcall('HDEL', NODE, '') end
if ARGV[2] then
  local key = OWN .. LOCK .. ':1t:' .. id
  local ms = math.max(tonumber(ARGV[2]), call('PTTL', key))
  call('SET', key, 'g' .. sub(mark or '', 2), 'PX', format('%.0f', ms))
end
if not mine then return { 'nothing', words_of(mark) or false } end
wake(LOCK, value)
return { 'released', format('%.0f', math.max(stamp(call('TIME')) - sub(value, 84, 99), 0)) }
