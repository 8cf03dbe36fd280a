-- The rules that all verbs share. A state `s` is what is known of one name:
--   lock, queue, data  its keys
--   foreign            describes data that is not ours; then no other field is set
--   value              the record under the lock key, if that is a string
--   set                true if the lock key is a sorted set of holders
--   used, total        shared holders or permits in use, and the semaphore's number of permits
--   waiting            the length of the queue
--   freeze             as stored in the data's field `f`: see FREEZE_TOKEN
--   handed             how many grants this command has handed off
local NOBODY, NO_LEASE = string.rep('0', 32), '00000'
-- A freeze is stored as: 1-13 its end, in ms of Unix time   14-29 token   30- the operator's reason.
local FREEZE_END, FREEZE_TOKEN, FREEZE_TOKEN_END, FREEZE_REASON = 13, 14, 29, 30
-- How many expired entries one command removes at most.
local MAX_EXPIRED = 64
local INBOX_PREFIX = (CLUSTER and string.match(COUNTER, '^(.-)fence:{') or sub(COUNTER, 1, -6))
  .. 'inbox:'

local since = stamp(call('TIME'))
local us = tonumber(since)
local now = math.floor(us / 1000)

local function id_of(record) return sub(record, 1, ID_END) end
local function state_of(record) return sub(record, STATE, STATE) end
local function client_of(record) return sub(record, CLIENT, CLIENT_END) end
local function inbox_of(record) return sub(record, INBOX, INBOX_END) end
local function token_of(record) return sub(record, TOKEN, TOKEN_END) end
local function since_of(record) return sub(record, SINCE, SINCE_END) end
local function terms_of(record) return sub(record, TERMS, (find(record, ';', TERMS, true))) end

-- Returns a record's mode, how many permits it takes, and of how many.
local function mode_of(record)
  local mode = sub(record, TERMS, TERMS)
  if mode ~= 'p' then return mode, 1, nil end
  local _, _, count, total = find(record, '^(%d+)/(%d+)', TERMS + 1)
  return mode, tonumber(count), tonumber(total)
end

-- Returns a record without the secret part of its lease id.
local function redact(record) return sub(record, 1, SHORT_ID) .. sub(record, STATE) end

local function freeze_end(s) return tonumber(sub(s.freeze, 1, FREEZE_END)) end
local function freeze_token(s) return sub(s.freeze, FREEZE_TOKEN, FREEZE_TOKEN_END) end

local function is_record(text)
  return #text >= TERMS and find(id_of(text), '^[0-9a-f]+$')
    and find(sub(text, STATE, HOLD), '^[grfq][-w][ld]$')
    and find(sub(text, CLIENT, INBOX_END), '^[0-9a-f]+$')
    and find(sub(text, TOKEN, HAND_OFF_END), '^%d+$')
end

-- Requests of existing holders need no new memory. A full server refuses the first write of a script
-- only if that may need memory, and no later one. So this write, which never does, goes first.
local function write_without_memory(data) redis.pcall('HDEL', data, '') end

-- Makes queue and data last for at least this many ms.
local function extend(s, ms)
  local left = call('PTTL', s.data)
  if left < ms then
    call('PEXPIRE', s.data, ms + 2 * MARGIN)
    call('PEXPIRE', s.queue, ms + 2 * MARGIN)
  end
end

local function extend_set(s, ms)
  if call('PTTL', s.lock) < ms + MARGIN then call('PEXPIRE', s.lock, ms + MARGIN) end
  extend(s, ms + MARGIN)
end

-- Removes holders whose set no longer exists: it was deleted, or has expired.
local function forget_holders(s)
  local fields = call('HGETALL', s.data)
  for at = 1, #fields, 2 do
    if #fields[at] == ID_END and state_of(fields[at + 1]) ~= 'q' then
      call('HDEL', s.data, fields[at])
    end
  end
  call('HDEL', s.data, 'u')
  s.used = 0
end

