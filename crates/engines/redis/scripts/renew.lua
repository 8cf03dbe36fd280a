-- The remaining renewals share one state for each name.
local states = {}

local function extend_shared(s, id, record, purpose, ms)
  local before = sub(record, HOLD, INBOX_END)
  local updated = sub(purpose, 1, 1) == 'l' and purpose or 'd' .. sub(before, 2)
  if updated ~= before then
    call('HSET', s.data, id, sub(record, 1, WAITS) .. updated .. sub(record, TOKEN))
  end
  local left = math.max(left_of(s, record), ms)
  call('ZADD', s.lock, now + left + 1, id)
  extend_set(s, left)
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
    local position = record_heartbeat(s, id)
    if not position then return { 'unknown' } end
    update_inbox(s, id, record, sub(purpose, INBOX - HOLD + 1, INBOX_END - HOLD + 1))
    return { 'queued', position, next_look(s, position) }
  end
  if sub(purpose, 1, 1) == 'w' then return { 'held', left_of(s, record) } end
  if state == 'r' then return { 'revoked', revoked(s, id) or '', left_of(s, record) } end
  return extend_shared(s, id, record, purpose, ms)
end

local function reply_to(index)
  local at, lock = 3 * index - 1, KEYS[index + 1]
  local s = states[lock]
  if not s then
    s = load(lock)
    if not s.foreign then settle(s) end
    states[lock] = s
  end
  if s.foreign then return { 'foreign', s.foreign } end
  return renew(s, id_of(ARGV[at - 1]), ARGV[at], tonumber(ARGV[at + 1]))
end

write_without_memory(KEYS[2] .. DATA)
for _, index in ipairs(rest) do callers[id_of(ARGV[3 * index - 2])] = true end
for _, index in ipairs(rest) do replies[index] = attempt(reply_to, index) end
return refused or replies
