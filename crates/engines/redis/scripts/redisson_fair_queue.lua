-- The queue of a fair lock, as Redisson's RFairLock keeps it: a list of owners, whose head is the next, and a
-- sorted set of the same owners by the time, in ms, at which Redisson takes them for dead.
--
-- Who joins is taken for dead WAIT ms after the one in front of it, or after the end of the lease. Who leaves
-- the queue, with the lock or without, brings that time nearer by WAIT for all behind it. Each client of
-- Redisson computes with its own clock, these scripts with the server's.
--
-- A sorted set of ours has the time of each heartbeat. Of our waiters, one that sent none for SILENCE ms is
-- removed; Redisson does not know that set, and removes it by its score.
local MOST_REMOVED = 100

-- Returns the queue of these keys. All is in one function, so that a call that needs no queue does not make
-- the others.
local function fair_queue(list, scores, beats)
  local queue = {}
  local now = math.floor(microseconds() / 1000)

  local function come_sooner(owners)
    for _, owner in ipairs(owners) do
      call('ZADD', scores, 'XX', 'INCR', format('%.0f', -WAIT), owner)
    end
  end

  local function forget(owner)
    call('ZREM', scores, owner)
    call('ZREM', beats, owner)
  end

  -- Returns what is in place of the queue; nil if nothing is wrong.
  function queue.other()
    for key, wanted in pairs({ [list] = 'list', [scores] = 'zset', [beats] = 'zset' }) do
      local kind = call('TYPE', key).ok
      if kind ~= wanted and kind ~= 'none' then
        return 'a ' .. kind .. ' in place of the queue of a fair lock'
      end
    end
  end

  -- Returns how many owners are in front of this one; nil if it does not wait.
  function queue.place(owner)
    return call('LPOS', list, owner) or nil
  end

  function queue.length()
    return call('LLEN', list)
  end

  -- Removes a waiter that leaves without the lock. Returns whether it was in the queue.
  function queue.withdraw(owner)
    local place = queue.place(owner)
    if place then
      come_sooner(call('LRANGE', list, place + 1, -1))
      call('LREM', list, 1, owner)
    end
    forget(owner)
    return place ~= nil
  end

  -- Removes the head, which gets the lock.
  function queue.take_head(owner)
    call('LPOP', list)
    forget(owner)
    come_sooner(call('ZRANGE', scores, 0, -1))
  end

  -- Removes the dead. Returns the head, or nil, and whether anybody was removed.
  function queue.settle()
    local removed = false
    local silent = call('ZRANGEBYSCORE', beats, '-inf', format('%.0f', now - SILENCE), 'LIMIT', 0, MOST_REMOVED)
    for _, owner in ipairs(silent) do removed = queue.withdraw(owner) or removed end
    while true do
      local head = call('LINDEX', list, 0)
      local score = head and call('ZSCORE', scores, head)
      -- Redisson never removes one without a score.
      if not score or tonumber(score) > now then return head or nil, removed end
      call('LPOP', list)
      forget(head)
      removed = true
    end
  end

  -- Adds a waiter behind the last. `left`: how many ms the lock is held yet, if it is and that is known.
  function queue.join(owner, left)
    local last = call('LINDEX', list, -1)
    local score = last and tonumber(call('ZSCORE', scores, last) or now) or now + (left or 0)
    call('ZADD', scores, format('%.0f', score + WAIT), owner)
    call('RPUSH', list, owner)
  end

  -- Notes a heartbeat. Redisson must not take this waiter for dead, however long the lock is held.
  function queue.beat(owner, place)
    local before = place > 0 and call('LINDEX', list, place - 1)
    local score = before and tonumber(call('ZSCORE', scores, before) or now) or now
    local least = math.max(score, now) + WAIT
    if tonumber(call('ZSCORE', scores, owner) or 0) < least then
      call('ZADD', scores, format('%.0f', least), owner)
    end
    call('ZADD', beats, format('%.0f', now), owner)
    -- What is known of a dead waiter lasts for as long as its score.
    extend(beats, least - now + MARGIN)
  end

  return queue
end

local function wake_waiter(owner, verbs, tag)
  if owner then publish(verbs, 'redisson_lock__channel:' .. tag .. ':' .. owner, '0') end
end

-- Returns how many wait in front; the head of a free lock does not wait any more.
local function ahead(place, is_held)
  return is_held and place or math.max(place - 1, 0)
end

-- Wakes the next after a lock was released.
local function wake_next(keys, verbs, tag)
  if call('EXISTS', keys.list) == 0 then return end
  local queue = fair_queue(keys.list, keys.scores, keys.beats)
  if not queue.other() then wake_waiter((queue.settle()), verbs, tag) end
end

-- Gives up the place of a waiter: returns 'withdrawn'; 'released' if the lock was free for it; nil if it did
-- not wait.
local function give_up_place(keys, owner, verbs, tag)
  if call('EXISTS', keys.list) == 0 then return nil end
  local queue = fair_queue(keys.list, keys.scores, keys.beats)
  if queue.other() then return nil end
  local is_free = call('EXISTS', keys.lock) == 0
  local was_next = is_free and queue.place(owner) == 0
  if not queue.withdraw(owner) then return nil end
  local head = queue.settle()
  if is_free then wake_waiter(head, verbs, tag) end
  return was_next and 'released' or 'withdrawn'
end
