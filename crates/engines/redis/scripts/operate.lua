-- ARGV: the operation, and
--   revoke: token of 16 digits, now or polite, the operator's reason
--   remove_waiter: the first 8 digits of its lease id, the reason
--   freeze: for how many ms, the operator's reason
--   unfreeze: nothing
local s = load(LOCK)
-- How many revoked grants of one name are remembered. The lock table remembers more (`MAX_REMEMBERED`);
-- here each command reads them all.
local MAX_REVOCATIONS = 64
if s.foreign then return { 'foreign', s.foreign } end
settle(s)

-- Returns the record of the holder that has this token.
local function holder_with(token)
  if s.value then
    if state_of(s.value) ~= 'f' and token_of(s.value) == token then return s.value end
  elseif s.set then
    local ids = call('ZRANGE', s.lock, 0, -1)
    for from = 1, #ids, 500 do
      local part = call('HMGET', s.data, unpack(ids, from, math.min(from + 499, #ids)))
      for _, record in ipairs(part) do
        if record and token_of(record) == token then return record end
      end
    end
  end
end

local function revocation(id, till, reason)
  return id .. format('%013.0f', till) .. format('%04d', #reason) .. reason
end

-- Remembers the id of a revoked grant for this many ms; of too many, the oldest are dropped.
local function remember(id, reason, ms)
  local text, count = revocation(id, now + ms, reason), 1
  for _, one in ipairs(revocations_of(s)) do
    if one.id ~= id and count < MAX_REVOCATIONS then
      text = text .. revocation(one.id, one.till, one.reason)
      count = count + 1
    end
  end
  call('HSET', s.data, 'r', text)
  extend(s, ms)
end

local function revoke(token, at_once, reason)
  local record = holder_with(token)
  if not record then return 'nothing' end
  local id, left = id_of(record), left_of(s, record)
  local _, _, lease = find(terms_of(record), ' .(%d+)')
  remember(id, reason, left + math.max(MIN_MEMORY, tonumber(lease), left))
  notify(record, 'c' .. sub(id, 1, SHORT_ID))
  if not at_once then
    if s.set then
      call('HSET', s.data, id, id .. 'r' .. sub(record, WAITS))
    else
      call('SETRANGE', s.lock, AT_STATE, 'r')
    end
    return { 'notified', left }
  end
  if s.set then leave_set(s, id, record) else leave_lock(s) end
  hand_off(s)
  return 'done'
end

-- Returns the id and the record of the first waiter whose id begins so.
local function waiter_with(short)
  for from = 0, s.waiting - 1, 500 do
    local to = math.min(from + 499, s.waiting - 1)
    for _, member in ipairs(call('ZRANGE', s.queue, from, to)) do
      local id = sub(member, 2)
      if sub(id, 1, SHORT_ID) == short then return id, call('HGET', s.data, id) end
    end
  end
end

local function remove_waiter(short, reason)
  local id, record = waiter_with(short)
  if not record then return 'nothing' end
  local _, _, lease = find(terms_of(record), ' .(%d+)')
  remember(id, reason, math.max(MIN_MEMORY, tonumber(lease)))
  leave_queue(s, { id })
  notify(record, 'l' .. sub(id, 1, SHORT_ID))
  hand_off(s)
  return 'done'
end

local function freeze(ms, reason)
  local token = s.freeze and freeze_token(s) or NO_TOKEN
  -- First what can fail: otherwise a freeze without a token would block the name although it was
  -- reported as refused.
  if token == NO_TOKEN then draw(since) end
  s.freeze = format('%013.0f', now + ms) .. token .. reason
  call('HSET', s.data, 'f', s.freeze)
  extend(s, ms)
  if s.value then
    if state_of(s.value) == 'f' then
      leave_lock(s)
    else
      call('SETRANGE', s.lock, AT_WAITS, 'w')
    end
  end
  hand_off(s)
  return 'done'
end

local function unfreeze()
  if not s.freeze then return 'nothing' end
  call('HDEL', s.data, 'f')
  s.freeze = nil
  if s.value and state_of(s.value) == 'f' then leave_lock(s) end
  hand_off(s)
  return 'done'
end

if ARGV[1] == 'revoke' then return revoke(ARGV[2], ARGV[3] == 'now', ARGV[4]) end
if ARGV[1] == 'remove_waiter' then return remove_waiter(ARGV[2], ARGV[3]) end
if ARGV[1] == 'freeze' then return freeze(tonumber(ARGV[2]), ARGV[3]) end
return unfreeze()
