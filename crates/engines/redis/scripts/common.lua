-- The rules that all verbs share. A state `s` is what is known of one name:
--   lock, line, data   its keys
--   foreign            what was found that is not ours; then nothing else is set
--   value              the record under the lock key, when that is a string
--   set                whether the lock key is a sorted set of holders
--   used, of           shared holders or permits in use, and the semaphore's total
--   waiting            how many queue
--   freeze             until when, token, reason: as kept in the field `f`
local NOBODY, NONE, NEVER = string.rep('0', 32), string.rep('0', 16), '00000'
-- How many dead entries one command removes, and how many it hands the name to, at most.
local DEAD, BATCH = 64, 64
local SILENCE, HEARTBEAT, MEMORY = 4000, 1000, 30000
-- The longest lease there is.
local LONGEST = 86400000
-- How much longer than its contents a key is kept, so that a command can still see who missed; and
-- the lock key of a hand-over, which a record tells in five digits.
local MARGIN, LATE = 5000, 9000
-- In the line, places are scores below this and stand for order; above, µs of last hearing.
local TIMES = '1000000000000000'
local INBOX = sub(COUNTER, 1, -6) .. 'inbox:'

local since = stamp(call('TIME'))
local us = tonumber(since)
local now = math.floor(us / 1000)

local function is_record(text)
  return #text > 104 and find(sub(text, 1, 32), '^[0-9a-f]+$')
    and find(sub(text, 33, 35), '^[ghrfq][-w][ld]$')
    and find(sub(text, 36, 67), '^[0-9a-f]+$') and find(sub(text, 68, 104), '^%d+$')
end

local function state_of(record) return sub(record, 33, 33) end

-- Returns a record's mode, how much it takes of a set, and of how many permits.
local function mode_of(record)
  local mode = sub(record, 105, 105)
  if mode ~= 'p' then return mode, 1, nil end
  local _, _, count, of = find(record, '^(%d+)/(%d+)', 106)
  return mode, tonumber(count), tonumber(of)
end

local function terms_of(record) return sub(record, 105, (find(record, ';', 105, true))) end

-- Whoever is there already needs no new memory. A server whose memory is full refuses a script's
-- first write if that might take some, and no later one: so one goes first that never takes any.
local function go_on_when_full(data) redis.pcall('HDEL', data, '') end

-- Keeps line and data for at least so many ms from now.
local function keep(s, ms)
  local left = call('PTTL', s.data)
  if left < ms then
    call('PEXPIRE', s.data, ms + 2 * MARGIN)
    call('PEXPIRE', s.line, ms + 2 * MARGIN)
  end
end

local function keep_set(s, ms)
  if call('PTTL', s.lock) < ms + MARGIN then call('PEXPIRE', s.lock, ms + MARGIN) end
  keep(s, ms + MARGIN)
end

-- Forgets holders whose set is gone: somebody deleted it, or nobody came for long.
local function forget_holders(s)
  local fields = call('HGETALL', s.data)
  for at = 1, #fields, 2 do
    if #fields[at] == 32 and state_of(fields[at + 1]) ~= 'q' then
      call('HDEL', s.data, fields[at])
    end
  end
  call('HDEL', s.data, 'u')
  s.used = 0
end

-- Names what stands under a key and is not ours.
local function found(key)
  local kind = call('TYPE', key).ok
  if kind == 'string' then return 'a string of ' .. #call('GET', key) .. ' bytes' end
  if kind == 'zset' then return 'a sorted set' end
  return 'a ' .. kind
end

local function is_count(text) return not text or find(text, '^%d+$') end

