local s = load(2)
if s.foreign then return { 'foreign', s.foreign } end
settle(s)
local id = sub(ARGV[1], 1, 32)
if ARGV[2] ~= '0' then call('SET', KEYS[5], '', 'PX', ARGV[2]) end
local record = find_record(s, id)
if not record then
  local reason = revoked(s, id)
  return { 'nothing', reason or false }
end
if state_of(record) == 'q' then
  leave_line(s, { id })
  hand_over(s)
  return 'withdrawn'
end
if s.set then leave_set(s, id, record) else leave_lock(s) end
hand_over(s)
return { 'released', format('%.0f', us - sub(record, 84, 99)) }
