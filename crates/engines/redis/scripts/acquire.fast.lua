-- KEYS: counter, lock, line, data, tombstone of the lease id.
-- ARGV: the record's places 1-67 as it is granted, its places from 100, lease in ms, and a line:
--       mode (x, s, p), known (k or -), queue (q or -), claim window in ms, longest queue, and
--       for permits count and of.
-- Few words, since each costs the server as much as a small command. A name of which nothing is
-- kept is granted at once; the token alone is the answer then.
if sub(ARGV[4], 1, 2) == 'x-' and call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
  local since = stamp(call('TIME'))
  local token = draw(since)
  call('SET', KEYS[2], ARGV[1] .. token .. since .. ARGV[2], 'PX', ARGV[3])
  return token
end
