-- KEYS: lock; then, as ARGV[3] says: m the mark of the lease id, s the list of releases.
-- ARGV: lease, for how many ms to remember that it was given up (0: not at all), which keys.
local lease = ARGV[1]
local value, other = look(KEYS[1])
if other then return { 'foreign', other } end
local mark_key = find(ARGV[3], 'm', 1, true) and KEYS[2]
local signal = find(ARGV[3], 's', 1, true) and KEYS[#KEYS]
local mark = mark_key and call('GET', mark_key)
if mark_key and ARGV[2] ~= '0' then
  local ms = math.max(tonumber(ARGV[2]), call('PTTL', mark_key))
  call('SET', mark_key, 'g' .. sub(mark or '', 2), 'PX', format('%.0f', ms))
end
if not is_of(lease, value) then return { 'nothing', reason_of(mark) } end
free(KEYS[1], signal)
local since = field(lease, value, SINCE_FIELD, 16)
if not since then return 'released' end
return { 'released', format('%.0f', math.max(microseconds() - since, 0)) }
