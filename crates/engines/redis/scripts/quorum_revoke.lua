-- ARGV: the first 8 digits of the lease id, now or polite, the operator's words.
local value, other = holder(LOCK)
if other then return { 'foreign', other } end
if not value or sub(value, 1, 8) ~= ARGV[1] then return 'nothing' end
local id, left = sub(value, 1, 32), left_of(LOCK)
local mark, strange = mark_of(LOCK, id)
if strange then return { 'foreign', strange } end
local _, _, lease = find(value, ' .(%d+);', 105)
local ms = left + math.max(MEMORY, tonumber(lease) or 0, left)
local words = sub(mark or '-', 1, 1) .. 'r' .. ARGV[3]
call('SET', OWN .. LOCK .. ':1t:' .. id, words, 'PX', format('%.0f', ms))
local inbox = sub(value, 52, 67)
if inbox ~= '0000000000000000' then
  redis.pcall('PUBLISH', sub(NODE, 1, -7) .. 'inbox:' .. inbox, 'c' .. sub(id, 1, 8))
end
if ARGV[2] ~= 'now' then
  call('SETRANGE', LOCK, '32', 'r')
  return { 'told', left }
end
call('DEL', LOCK)
wake(LOCK, value)
return 'done'