-- Describes the value of a key that is not ours.
local function describe(key)
  local kind = call('TYPE', key).ok
  if kind == 'string' then return 'a string of ' .. #call('GET', key) .. ' bytes' end
  if kind == 'zset' then return 'a sorted set' end
  return 'a ' .. kind
end

local function is_count(text) return not text or find(text, '^%d+$') end

-- Returns whether a command failed because of the key's type; raises every other error.
local function is_mistyped(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
  return true
end

-- Describes a value in place of queue or data that is not ours.
local function foreign_beside(s, fields, members)
  if is_mistyped(fields) then return describe(s.data) .. ' in place of its data' end
  if is_mistyped(members) then return describe(s.queue) .. ' in place of its queue' end
  if members % 2 ~= 0 then return 'a queue with an odd number of members' end
  local freeze = fields[1]
  if freeze and not find(sub(freeze, 1, FREEZE_TOKEN_END), '^' .. string.rep('%d', FREEZE_TOKEN_END) .. '$')
    or not is_count(fields[2]) or not is_count(fields[3]) then
    return 'data with invalid fields'
  end
end

-- Reads the state of a name. A sorted set is ours only if the data says how many it holds.
local function load(lock)
  local s = { lock = lock, queue = lock .. QUEUE, data = lock .. DATA, used = 0, waiting = 0,
    handed = 0 }
  local fields, members = redis.pcall('HMGET', s.data, 'f', 'n', 'u'), redis.pcall('ZCARD', s.queue)
  s.foreign = foreign_beside(s, fields, members)
  if s.foreign then return s end
  s.freeze, s.total, s.used = fields[1], tonumber(fields[2]), tonumber(fields[3]) or 0
  if s.used > 0 and call('TYPE', s.lock).ok == 'zset' then
    s.set = true
  else
    local value = redis.pcall('GET', s.lock)
    if value and (type(value) ~= 'string' or not is_record(value)) then
      s.foreign = describe(s.lock)
      return s
    end
    s.value = value or nil
  end
  s.waiting = members / 2
  if not s.set and s.used > 0 then forget_holders(s) end
  return s
end

local function leave_queue(s, ids)
  local members = {}
  for at, id in ipairs(ids) do
    members[2 * at - 1], members[2 * at] = 'p' .. id, 't' .. id
  end
  call('ZREM', s.queue, unpack(members))
  call('HDEL', s.data, unpack(ids))
  s.waiting = s.waiting - #ids
end

-- Returns the ids of waiters whose last heartbeat was at `till`, in microseconds, or before.
local function silent(s, till)
  local ids = call('ZRANGEBYSCORE', s.queue, TIMES, till, 'LIMIT', 0, MAX_EXPIRED)
  for at, member in ipairs(ids) do ids[at] = sub(member, 2) end
  return ids
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

-- Counts what is in use again, after the expiry of a holder whose record somebody had deleted, and with
-- it the number of its permits.
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
  if not s.set then return end
  local ids = call('ZRANGEBYSCORE', s.lock, '-inf', now, 'LIMIT', 0, MAX_EXPIRED)
  if #ids == 0 then return end
  local uncounted = false
  for at, record in ipairs(call('HMGET', s.data, unpack(ids))) do
    if record then
      leave_set(s, ids[at], record)
    else
      call('ZREM', s.lock, ids[at])
      uncounted = true
    end
  end
  if uncounted then recount(s) end
end

-- The lease ids of the requests in this call: their clients are alive, whatever their inbox says.
local callers = {}

-- Publishes a message to the client of a record; returns false if its inbox has no subscriber.
local function notify(record, message)
  local inbox = inbox_of(record)
  if inbox == NO_INBOX then return true end
  -- Without the right to publish, clients rely on their heartbeats.
  local receivers = redis.pcall('PUBLISH', INBOX_PREFIX .. inbox, message)
  -- In a cluster, the node counts only its own subscribers.
  return CLUSTER or receivers ~= 0 or callers[id_of(record)]
end

-- Returns whether the holders leave room for one more.
local function admits(s, mode, count, total)
  if s.value then return false end
  if mode == 'x' then return not s.set end
  if mode == 's' then return s.total == nil end
  return s.used + count <= total
end

local function waits_flag(s)
  if s.waiting > 0 or s.freeze then return 'w' end
  return '-'
end

-- Makes the record a holder for this many ms.
local function hold(s, record, ms)
  local mode, count, total = mode_of(record)
  if mode == 'x' then
    s.value = record
    call('SET', s.lock, record, 'PX', ms)
    return
  end
  local id = id_of(record)
  s.set, s.used, s.total = true, s.used + count, total
  call('ZADD', s.lock, now + ms + 1, id)
  call('HSET', s.data, id, record, 'u', s.used)
  if total then call('HSET', s.data, 'n', total) end
  extend_set(s, ms)
end

local function freeze_record(s)
  return NOBODY .. 'fwd' .. NOBODY .. freeze_token(s) .. since .. NO_LEASE .. 'x;'
    .. sub(s.freeze, FREEZE_REASON)
end

local function start_freeze(s)
  if freeze_token(s) == NO_TOKEN then
    s.freeze = sub(s.freeze, 1, FREEZE_END) .. draw(since) .. sub(s.freeze, FREEZE_REASON)
    call('HSET', s.data, 'f', s.freeze)
  end
  s.value = freeze_record(s)
  call('SET', s.lock, s.value, 'PX', freeze_end(s) - now)
end

-- Grants the name to a waiter, with the short lease of a hand-off. The message to it is the grant; returns
-- false if its inbox has no subscriber, unless it gets the name `anyway`.
local function hand_to(s, id, entry, anyway)
  -- First what can fail: then no waiter has lost its position.
  local token = draw(since)
  if not notify(entry, 'g' .. sub(id, 1, GRANT_ID) .. token) and not anyway then return false end
  s.handed = s.handed + 1
  leave_queue(s, { id })
  hold(s, id .. 'g' .. waits_flag(s) .. sub(entry, HOLD, INBOX_END) .. token .. since
    .. sub(entry, HAND_OFF), tonumber(sub(entry, HAND_OFF, HAND_OFF_END)))
  return true
end

-- Hands a free name to the first waiter and to those that fit beside it. A waiter whose inbox has no
-- subscriber is skipped and keeps its position; if all are so, the first receives the name anyway.
local function serve_queue(s)
  local skipped, first = 0, nil
  local before = s.handed
  while s.waiting > skipped and skipped < MAX_EXPIRED and s.handed < MAX_HANDED do
    local id = sub(call('ZRANGE', s.queue, skipped, skipped)[1], 2)
    local entry = call('HGET', s.data, id)
    if not entry then
      leave_queue(s, { id })
    else
      local mode, count, total = mode_of(entry)
      if not admits(s, mode, count, total) then break end
      if not hand_to(s, id, entry) then
        first = first or { id, entry }
        skipped = skipped + 1
      end
    end
  end
  if first and s.handed == before then hand_to(s, first[1], first[2], true) end
end

-- Hands a free name to the freeze, or to the queue.
local function hand_off(s)
  if not s.freeze and not s.value and s.waiting > 0 then serve_queue(s) end
  if s.freeze and not s.value and not s.set then start_freeze(s) end
  if s.total and not s.set and s.waiting == 0 then
    call('HDEL', s.data, 'n')
    s.total = nil
  end
end

-- Removes everything that has expired, and hands a free name off. Every command does this first.
local function settle(s)
  if s.freeze and freeze_end(s) <= now then
    call('HDEL', s.data, 'f')
    s.freeze = nil
  end
  if s.value and not s.freeze and state_of(s.value) == 'f' then leave_lock(s) end
  expire_holders(s)
  if s.waiting > 0 then
    local ids = silent(s, us - SILENCE_S * 1000000)
    if #ids > 0 then leave_queue(s, ids) end
  end
  hand_off(s)
end

-- Returns the record of a lease id, as holder or in the queue.
local function find_record(s, id)
  if s.value and id_of(s.value) == id then return s.value end
  if not s.set and s.waiting == 0 then return nil end
  local record = call('HGET', s.data, id)
  if not record or #record < TERMS then return nil end
  if state_of(record) == 'q' then return record end
  if not s.set then return nil end
  local ended = call('ZSCORE', s.lock, id)
  -- Somebody removed it from the set: its permits are free.
  if not ended then
    leave_set(s, id, record)
    hand_off(s)
    return nil
  end
  -- One command removes only so many expired holders, so some may remain; they stay expired.
  if tonumber(ended) <= now then return nil end
  return record
end

-- Returns how many ms a holder has left.
local function left_of(s, record)
  local left
  if s.value then
    left = call('PTTL', s.lock)
    -- Somebody removed the expiry: set one that no lease exceeds.
    if left < 0 then
      left = state_of(record) == 'f' and freeze_end(s) - now or MAX_LEASE
      call('PEXPIRE', s.lock, left)
    end
  else
    left = call('ZSCORE', s.lock, id_of(record)) - now - 1
  end
  return math.max(left, 0)
end

-- Returns the revoked grants that are remembered: lease id, end, and the operator's reason. They are
-- stored in one field, one after the other: the id, the end in 13 digits, the length of the reason in
-- 4 digits, the reason.
local function revocations_of(s)
  local text, all, at = call('HGET', s.data, 'r') or '', {}, 1
  while at < #text do
    local till, length = at + ID_END, at + ID_END + 13
    local reason = length + 4
    local next_at = reason + tonumber(sub(text, length, reason - 1))
    local one = { id = sub(text, at, till - 1), till = tonumber(sub(text, till, length - 1)),
      reason = sub(text, reason, next_at - 1) }
    if one.till > now then all[#all + 1] = one end
    at = next_at
  end
  return all
end

-- Returns the reason with which the grant of this id was revoked, while that is remembered.
local function revoked(s, id)
  for _, one in ipairs(revocations_of(s)) do
    if one.id == id then return one.reason end
  end
end

-- Returns the holder that blocks others, and how many ms it has left.
local function blocker(s)
  if s.value then return redact(s.value), left_of(s, s.value) end
  if not s.set then return false, 0 end
  local record = call('HGET', s.data, call('ZRANGE', s.lock, 0, 0)[1])
  if not record then return false, 0 end
  return redact(record), left_of(s, record)
end

-- Returns after how many ms the first and the last grant or freeze end by themselves.
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
    local left = freeze_end(s) - now
    first, last = math.min(first, left), math.max(last, left)
  end
  return first, last
end

-- Returns when a waiter at this position looks again: at its next heartbeat, and the first one also
-- when a grant ends.
local function next_look(s, position)
  if position > 0 then return HEARTBEAT end
  return math.min(HEARTBEAT, (ends(s)))
end

-- Records a heartbeat; returns the waiter's position, or nil if it has lost that because somebody
-- deleted the queue.
local function record_heartbeat(s, id)
  local position = call('ZRANK', s.queue, 'p' .. id)
  if not position then
    call('HDEL', s.data, id)
    return nil
  end
  call('ZADD', s.queue, us, 't' .. id)
  extend(s, KEEP_LEAST)
  return position
end

-- A waiter's inbox changes with its subscription: a hand-off skips an inbox without a subscriber, and
-- a waiter without an inbox is served in its turn.
local function update_inbox(s, id, record, inbox)
  if inbox_of(record) ~= inbox then
    call('HSET', s.data, id, sub(record, 1, INBOX - 1) .. inbox .. sub(record, TOKEN))
  end
end

-- Set when the server refuses all writes, which it does before the first one only: then no name has
-- changed, and this error is the reply of the script.
local refused

-- Takes a step for one of several names; any other error concerns that name only.
local function attempt(step, at)
  local fine, reply = pcall(step, at)
  if fine then return reply end
  local text = tostring(reply)
  local code = find(text, 'NOREPLICAS', 1, true) and 'NOREPLICAS'
    or find(text, 'READONLY', 1, true) and 'READONLY'
  if code then refused = { err = code .. ' the server takes no writes.' } end
  return { 'failed', text }
end
