-- ARGV: the record's positions 1-67 as it is granted, its positions from 100, lease in ms; and, unless
--       it is the usual form, one text: mode (x, s, p), known (k or -), queue (q or -), the longest
--       queue, and for permits count and total.
local form, id = ARGV[4] or 'x-q 10000', sub(ARGV[1], 1, ID_END)
if not ARGV[4] or sub(form, 1, 2) == 'x-' then
  local queue, data = LOCK .. QUEUE, LOCK .. DATA
  local existing, time = call('EXISTS', LOCK, queue, data, LOCK .. TOMBSTONE .. id), call('TIME')
  local seconds, micros = time[1], time[2]
  if #seconds + #micros < 16 then
    seconds, micros = string.format('%010.0f', seconds), string.format('%06.0f', micros)
  end
  local since = seconds .. micros
  if existing == 0 then
    -- A name without any key is granted at once; the reply is the token only.
    local last
    if CLUSTER then last = call('SET', COUNTER, since, 'PX', COUNTER_LIFE, 'GET')
    else last = call('GETSET', COUNTER, since) end
    if not last or (#last == 16 and last < since and tonumber(last)) then
      call('SET', LOCK, ARGV[1] .. since .. since .. ARGV[2], 'PX', ARGV[3])
      return since
    end
    call('SET', COUNTER, last)
  else
    -- If one holder has the name exclusively, nothing has expired, and the data contains only
    -- waiters, then the caller is queued, or the name is busy.
    local value = redis.pcall('GET', LOCK)
    if type(value) == 'string' and sub(value, 1, ID_END) ~= id
      and find(value, '^[gr][-w][ld]', STATE) and find(value, '^%d%d%d%d%dx [ld]%d+;', HAND_OFF) then
      local members, waiting = redis.pcall('ZCARD', queue), redis.pcall('HLEN', data)
      local left = call('PTTL', LOCK)
      if left > 0 and type(waiting) == 'number' and members == 2 * waiting
        and existing == (waiting > 0 and 3 or 1) and (waiting == 0 or call('ZCOUNT', queue,
          TIMES, (seconds - SILENCE_S) .. micros) == 0) then
        local next_look = HEARTBEAT
        if waiting == 0 and left < next_look then next_look = left end
        local shown = sub(value, 1, SHORT_ID) .. sub(value, STATE)
        if sub(form, 3, 3) == '-' then
          return { 'busy', left, left < HEARTBEAT and left or HEARTBEAT, since, shown, left }
        end
        if waiting < tonumber(sub(form, 5)) and call('HSETNX', data, id, id .. 'q-'
          .. sub(ARGV[1], HOLD) .. NO_TOKEN .. since .. ARGV[2]) == 1 then
          -- The queue has two members for each waiter: its position, and its last heartbeat.
          local member = 'p' .. id
          call('ZADD', queue, sub(since, 2), member, since, 't' .. id)
          if waiting == 0 then
            call('PEXPIRE', queue, KEEP)
            call('PEXPIRE', data, KEEP)
          else
            if call('ZRANK', queue, member) ~= waiting then
              -- The clock was set back, so it is not the last: move it to the end.
              local last = call('ZRANGE', queue, waiting, waiting, 'WITHSCORES')[2]
              call('ZADD', queue, last + 1, member)
            end
            if call('PTTL', data) < KEEP_LEAST then
              call('PEXPIRE', queue, KEEP)
              call('PEXPIRE', data, KEEP)
            end
          end
          -- At its release the holder must know that there are waiters.
          if sub(value, WAITS, WAITS) == '-' then call('SETRANGE', LOCK, AT_WAITS, 'w') end
          return { 'queued', waiting, next_look, since, shown, left }
        end
      end
    end
  end
end
