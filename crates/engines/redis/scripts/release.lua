local s = load(LOCK)
if s.foreign then return { 'foreign', s.foreign } end
settle(s)
local id = sub(ARGV[1], 1, 32)
local record = find_record(s, id)
local queued = record and state_of(record) == 'q'
if queued then
  leave_line(s, { id })
elseif record then
  if s.set then leave_set(s, id, record) else leave_lock(s) end
end
-- Behind the end: a server whose memory is full refuses a script's first write only if it adds.
if not record then go_on_when_full(s.data) end
if ARGV[2] then call('SET', LOCK .. ':1t:' .. id, '', 'PX', ARGV[2]) end
if not record then return { 'nothing', revoked(s, id) or false } end
hand_over(s)
if queued then return 'withdrawn' end
return { 'released', format('%.0f', math.max(us - sub(record, 84, 99), 0)) }
