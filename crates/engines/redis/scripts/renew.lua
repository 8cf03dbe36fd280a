local states, replies = {}, {}

-- Renews what one holder has alone, where nothing but its time changes; else returns nil.
local function keep_alone(lock, head, purpose, ms)
  local value = redis.pcall('GET', lock)
  if type(value) ~= 'string' or sub(value, 1, 33) ~= head then return nil end
  local hold_now = sub(purpose, 1, 1)
  if hold_now == 'l' then
    if sub(value, 35, 67) ~= purpose then call('SETRANGE', lock, 34, purpose) end
  elseif sub(value, 35, 35) ~= 'd' then
    call('SETRANGE', lock, 34, 'd')
  end
  local left = call('PTTL', lock)
  if left < ms then
    call('PEXPIRE', lock, ms)
    left = ms
  end
  return { 'renewed', left }
end

local function keep_shared(s, id, record, purpose, ms)
  local kept = sub(record, 35, 67)
  if sub(purpose, 1, 1) == 'l' then kept = purpose else kept = 'd' .. sub(kept, 2) end
  if kept ~= sub(record, 35, 67) then
    call('HSET', s.data, id, sub(record, 1, 34) .. kept .. sub(record, 68))
  end
  local left = math.max(left_of(s, record), ms)
  call('ZADD', s.lock, now + left + 1, id)
  keep_set(s, left)
  return { 'renewed', left }
end

local function renew(s, id, purpose, ms)
  local record = find_record(s, id)
  if not record then
    local reason = revoked(s, id)
    if reason then return { 'revoked', reason, 0 } end
    return { 'unknown' }
  end
  local state = state_of(record)
  if state == 'q' then
    local position = hear(s, id)
    if not position then return { 'unknown' } end
    return { 'queued', position, next_look(s, position) }
  end
  if state == 'h' or sub(purpose, 1, 1) == 'w' then return { 'handed', left_of(s, record) } end
  if state == 'r' then return { 'revoked', revoked(s, id) or '', left_of(s, record) } end
  return keep_shared(s, id, record, purpose, ms)
end

go_on_when_full(KEYS[4])
for at = 1, #ARGV, 3 do asking[sub(ARGV[at], 1, 32)] = true end
for line = 0, #ARGV / 3 - 1 do
  local at = 2 + 3 * line
  local head, purpose, ms = ARGV[at - 1], ARGV[at], tonumber(ARGV[at + 1])
  local lock, reply = KEYS[at], nil
  if sub(purpose, 1, 1) ~= 'w' then reply = keep_alone(lock, head, purpose, ms) end
  if not reply then
    local s = states[lock]
    if not s then
      s = load(at)
      states[lock] = s
      if not s.foreign then settle(s) end
    end
    if s.foreign then
      reply = { 'foreign', s.foreign }
    else
      reply = renew(s, sub(head, 1, 32), purpose, ms)
    end
  end
  replies[line + 1] = reply
end
return replies
