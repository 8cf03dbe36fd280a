-- ARGV: the record's places 1-67 as it is granted, its places from 100, lease in ms; and unless it is
--       the usual one a line: mode (x, s, p), known (k or -), queue (q or -), longest queue, and for
--       permits count and of.
local asked, id = ARGV[4] or 'x-q 10000', sub(ARGV[1], 1, 32)
if not ARGV[4] or sub(asked, 1, 2) == 'x-' then
  local queue, data = LOCK .. ':1q', LOCK .. ':1d'
  local kept, time = call('EXISTS', LOCK, queue, data, LOCK .. ':1t:' .. id), call('TIME')
  local seconds, micros = time[1], time[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end
  local since = seconds .. micros
  if kept == 0 then
    -- A name of which nothing is kept is granted at once; the token alone is the answer then.
    local last = call('GETSET', COUNTER, since)
    if not last or (#last == 16 and last < since and tonumber(last)) then
      call('SET', LOCK, ARGV[1] .. since .. since .. ARGV[2], 'PX', ARGV[3])
      return since
    end
    call('SET', COUNTER, last)
  else
    -- A name that one holder has alone is queued for, or said to be busy, where time has ended
    -- nothing and the data holds nothing but the waiters.
    local value = redis.pcall('GET', LOCK)
    if type(value) == 'string' and sub(value, 1, 32) ~= id
      and find(value, '^[ghr][-w][ld]', 33) and find(value, '^%d%d%d%d%dx [ld]%d+;', 100) then
      local members, waiting = redis.pcall('ZCARD', queue), redis.pcall('HLEN', data)
      local left = call('PTTL', LOCK)
      if sub(value, 33, 33) == 'h' then left = left - 9000 end
      if left > 0 and type(waiting) == 'number' and members == 2 * waiting
        and kept == (waiting > 0 and 3 or 1) and (waiting == 0 or call('ZCOUNT', queue,
          '1000000000000000', (seconds - 4) .. micros) == 0) then
        local look = 1000
        if waiting == 0 and left < look then look = left end
        local shown = sub(value, 1, 8) .. sub(value, 33)
        if sub(asked, 3, 3) == '-' then
          return { 'busy', left, left < 1000 and left or 1000, since, shown, left }
        end
        if waiting < tonumber(sub(asked, 5)) and call('HSETNX', data, id, id .. 'q-'
          .. sub(ARGV[1], 35) .. '0000000000000000' .. since .. ARGV[2]) == 1 then
          -- The line: a place for the order, a time for the last hearing.
          local member = 'p' .. id
          call('ZADD', queue, sub(since, 2), member, since, 't' .. id)
          if waiting == 0 then
            call('PEXPIRE', queue, '19000')
            call('PEXPIRE', data, '19000')
          else
            if call('ZRANK', queue, member) ~= waiting then
              -- Not the last, by a clock that was set back.
              local last = call('ZRANGE', queue, waiting, waiting, 'WITHSCORES')[2]
              call('ZADD', queue, last + 1, member)
            end
            if call('PTTL', data) < 9000 then
              call('PEXPIRE', queue, '19000')
              call('PEXPIRE', data, '19000')
            end
          end
          -- Whoever holds it must know at its release that somebody waits.
          if sub(value, 34, 34) == '-' then call('SETRANGE', LOCK, '33', 'w') end
          return { 'queued', waiting, look, since, shown, left }
        end
      end
    end
  end
elseif sub(asked, 1, 2) == 'xk' then
  -- A name that was handed over to who asks is claimed, in time and on the terms that were asked.
  local value = redis.pcall('GET', LOCK)
  if type(value) == 'string' and sub(value, 1, 33) == id .. 'h'
    and sub(value, 105) == sub(ARGV[2], 6) and call('PTTL', LOCK) > 9000 then
    -- First what takes no memory: a full server then lets the rest pass.
    call('PEXPIRE', LOCK, ARGV[3])
    call('SETRANGE', LOCK, '32', 'g')
    return sub(value, 68, 83)
  end
end
