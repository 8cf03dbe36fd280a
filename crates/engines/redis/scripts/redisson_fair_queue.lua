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

local function milliseconds()
  return math.floor(microseconds() / 1000)
end

local function queue_of_tag(tag, beats)
  return { list = 'redisson_lock_queue:' .. tag, scores = 'redisson_lock_timeout:' .. tag, beats = beats }
end

-- Returns what is in place of a queue; nil if nothing is wrong.
local function not_a_queue(queue)
  for part, wanted in pairs({ list = 'list', scores = 'zset', beats = 'zset' }) do
    local kind = call('TYPE', queue[part]).ok
    if kind ~= wanted and kind ~= 'none' then return 'a ' .. kind .. ' in place of the queue of a fair lock' end
  end
end

local function come_sooner(queue, owners)
  for _, owner in ipairs(owners) do
    call('ZADD', queue.scores, 'XX', 'INCR', format('%.0f', -WAIT), owner)
  end
end

local function forget(queue, owner)
  call('ZREM', queue.scores, owner)
  call('ZREM', queue.beats, owner)
end

-- Removes a waiter that leaves without the lock. Returns whether it was in the queue.
local function withdraw(queue, owner)
  local place = call('LPOS', queue.list, owner)
  if place then
    come_sooner(queue, call('LRANGE', queue.list, place + 1, -1))
    call('LREM', queue.list, 1, owner)
  end
  forget(queue, owner)
  return place ~= false
end

-- Removes the head, which gets the lock.
local function take_head(queue, owner)
  call('LPOP', queue.list)
  forget(queue, owner)
  come_sooner(queue, call('ZRANGE', queue.scores, 0, -1))
end

-- Removes the dead. Returns the head, or nil, and whether anybody was removed.
local function settle(queue, now)
  local removed = false
  local silent = call('ZRANGEBYSCORE', queue.beats, '-inf', format('%.0f', now - SILENCE), 'LIMIT', 0,
    MOST_REMOVED)
  for _, owner in ipairs(silent) do removed = withdraw(queue, owner) or removed end
  while true do
    local head = call('LINDEX', queue.list, 0)
    local score = head and call('ZSCORE', queue.scores, head)
    -- Redisson never removes one without a score.
    if not score or tonumber(score) > now then return head or nil, removed end
    call('LPOP', queue.list)
    forget(queue, head)
    removed = true
  end
end

local function wake(head, verbs, tag)
  if head then publish(verbs, 'redisson_lock__channel:' .. tag .. ':' .. head, '0') end
end

-- Adds a waiter behind the last.
local function join(queue, owner, lock_left, now)
  local last = call('LINDEX', queue.list, -1)
  local score = last and tonumber(call('ZSCORE', queue.scores, last) or now) or now + (lock_left or 0)
  call('ZADD', queue.scores, format('%.0f', score + WAIT), owner)
  call('RPUSH', queue.list, owner)
end

-- Notes a heartbeat. Redisson must not take this waiter for dead, however long the lock is held.
local function note_beat(queue, owner, place, now)
  local before = place > 0 and call('LINDEX', queue.list, place - 1)
  local score = before and tonumber(call('ZSCORE', queue.scores, before) or now) or now
  local least = math.max(score, now) + WAIT
  if tonumber(call('ZSCORE', queue.scores, owner) or 0) < least then
    call('ZADD', queue.scores, format('%.0f', least), owner)
  end
  call('ZADD', queue.beats, format('%.0f', now), owner)
  -- What is known of a dead waiter lasts for as long as its score.
  extend(queue.beats, least - now + MARGIN)
end

-- Returns how many wait in front; the head of a free lock does not wait any more.
local function ahead(place, is_held)
  return is_held and place or math.max(place - 1, 0)
end

-- Wakes the head after the lock was released. A server without the right to read the queue wakes nobody.
local function wake_next(tag, beats, verbs)
  local queue = queue_of_tag(tag, beats)
  if type(redis.pcall('LINDEX', queue.list, 0)) ~= 'string' then return end
  if not_a_queue(queue) then return end
  wake(settle(queue, milliseconds()), verbs, tag)
end

-- Gives up the place of a waiter: returns 'withdrawn'; 'released' if the lock was free for it; nil if it did
-- not wait.
local function give_up_place(lock, owner, tag, beats, verbs)
  local queue = queue_of_tag(tag, beats)
  if type(redis.pcall('ZSCORE', queue.scores, owner)) ~= 'string' or not_a_queue(queue) then return nil end
  local is_free = call('EXISTS', lock) == 0
  local was_next = is_free and call('LINDEX', queue.list, 0) == owner
  withdraw(queue, owner)
  local head = settle(queue, milliseconds())
  if is_free then wake(head, verbs, tag) end
  return was_next and 'released' or 'withdrawn'
end
