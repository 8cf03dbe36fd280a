-- ARGV: lease id and `g-`, and for how many ms to leave a tombstone.
do
  -- Its first places, which tell who holds it and whether somebody waits.
  local value = redis.pcall('GETRANGE', LOCK, '0', '33')
  if ARGV[2] or type(value) ~= 'string' then
    -- That is for the rules.
  elseif value == ARGV[1] then
    -- A grant that nobody waits for is deleted, and that is all.
    call('DEL', LOCK)
    return 'released'
  elseif sub(value, 1, 33) == sub(ARGV[1], 1, 33) then
    -- An exclusive one is handed to the head of the line, if that wants it alone and hears, where
    -- time has ended nothing and the data holds nothing but the waiters.
    local queue, data = LOCK .. ':1q', LOCK .. ':1d'
    local members, waiting = redis.pcall('ZCARD', queue), redis.pcall('HLEN', data)
    if type(waiting) == 'number' and waiting > 0 and members == 2 * waiting then
      local time = call('TIME')
      local seconds, micros = time[1], time[2]
      if #micros < 6 then micros = sub('00000' .. micros, -6) end
      if call('ZCOUNT', queue, '1000000000000000', (seconds - 4) .. micros) == 0 then
        local head = call('ZRANGE', queue, '0', '0')[1]
        local id, since = sub(head, 2), seconds .. micros
        local entry = call('HGET', data, id)
        if entry and sub(entry, 105, 105) == 'x'
          and sub(entry, 52, 67) ~= '0000000000000000' then
          -- First what takes no memory: a full server then lets the rest pass.
          call('HDEL', data, id)
          local last = redis.pcall('GETSET', COUNTER, since)
          if not last or (#last == 16 and last < since and tonumber(last)) then
            if redis.pcall('PUBLISH', sub(COUNTER, 1, -6) .. 'inbox:' .. sub(entry, 52, 67),
              'l' .. sub(id, 1, 8)) ~= 0 then
              call('ZREM', queue, head, 't' .. id)
              call('SET', LOCK, id .. (waiting > 1 and 'hw' or 'h-') .. sub(entry, 35, 67)
                .. since .. since .. sub(entry, 100), 'PX', sub(entry, 100, 104))
              return 'released'
            end
          elseif type(last) == 'string' then
            call('SET', COUNTER, last)
          end
          -- The rest is for the rules. What was deleted with its last field had its end.
          call('HSET', data, id, entry)
          if waiting == 1 then call('PEXPIRE', data, math.max(call('PTTL', queue), 1)) end
        end
      end
    end
  end
end
