-- KEYS: lock; then, as ARGV[3] says: m the mark of the lease id, s the list that tells of a release.
-- ARGV: lease, for how many ms to remember that it was given up (0: not at all), which keys.
local lease = ARGV[1]
local value, other = look(KEYS[1])
if other then return { 'foreign', other } end
local mark = find(ARGV[3], 'm', 1, true) and KEYS[2]
local signal = find(ARGV[3], 's', 1, true) and KEYS[#KEYS]
local known = mark and call('GET', mark)
if mark and ARGV[2] ~= '0' then
  local ms = math.max(tonumber(ARGV[2]), call('PTTL', mark))
  call('SET', mark, 'g' .. sub(known or '', 2), 'PX', format('%.0f', ms))
end
if not is_of(lease, value) then return { 'nothing', words_of(known) } end
free(KEYS[1], signal)
local since = field(lease, value, SINCE, 16)
if not since then return 'released' end
return { 'released', format('%.0f', math.max(microseconds() - since, 0)) }
