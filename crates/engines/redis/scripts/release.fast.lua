-- KEYS: counter, lock, line, data, and the tombstone of the lease id where one is to be left.
-- ARGV: lease id and `g-`, and for how many ms to leave a tombstone.
do
  local value = redis.pcall('GET', KEYS[2])
  if ARGV[2] or type(value) ~= 'string' then
    -- That is for the rules.
  elseif sub(value, 1, 34) == ARGV[1] then
    -- A grant that nobody waits for is deleted, and that is all.
    call('DEL', KEYS[2])
    return 'released'
  elseif sub(value, 1, 33) == sub(ARGV[1], 1, 33) then
    -- An exclusive one is handed to the head of the line, if that wants it alone and hears, where
    -- time has ended nothing and the data holds nothing but the waiters.
    local members, waiting = redis.pcall('ZCARD', KEYS[3]), redis.pcall('HLEN', KEYS[4])
    if type(waiting) == 'number' and waiting > 0 and members == 2 * waiting then
      local time = call('TIME')
      local seconds, micros = time[1], time[2]
      if #micros < 6 then micros = sub('00000' .. micros, -6) end
      if call('ZCOUNT', KEYS[3], '1000000000000000', (seconds - 4) .. micros) == 0 then
        local head = call('ZRANGE', KEYS[3], '0', '0')[1]
        local id, since = sub(head, 2), seconds .. micros
        local entry = call('HGET', KEYS[4], id)
        if entry and sub(entry, 105, 105) == 'x'
          and sub(entry, 52, 67) ~= '0000000000000000' then
          -- First what takes no memory: a full server then lets the rest pass.
          call('HDEL', KEYS[4], id)
          local last = redis.pcall('GETSET', KEYS[1], since)
          if not last or (#last == 16 and last < since and tonumber(last)) then
            if redis.pcall('PUBLISH', sub(KEYS[1], 1, -6) .. 'inbox:' .. sub(entry, 52, 67),
              'l' .. sub(id, 1, 8)) ~= 0 then
              call('ZREM', KEYS[3], head, 't' .. id)
              call('SET', KEYS[2], id .. (waiting > 1 and 'hw' or 'h-') .. sub(entry, 35, 67)
                .. since .. since .. sub(entry, 100), 'PX', sub(entry, 100, 104))
              return 'released'
            end
          elseif type(last) == 'string' then
            call('SET', KEYS[1], last)
          end
          -- The rest is for the rules. What was deleted with its last field had its end.
          call('HSET', KEYS[4], id, entry)
          if waiting == 1 then call('PEXPIRE', KEYS[4], math.max(call('PTTL', KEYS[3]), 1)) end
        end
      end
    end
  end
end
