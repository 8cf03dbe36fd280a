-- All lines that are left have one now, and those of one name one state.
local states = {}

local function keep_shared(s, id, record, purpose, ms)
  local kept = sub(record, 35, 67)
  if sub(purpose, 1, 1) == 'l' then kept = purpose else kept = 'd' .. sub(kept, 2) end
  if kept ~= sub(record, 35, 67) then
    call('HSET', s.data, id, sub(record, 1, 34) .. kept .. sub(record, 68))
  end
  local left = math.max(left_of(s, record), ms)
  call('ZADD', s.lock, now + left + 1, id)
  keep_set(s, left)
  return left
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
    keep_inbox(s, id, record, sub(purpose, 18, 33))
    return { 'queued', position, next_look(s, position) }
  end
  if state == 'h' or sub(purpose, 1, 1) == 'w' then return { 'handed', left_of(s, record) } end
  if state == 'r' then return { 'revoked', revoked(s, id) or '', left_of(s, record) } end
  return keep_shared(s, id, record, purpose, ms)
end

local function answer(line)
  local at, lock = 3 * line - 1, KEYS[line + 1]
  local s = states[lock]
  if not s then
    s = load(lock)
    if not s.foreign then settle(s) end
    states[lock] = s
  end
  if s.foreign then return { 'foreign', s.foreign } end
  return renew(s, sub(ARGV[at - 1], 1, 32), ARGV[at], tonumber(ARGV[at + 1]))
end

go_on_when_full(KEYS[2] .. ':1d')
for _, line in ipairs(rest) do asking[sub(ARGV[3 * line - 2], 1, 32)] = true end
for _, line in ipairs(rest) do replies[line] = attempt(answer, line) end
return refused or replies
