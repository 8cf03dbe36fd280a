-- ARGV: lease id and `g-`, and for how many ms to leave a tombstone.
do
  -- Its first positions: who holds it, and whether there are waiters.
  local value = redis.pcall('GETRANGE', LOCK, '0', AT_WAITS)
  if ARGV[2] or type(value) ~= 'string' then
    -- The rules handle this.
  elseif value == ARGV[1] then
    -- A grant without waiters is deleted.
    call('DEL', LOCK)
    return 'released'
  elseif sub(value, 1, STATE) == sub(ARGV[1], 1, STATE) then
    -- An exclusive grant is handed to the first waiter, if that wants it exclusively and its inbox has
    -- a subscriber, if nothing has expired, and if the data contains only waiters.
    local queue, data = LOCK .. QUEUE, LOCK .. DATA
    local members, waiting = redis.pcall('ZCARD', queue), redis.pcall('HLEN', data)
    if type(waiting) == 'number' and waiting > 0 and members == 2 * waiting then
      local time = call('TIME')
      local seconds, micros = time[1], time[2]
      if #seconds + #micros < 16 then
        seconds, micros = string.format('%010.0f', seconds), string.format('%06.0f', micros)
      end
      if call('ZCOUNT', queue, TIMES, (seconds - SILENCE_S) .. micros) == 0 then
        local first = call('ZRANGE', queue, '0', '0')[1]
        local id, since = sub(first, 2), seconds .. micros
        local entry = call('HGET', data, id)
        if entry and sub(entry, TERMS, TERMS) == 'x' and sub(entry, INBOX, INBOX_END) ~= NO_INBOX then
          -- First a command that needs no memory: a full server then accepts the others.
          call('HDEL', data, id)
          local last
          if CLUSTER then last = redis.pcall('SET', COUNTER, since, 'PX', COUNTER_LIFE, 'GET')
          else last = redis.pcall('GETSET', COUNTER, since) end
          if not last or (#last == 16 and last < since and tonumber(last)) then
            local prefix = CLUSTER and string.match(COUNTER, '^(.-)fence:{') or sub(COUNTER, 1, -6)
            local receivers = redis.pcall('PUBLISH', prefix .. 'inbox:' .. sub(entry, INBOX, INBOX_END),
              'g' .. sub(id, 1, GRANT_ID) .. since)
            -- In a cluster, the node counts only its own subscribers.
            if CLUSTER or receivers ~= 0 then
              call('ZREM', queue, first, 't' .. id)
              call('SET', LOCK, id .. (waiting > 1 and 'gw' or 'g-') .. sub(entry, HOLD, INBOX_END)
                .. since .. since .. sub(entry, HAND_OFF), 'PX', tonumber(sub(entry, HAND_OFF, HAND_OFF_END)))
              return 'released'
            end
          elseif type(last) == 'string' then
            call('SET', COUNTER, last)
          end
          -- The rules handle the rest. A hash that was deleted with its last field had an expiry.
          call('HSET', data, id, entry)
          if waiting == 1 then call('PEXPIRE', data, math.max(call('PTTL', queue), 1)) end
        end
      end
    end
  end
end
