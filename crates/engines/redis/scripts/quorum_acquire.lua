local largest, floor = admitted(ARGV[1])
if not largest then return floor end
local value, other = holder(LOCK)
local last, odd = last_of(LOCK)
if other or odd then return { 'foreign', other or odd } end
local since = stamp(call('TIME'))
local asked = sub(ARGV[5], 17, 17)
-- Asked again it is no new vote: what is left of it is all that the contender may count on.
if value and sub(value, 1, 32) == id then
  if is_healed(value) then return { 'healed', left_of(LOCK) } end
  return { 'held', later(sub(value, 68, 83), last), left_of(LOCK) }
end
local mark, strange = mark_of(LOCK, id)
if strange then return { 'foreign', strange } end
if mark then return { 'cancelled', words_of(mark) or false } end
if asked == 'k' then return { 'unknown' } end
if value then
  local left = left_of(LOCK)
  if asked == 'w' and sub(value, 34, 34) == '-' then
    call('SETRANGE', LOCK, '33', 'w')
  end
  return { 'busy', since, show(value), left }
end
local ahead = math.min(tonumber(token), since + sub(ARGV[5], 18))
local counted = math.max(later(last or largest, floor) + 1, ahead)
if counted > tonumber(HIGHEST) then error('HOLDLINE-SPENT') end
token = format('%016.0f', counted)
call('SET', LOCK, ARGV[2] .. token .. since .. ARGV[3], 'PX', ARGV[4])
count(LOCK, token, largest)
return token
