-- KEYS: counter, lock, line, data, tombstone of the lease id.
-- ARGV: lease id, `g-` and the record's places 35-67, its places from 100, lease in ms,
--       mode (x, s, p), queue (q or -) and known (k or -), claim window in ms, longest queue,
--       and for permits: count, of.
-- A name of which nothing is kept is granted at once.
if ARGV[5] == 'x' and sub(ARGV[6], 2) == '-'
  and call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  local time = call('TIME')
  local token, since = draw(time[1] * 1000000 + time[2])
  call('SET', KEYS[2], ARGV[1] .. ARGV[2] .. token .. since .. ARGV[3], 'PX', ARGV[4])
  return { 'granted', token, ARGV[4] }
end
