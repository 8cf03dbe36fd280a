local largest, floor = admitted(ARGV[1])
if not largest then return floor end
local value, other = holder(LOCK)
local last, odd = last_of(LOCK)
if other or odd then return { 'foreign', other or odd } end
local since = stamp(call('TIME'))
local form = sub(ARGV[5], FORM, FORM)
-- A repeated request is no new vote: the contender may rely only on the time that is left.
if value and sub(value, 1, ID_END) == id then
  if is_healed(value) then return { 'healed', left_of(LOCK) } end
  return { 'held', later(sub(value, TOKEN, TOKEN_END), last), left_of(LOCK) }
end
local mark, strange = mark_of(LOCK, id)
if strange then return { 'foreign', strange } end
if mark then return { 'cancelled', reason_of(mark) or false } end
if form == 'k' then return { 'unknown' } end
if value then
  local left = left_of(LOCK)
  if form == 'w' and sub(value, WAITS, WAITS) == '-' then
    call('SETRANGE', LOCK, AT_WAITS, 'w')
  end
  return { 'busy', since, redact(value), left }
end
local ahead = math.min(tonumber(token), since + sub(ARGV[5], AHEAD))
local counted = math.max(later(last or largest, floor) + 1, ahead)
if counted > tonumber(HIGHEST) then error('HOLDLINE-SPENT') end
token = format('%016.0f', counted)
call('SET', LOCK, ARGV[2] .. token .. since .. ARGV[3], 'PX', ARGV[4])
count(LOCK, token, largest)
return token
