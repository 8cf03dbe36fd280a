local id = sub(ARGV[1], 1, ID_END)
local value, other = holder(LOCK)
local mark, strange = mark_of(LOCK, id)
if other or strange then return { 'foreign', other or strange } end
local mine = value and sub(value, 1, ID_END) == id
-- First a command that needs no memory: a full server then accepts the others.
if mine then call('DEL', LOCK) else redis.pcall('HDEL', NODE, '') end
if ARGV[2] then
  local key = OWN .. LOCK .. ':1t:' .. id
  local ms = math.max(tonumber(ARGV[2]), call('PTTL', key))
  call('SET', key, 'g' .. sub(mark or '', 2), 'PX', format('%.0f', ms))
end
if not mine then return { 'nothing', reason_of(mark) or false } end
wake(LOCK, value)
return { 'released', format('%.0f', math.max(stamp(call('TIME')) - sub(value, SINCE, SINCE_END), 0)) }
