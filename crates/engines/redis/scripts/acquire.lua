local mode = sub(form, 1, 1)
local _, _, longest, count, total = find(form, ' (%d+) ?(%d*) ?(%d*)')
count, total = tonumber(count) or 1, tonumber(total)
local s = load(LOCK)
if s.foreign then return { 'foreign', s.foreign } end
callers[id] = true
settle(s)

local terms = sub(ARGV[2], TERMS - HAND_OFF + 1, (find(ARGV[2], ';', 1, true)))
local record = find_record(s, id)

local function queued(position)
  local holder, left = blocker(s)
  return { 'queued', position, next_look(s, position), since, holder, left }
end

local function begin_whole_lease(record, ms)
  if state_of(record) == 'r' or left_of(s, record) >= ms then return end
  if s.value then
    call('PEXPIRE', s.lock, ms)
  else
    call('ZADD', s.lock, now + ms + 1, id)
    extend_set(s, ms)
  end
end

if record then
  if terms_of(record) ~= terms then return { 'terms' } end
  write_without_memory(s.data)
  if state_of(record) == 'q' then
    local position = record_heartbeat(s, id)
    if not position then return { 'unknown' } end
    update_inbox(s, id, record, inbox_of(ARGV[1]))
    return queued(position)
  end
  -- A contender that was queued asks about its hand-off: its whole lease begins.
  if sub(form, 2, 2) == 'k' then begin_whole_lease(record, tonumber(ARGV[3])) end
  return { 'granted', token_of(record), left_of(s, record) }
end
if call('EXISTS', LOCK .. TOMBSTONE .. id) == 1 then return { 'cancelled' } end
local reason = revoked(s, id)
if reason then return { 'revoked', reason } end
if sub(form, 2, 2) == 'k' then return { 'unknown' } end

local held = s.set or (s.value and state_of(s.value) ~= 'f')
if (held or s.waiting > 0) and s.total ~= total then return { 'mode', s.total or 0 } end
if not s.freeze and s.waiting == 0 and admits(s, mode, count, total) then
  local token = draw(since)
  hold(s, ARGV[1] .. token .. since .. ARGV[2], tonumber(ARGV[3]))
  return token
end
if sub(form, 3, 3) == '-' then
  local holder, left = blocker(s)
  local _, last = ends(s)
  return { 'busy', last, next_look(s, 0), since, holder, left }
end
if s.waiting >= tonumber(longest) then return { 'full' } end

-- The queue has two members for each waiter: its position, and its last heartbeat. Positions follow the
-- clock, and a new waiter goes behind the last one whatever the clock says.
local position, score = s.waiting, sub(since, 2)
if position > 0 then
  local last = call('ZRANGE', s.queue, position - 1, position - 1, 'WITHSCORES')[2]
  if tonumber(last) >= tonumber(score) then score = last + 1 end
end
call('ZADD', s.queue, score, 'p' .. id, since, 't' .. id)
call('HSET', s.data, id, id .. 'q-' .. sub(ARGV[1], HOLD) .. NO_TOKEN .. since .. ARGV[2])
if total then call('HSET', s.data, 'n', total) end
s.waiting, s.total = position + 1, total
local left = call('PTTL', s.data)
if left < KEEP_LEAST then
  extend(s, KEEP_LEAST)
elseif position == 0 then
  call('PEXPIRE', s.queue, left)
end
-- At its release an exclusive holder must know that there are waiters.
if s.value and sub(s.value, WAITS, WAITS) == '-' then call('SETRANGE', s.lock, AT_WAITS, 'w') end
return queued(position)
