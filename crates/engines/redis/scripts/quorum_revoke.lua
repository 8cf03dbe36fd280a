-- ARGV: the first 8 digits of the lease id, now or polite, the operator's reason.
local value, other = holder(LOCK)
if other then return { 'foreign', other } end
if not value or sub(value, 1, SHORT_ID) ~= ARGV[1] then return 'nothing' end
local id, left = sub(value, 1, ID_END), left_of(LOCK)
local mark, strange = mark_of(LOCK, id)
if strange then return { 'foreign', strange } end
local _, _, lease = find(value, ' .(%d+);', TERMS)
local ms = left + math.max(MIN_MEMORY, tonumber(lease) or 0, left)
local revoked = sub(mark or '-', 1, 1) .. 'r' .. ARGV[3]
call('SET', OWN .. LOCK .. ':1t:' .. id, revoked, 'PX', format('%.0f', ms))
local inbox = sub(value, INBOX, INBOX_END)
if inbox ~= NO_INBOX then
  redis.pcall('PUBLISH', sub(NODE, 1, -7) .. 'inbox:' .. inbox, 'c' .. sub(id, 1, SHORT_ID))
end
if ARGV[2] ~= 'now' then
  call('SETRANGE', LOCK, AT_STATE, 'r')
  return { 'notified', left }
end
call('DEL', LOCK)
wake(LOCK, value)
return 'done'
