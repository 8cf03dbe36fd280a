-- ARGV: lease id, for how many ms to leave a mark
local id = ARGV[1]
local mark = OWN .. LOCK .. ':1t:' .. id
local kept = call('MGET', LOCK, mark)
local value, old = kept[1], kept[2]
-- MGET returns nothing for a key of another type. In the plain dialect other libraries have locks here.
local odd = OWN == '' and value and not find(sub(value, 33, 35), '^[ghrf][-w][ld]$')
if odd or not value and call('TYPE', LOCK).ok ~= 'none' then return { 'foreign', 'no lock of ours' } end
local mine = value and sub(value, 1, 32) == id
if mine then call('DEL', LOCK) else redis.pcall('HDEL', NODE, '') end
local ms = ARGV[2]
if ms and not old then call('SET', mark, 'g', 'NX', 'PX', ms) end
if ms and old and find(old, '^[-g]') then
  local left = call('PTTL', mark)
  if left > ms + 0 then ms = format('%.0f', left) end
  call('SET', mark, 'g' .. sub(old, 2), 'PX', ms)
end
if mine and sub(value, 34, 34) == 'w' then redis.pcall('PUBLISH', sub(NODE, 1, -7) .. 'wake:' .. LOCK, '') end
return mine and 'released' or { 'nothing', old and sub(old, 2, 2) == 'r' and sub(old, 3) or false }
