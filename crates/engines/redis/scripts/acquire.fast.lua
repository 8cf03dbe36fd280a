-- KEYS: counter, lock, line, data, tombstone of the lease id.
-- ARGV: the record's places 1-67 as it is granted, its places from 100, lease in ms, and a line:
--       mode (x, s, p), known (k or -), queue (q or -), claim window in ms, longest queue, and
--       for permits count and of.
-- Few words, since each costs the server as much as a small command.
-- A name of which nothing is kept is granted at once; the token alone is the answer then.
if sub(ARGV[4], 1, 2) == 'x-' then
  if call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) == 0 then
    local since = stamp(call('TIME'))
    local token = draw(since)
    call('SET', KEYS[2], ARGV[1] .. token .. since .. ARGV[2], 'PX', ARGV[3])
    return token
  end
elseif sub(ARGV[4], 1, 2) == 'xk' then
  -- A name that was handed over to who asks is claimed, in time and on the terms that were asked.
  local value = redis.pcall('GET', KEYS[2])
  if type(value) == 'string' and sub(value, 1, 33) == sub(ARGV[1], 1, 32) .. 'h' then
    local terms = string.find(value, ';', 113, true)
    local asked = string.find(ARGV[2], ';', 14, true)
    if sub(value, 113, terms) == sub(ARGV[2], 14, asked)
      and sub(value, 100, 112) .. '000' > stamp(call('TIME')) then
      local record = sub(ARGV[1], 1, 32) .. 'g' .. sub(value, 34, 99) .. ARGV[2]
      -- First what takes no memory: a full server then lets the rest pass.
      call('PEXPIRE', KEYS[2], ARGV[3])
      call('SET', KEYS[2], record, 'PX', ARGV[3])
      return sub(value, 68, 83)
    end
  end
end
