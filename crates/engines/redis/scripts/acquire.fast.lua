-- KEYS: counter, lock, line, data, tombstone of the lease id.
-- ARGV: the record's places 1-67 as it is granted, its places from 100, lease in ms, and a line:
--       mode (x, s, p), known (k or -), queue (q or -), longest queue, and for permits count and of.
if sub(ARGV[4], 1, 2) == 'x-' then
  local kept, time = call('EXISTS', KEYS[2], KEYS[3], KEYS[4], KEYS[5]), call('TIME')
  local seconds, micros = time[1], time[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end
  local since = seconds .. micros
  if kept == 0 then
    -- A name of which nothing is kept is granted at once; the token alone is the answer then.
    local last = call('GETSET', KEYS[1], since)
    if not last or (#last == 16 and last < since and tonumber(last)) then
      call('SET', KEYS[2], ARGV[1] .. since .. since .. ARGV[2], 'PX', ARGV[3])
      return since
    end
    call('SET', KEYS[1], last)
  else
    -- A name that one holder has alone is queued for, or said to be busy, where time has ended
    -- nothing and the data holds nothing but the waiters.
    local value, id = redis.pcall('GET', KEYS[2]), sub(ARGV[1], 1, 32)
    if type(value) == 'string' and sub(value, 1, 32) ~= id
      and find(value, '^[ghr][-w][ld]', 33) and find(value, '^%d%d%d%d%dx [ld]%d+;', 100) then
      local members, waiting = redis.pcall('ZCARD', KEYS[3]), redis.pcall('HLEN', KEYS[4])
      local left = call('PTTL', KEYS[2])
      if sub(value, 33, 33) == 'h' then left = left - 9000 end
      if left > 0 and type(waiting) == 'number' and members == 2 * waiting
        and kept == (waiting > 0 and 3 or 1) and (waiting == 0 or call('ZCOUNT', KEYS[3],
          '1000000000000000', (seconds - 4) .. micros) == 0) then
        local look = 1000
        if waiting == 0 and left < look then look = left end
        local shown = sub(value, 1, 8) .. sub(value, 33)
        if sub(ARGV[4], 3, 3) == '-' then
          return { 'busy', left, left < 1000 and left or 1000, since, shown, left }
        end
        if waiting < tonumber(sub(ARGV[4], 5)) and call('HSETNX', KEYS[4], id, id .. 'q-'
          .. sub(ARGV[1], 35) .. '0000000000000000' .. since .. ARGV[2]) == 1 then
          -- The line: a place for the order, a time for the last hearing.
          local member = 'p' .. id
          call('ZADD', KEYS[3], sub(since, 2), member, since, 't' .. id)
          if waiting == 0 then
            call('PEXPIRE', KEYS[3], '19000')
            call('PEXPIRE', KEYS[4], '19000')
          else
            if call('ZRANK', KEYS[3], member) ~= waiting then
              -- Not the last, by a clock that was set back.
              local last = call('ZRANGE', KEYS[3], waiting, waiting, 'WITHSCORES')[2]
              call('ZADD', KEYS[3], last + 1, member)
            end
            if call('PTTL', KEYS[4]) < 9000 then
              call('PEXPIRE', KEYS[3], '19000')
              call('PEXPIRE', KEYS[4], '19000')
            end
          end
          -- Whoever holds it must know at its release that somebody waits.
          if sub(value, 34, 34) == '-' then call('SETRANGE', KEYS[2], '33', 'w') end
          return { 'queued', waiting, look, since, shown, left }
        end
      end
    end
  end
elseif sub(ARGV[4], 1, 2) == 'xk' then
  -- A name that was handed over to who asks is claimed, in time and on the terms that were asked.
  local value = redis.pcall('GET', KEYS[2])
  if type(value) == 'string' and sub(value, 1, 33) == sub(ARGV[1], 1, 32) .. 'h'
    and sub(value, 105) == sub(ARGV[2], 6) and call('PTTL', KEYS[2]) > 9000 then
    -- First what takes no memory: a full server then lets the rest pass.
    call('PEXPIRE', KEYS[2], ARGV[3])
    call('SETRANGE', KEYS[2], '32', 'g')
    return sub(value, 68, 83)
  end
end
