-- ARGV: the operation, and
--   revoke: token of 16 digits, now or polite, the operator's words
--   freeze: for how many ms, the operator's words
--   unfreeze: nothing
local s = load(LOCK)
-- How many revoked grants of one name are remembered.
local MARKS = 64
if s.foreign then return { 'foreign', s.foreign } end
settle(s)

-- Returns the record of the holder that has this token.
local function holder_with(token)
  if s.value then
    if state_of(s.value) ~= 'f' and sub(s.value, 68, 83) == token then return s.value end
  elseif s.set then
    local ids = call('ZRANGE', s.lock, 0, -1)
    for from = 1, #ids, 500 do
      local part = call('HMGET', s.data, unpack(ids, from, math.min(from + 499, #ids)))
      for _, record in ipairs(part) do
        if record and sub(record, 68, 83) == token then return record end
      end
    end
  end
end

-- Remembers the id of a revoked grant for this many ms; of very many, the oldest go.
local function remember(id, reason, ms)
  local text, count = id .. format('%013.0f', now + ms) .. format('%04d', #reason) .. reason, 1
  for _, mark in ipairs(marks_of(s)) do
    if mark.id ~= id and count < MARKS then
      text = text .. mark.id .. format('%013.0f', mark.till) .. format('%04d', #mark.reason)
        .. mark.reason
      count = count + 1
    end
  end
  call('HSET', s.data, 'r', text)
  keep(s, ms)
end

local function revoke(token, at_once, reason)
  local record = holder_with(token)
  if not record then return 'nothing' end
  local id, left = sub(record, 1, 32), left_of(s, record)
  local _, _, lease = find(terms_of(record), ' .(%d+)')
  remember(id, reason, left + math.max(MEMORY, tonumber(lease), left))
  tell(record, 'c')
  -- A hand-off that nobody has claimed is believed by nobody: it can go at once.
  if not at_once and state_of(record) ~= 'h' then
    if s.set then
      call('HSET', s.data, id, sub(record, 1, 32) .. 'r' .. sub(record, 34))
    else
      call('SETRANGE', s.lock, 32, 'r')
    end
    return { 'told', left }
  end
  if s.set then leave_set(s, id, record) else leave_lock(s) end
  hand_over(s)
  return 'done'
end

local function freeze(ms, reason)
  local token = s.freeze and sub(s.freeze, 14, 29) or NONE
  -- First what may fail: a freeze without a token would stop the name and be told as refused.
  if token == NONE then draw(since) end
  s.freeze = format('%013.0f', now + ms) .. token .. reason
  call('HSET', s.data, 'f', s.freeze)
  keep(s, ms)
  if s.value then
    if state_of(s.value) == 'f' then
      leave_lock(s)
    else
      call('SETRANGE', s.lock, 33, 'w')
    end
  end
  hand_over(s)
  return 'done'
end

local function unfreeze()
  if not s.freeze then return 'nothing' end
  call('HDEL', s.data, 'f')
  s.freeze = nil
  if s.value and state_of(s.value) == 'f' then leave_lock(s) end
  hand_over(s)
  return 'done'
end

if ARGV[1] == 'revoke' then return revoke(ARGV[2], ARGV[3] == 'now', ARGV[4]) end
if ARGV[1] == 'freeze' then return freeze(tonumber(ARGV[2]), ARGV[3]) end
return unfreeze()
