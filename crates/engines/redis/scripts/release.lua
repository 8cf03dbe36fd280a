local s = load(LOCK)
if s.foreign then return { 'foreign', s.foreign } end
settle(s)
local id = id_of(ARGV[1])
local record = find_record(s, id)
local queued = record and state_of(record) == 'q'
if queued then
  leave_queue(s, { id })
elseif record then
  if s.set then leave_set(s, id, record) else leave_lock(s) end
end
-- After the release: a full server refuses a script's first write only if that needs memory.
if not record then write_without_memory(s.data) end
if ARGV[2] then call('SET', LOCK .. TOMBSTONE .. id, '', 'PX', ARGV[2]) end
if not record then return { 'nothing', revoked(s, id) or false } end
hand_off(s)
if queued then return 'withdrawn' end
return { 'released', format('%.0f', math.max(us - since_of(record), 0)) }