-- Tells whether a key was of another type than asked for; every other error is raised.
local function is_mistyped(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
  return true
end

-- Tells what stands in the place of line or data and cannot be ours.
local function foreign_beside(s, kept, members)
  if is_mistyped(kept) then return found(s.data) .. ' in the place of its data' end
  if is_mistyped(members) then return found(s.line) .. ' in the place of its line' end
  if members % 2 ~= 0 then return 'a line with members that are not pairs' end
  local freeze = kept[1]
  if freeze and not find(sub(freeze, 1, 29), '^' .. string.rep('%d', 29) .. '$')
    or not is_count(kept[2]) or not is_count(kept[3]) then
    return 'data with fields of another form'
  end
end

-- Looks how a name stands. A set of ours is one of which the data tells how many it holds.
local function load(lock)
  local s = { lock = lock, line = lock .. ':1q', data = lock .. ':1d', used = 0, waiting = 0,
    handed = 0 }
  local kept, members = redis.pcall('HMGET', s.data, 'f', 'n', 'u'), redis.pcall('ZCARD', s.line)
  s.foreign = foreign_beside(s, kept, members)
  if s.foreign then return s end
  s.freeze, s.of, s.used = kept[1], tonumber(kept[2]), tonumber(kept[3]) or 0
  if s.used > 0 and call('TYPE', s.lock).ok == 'zset' then
    s.set = true
  else
    local value = redis.pcall('GET', s.lock)
    if value and (type(value) ~= 'string' or not is_record(value)) then
      s.foreign = found(s.lock)
      return s
    end
    s.value = value or nil
  end
  s.waiting = members / 2
  if not s.set and s.used > 0 then forget_holders(s) end
  return s
end

local function leave_line(s, ids)
  local members = {}
  for at, id in ipairs(ids) do
    members[2 * at - 1], members[2 * at] = 'p' .. id, 't' .. id
  end
  call('ZREM', s.line, unpack(members))
  call('HDEL', s.data, unpack(ids))
  s.waiting = s.waiting - #ids
end

-- Returns the ids of those in the line that were last heard at `till`, in µs, or before.
local function silent(s, till)
  local ids = call('ZRANGEBYSCORE', s.line, TIMES, till, 'LIMIT', 0, DEAD)
  for at, member in ipairs(ids) do ids[at] = sub(member, 2) end
  return ids
end

-- A client was handed the name and did not come: what else it has queued and not renewed since
-- would only cost the others a claim window each.
local function missed(s, record)
  if s.waiting == 0 then return end
  local ids = silent(s, sub(record, 84, 99))
  if #ids == 0 then return end
  local gone = {}
  for at, entry in ipairs(call('HMGET', s.data, unpack(ids))) do
    if entry and sub(entry, 36, 51) == sub(record, 36, 51) then gone[#gone + 1] = ids[at] end
  end
  if #gone > 0 then leave_line(s, gone) end
end

local function leave_set(s, id, record)
  local _, count = mode_of(record)
  call('ZREM', s.lock, id)
  call('HDEL', s.data, id)
  s.used = s.used - count
  if s.used > 0 then
    call('HSET', s.data, 'u', s.used)
  else
    call('HDEL', s.data, 'u')
    s.set, s.used = nil, 0
  end
end

local function leave_lock(s)
  call('DEL', s.lock)
  s.value = nil
end

-- Somebody deleted a holder's record, and with it how much it takes: once its time is over, what
-- is in use is counted anew.
local function recount(s)
  local used, ids = 0, call('ZRANGE', s.lock, 0, -1)
  for _, id in ipairs(ids) do
    local record = call('HGET', s.data, id)
    if not record then return end
    used = used + select(2, mode_of(record))
  end
  s.used = used
  if used > 0 then
    call('HSET', s.data, 'u', used)
  else
    call('HDEL', s.data, 'u')
    s.set = nil
  end
end

local function expire_holders(s)
  if s.value then
    if state_of(s.value) == 'h' and call('PTTL', s.lock) <= LATE then
      local record = s.value
      leave_lock(s)
      missed(s, record)
    end
  elseif s.set then
    local ids = call('ZRANGEBYSCORE', s.lock, '-inf', now, 'LIMIT', 0, DEAD)
    if #ids == 0 then return end
    local uncounted = false
    for at, record in ipairs(call('HMGET', s.data, unpack(ids))) do
      if record then
        leave_set(s, ids[at], record)
        if state_of(record) == 'h' then missed(s, record) end
      else
        call('ZREM', s.lock, ids[at])
        uncounted = true
      end
    end
    if uncounted then recount(s) end
  end
end

-- The ids that ask in this very call: whoever asks is there, whatever its inbox says.
local asking = {}

-- Tells the process behind a record; returns false when it hears nothing any more.
local function tell(record, hint)
  local inbox = sub(record, 52, 67)
  if inbox == NONE then return true end
  -- Who may not publish still has the heartbeat.
  local heard = redis.pcall('PUBLISH', INBOX .. inbox, hint .. sub(record, 1, 8))
  return heard ~= 0 or asking[sub(record, 1, 32)]
end

-- Tells whether the holders leave room for one more.
local function admits(s, mode, count, of)
  if s.value then return false end
  if mode == 'x' then return not s.set end
  if mode == 's' then return s.of == nil end
  return s.used + count <= of
end

local function waits(s)
  if s.waiting > 0 or s.freeze then return 'w' end
  return '-'
end

-- Writes a holder in, for so many ms.
local function hold(s, record, ms)
  local mode, count, of = mode_of(record)
  if mode == 'x' then
    s.value = record
    local extra = 0
    if state_of(record) == 'h' then extra = LATE end
    call('SET', s.lock, record, 'PX', ms + extra)
    return
  end
  local id = sub(record, 1, 32)
  s.set, s.used, s.of = true, s.used + count, of
  call('ZADD', s.lock, now + ms + 1, id)
  call('HSET', s.data, id, record, 'u', s.used)
  if of then call('HSET', s.data, 'n', of) end
  keep_set(s, ms)
end

local function freeze_record(s)
  return NOBODY .. 'fwd' .. NOBODY .. sub(s.freeze, 14, 29) .. since .. NEVER .. 'x;'
    .. sub(s.freeze, 30)
end

local function take_for_freeze(s)
  if sub(s.freeze, 14, 29) == NONE then
    s.freeze = sub(s.freeze, 1, 13) .. draw(since) .. sub(s.freeze, 30)
    call('HSET', s.data, 'f', s.freeze)
  end
  s.value = freeze_record(s)
  call('SET', s.lock, s.value, 'PX', tonumber(sub(s.freeze, 1, 13)) - now)
end

local function hand_to(s, id, entry)
  -- First what may fail: then nobody has lost a place.
  local token = draw(since)
  s.handed = s.handed + 1
  leave_line(s, { id })
  hold(s, id .. 'h' .. waits(s) .. sub(entry, 35, 67) .. token .. since .. sub(entry, 100),
    tonumber(sub(entry, 100, 104)) - LATE)
end

-- Hands a free name to the head of the line and whoever fits beside it. Whose process hears
-- nothing is passed over and keeps its place; if none hears, the head has it all the same.
local function serve_line(s)
  local deaf, first = 0, nil
  local served = s.handed
  while s.waiting > deaf and deaf < DEAD and s.handed < BATCH do
    local id = sub(call('ZRANGE', s.line, deaf, deaf)[1], 2)
    local entry = call('HGET', s.data, id)
    if not entry then
      leave_line(s, { id })
    else
      local mode, count, of = mode_of(entry)
      if not admits(s, mode, count, of) then break end
      if tell(entry, 'l') then
        hand_to(s, id, entry)
      else
        first = first or { id, entry }
        deaf = deaf + 1
      end
    end
  end
  if first and s.handed == served then hand_to(s, first[1], first[2]) end
end

-- Gives a free name to the freeze, or to the line.
local function hand_over(s)
  if not s.freeze and not s.value and s.waiting > 0 then serve_line(s) end
  if s.freeze and not s.value and not s.set then take_for_freeze(s) end
  if s.of and not s.set and s.waiting == 0 then
    call('HDEL', s.data, 'n')
    s.of = nil
  end
end

-- Removes what is over, and hands a free name on. Every command does this first.
local function settle(s)
  if s.freeze and tonumber(sub(s.freeze, 1, 13)) <= now then
    call('HDEL', s.data, 'f')
    s.freeze = nil
  end
  if s.value and not s.freeze and state_of(s.value) == 'f' then leave_lock(s) end
  expire_holders(s)
  if s.waiting > 0 then
    local ids = silent(s, us - SILENCE * 1000)
    if #ids > 0 then leave_line(s, ids) end
  end
  hand_over(s)
end

-- Returns the record that stands under a lease id, as holder or in the line.
local function find_record(s, id)
  if s.value and sub(s.value, 1, 32) == id then return s.value end
  if not s.set and s.waiting == 0 then return nil end
  local record = call('HGET', s.data, id)
  if not record or #record < 105 then return nil end
  if state_of(record) == 'q' then return record end
  if not s.set then return nil end
  local ended = call('ZSCORE', s.lock, id)
  -- Somebody took it out of the set: what it had is free.
  if not ended then
    leave_set(s, id, record)
    hand_over(s)
    return nil
  end
  -- Of very many dead holders some are still there; what time has ended never comes back.
  if tonumber(ended) <= now then return nil end
  return record
end

-- Returns how many ms a holder still has.
local function left_of(s, record)
  local left
  if s.value then
    left = call('PTTL', s.lock)
    -- Somebody took its end away: it gets one that no lease outlives.
    if left < 0 then
      left = state_of(record) == 'f' and tonumber(sub(s.freeze, 1, 13)) - now or LONGEST
      call('PEXPIRE', s.lock, left)
    end
    if state_of(record) == 'h' then left = left - LATE end
  else
    left = call('ZSCORE', s.lock, sub(record, 1, 32)) - now - 1
  end
  return math.max(left, 0)
end

-- Returns the revoked grants that are remembered: lease id, until when, the operator's words. They
-- are kept in one field, one after the other, the length before the words.
local function marks_of(s)
  local text, marks, at = call('HGET', s.data, 'r') or '', {}, 1
  while at < #text do
    local behind = at + 49 + tonumber(sub(text, at + 45, at + 48))
    local mark = { id = sub(text, at, at + 31), till = tonumber(sub(text, at + 32, at + 44)),
      reason = sub(text, at + 49, behind - 1) }
    if mark.till > now then marks[#marks + 1] = mark end
    at = behind
  end
  return marks
end

-- Returns the words with which the grant of this id was revoked, as long as that is remembered.
local function revoked(s, id)
  for _, mark in ipairs(marks_of(s)) do
    if mark.id == id then return mark.reason end
  end
end

-- Shows a record without what only its holder may know.
local function show(record) return sub(record, 1, 8) .. sub(record, 33) end

-- Returns who is in the way, and how many ms it still has.
local function blocker(s)
  if s.value then return show(s.value), left_of(s, s.value) end
  if not s.set then return false, 0 end
  local record = call('HGET', s.data, call('ZRANGE', s.lock, 0, 0)[1])
  if not record then return false, 0 end
  return show(record), left_of(s, record)
end

-- Returns after how many ms something ends by time, at the earliest and at the latest.
local function ends(s)
  local first, last = HEARTBEAT, 0
  if s.value then
    first = left_of(s, s.value)
    last = first
  elseif s.set then
    first = math.max(call('ZRANGE', s.lock, 0, 0, 'WITHSCORES')[2] - now, 0)
    last = math.max(call('ZRANGE', s.lock, -1, -1, 'WITHSCORES')[2] - now, 0)
  end
  if s.freeze then
    local left = tonumber(sub(s.freeze, 1, 13)) - now
    first, last = math.min(first, left), math.max(last, left)
  end
  return first, last
end

-- Returns when a waiter at this position looks again: with the heartbeat, and at the head also
-- when the first grant ends.
local function next_look(s, position)
  if position > 0 then return HEARTBEAT end
  return math.min(HEARTBEAT, (ends(s)))
end

-- Notes that a waiter was heard; returns how many stand before it, or nil when its place is gone:
-- somebody deleted the line.
local function hear(s, id)
  local position = call('ZRANK', s.line, 'p' .. id)
  if not position then
    call('HDEL', s.data, id)
    return nil
  end
  call('ZADD', s.line, us, 't' .. id)
  keep(s, SILENCE + MARGIN)
  return position
end

-- A waiter's inbox changes with its subscription: a hand-off skips an inbox without a subscriber, and
-- a waiter without an inbox is served in its turn.
local function keep_inbox(s, id, record, inbox)
  if sub(record, 52, 67) ~= inbox then
    call('HSET', s.data, id, sub(record, 1, 51) .. inbox .. sub(record, 68))
  end
end

-- Set when the server refuses every write, which it does before the first one only: then no name has
-- changed, and the reply of the script is this error.
local refused

-- Takes a step for one of several names: any other error concerns that name alone.
local function attempt(step, at)
  local fine, reply = pcall(step, at)
  if fine then return reply end
  local text = tostring(reply)
  local code = find(text, 'NOREPLICAS', 1, true) and 'NOREPLICAS'
    or find(text, 'READONLY', 1, true) and 'READONLY'
  if code then refused = { err = code .. ' the server takes no writes.' } end
  return { 'failed', text }
end
