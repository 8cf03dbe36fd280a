local mode = sub(asked, 1, 1)
local _, _, longest, count, of = find(asked, ' (%d+) ?(%d*) ?(%d*)')
count, of = tonumber(count) or 1, tonumber(of)
local s = load(LOCK)
if s.foreign then return { 'foreign', s.foreign } end
asking[id] = true
settle(s)

local terms = sub(ARGV[2], 6, (find(ARGV[2], ';', 6, true)))
local record = find_record(s, id)

local function queued(position)
  local holder, left = blocker(s)
  return { 'queued', position, next_look(s, position), since, holder, left }
end

if record then
  if terms_of(record) ~= terms then return { 'terms' } end
  go_on_when_full(s.data)
  local state = state_of(record)
  if state == 'q' then
    local position = hear(s, id)
    if not position then return { 'unknown' } end
    keep_inbox(s, id, record, sub(ARGV[1], 52, 67))
    return queued(position)
  end
  if state == 'h' then
    record = id .. 'g' .. sub(record, 34, 99) .. ARGV[2]
    if s.set then s.used = s.used - select(2, mode_of(record)) end
    hold(s, record, tonumber(ARGV[3]))
    return sub(record, 68, 83)
  end
  return { 'granted', sub(record, 68, 83), left_of(s, record) }
end
if call('EXISTS', LOCK .. ':1t:' .. id) == 1 then return { 'cancelled' } end
local reason = revoked(s, id)
if reason then return { 'revoked', reason } end
if sub(asked, 2, 2) == 'k' then return { 'unknown' } end

local held = s.set or (s.value and state_of(s.value) ~= 'f')
if (held or s.waiting > 0) and s.of ~= of then return { 'mode', s.of or 0 } end
if not s.freeze and s.waiting == 0 and admits(s, mode, count, of) then
  local token = draw(since)
  hold(s, ARGV[1] .. token .. since .. ARGV[2], tonumber(ARGV[3]))
  return token
end
if sub(asked, 3, 3) == '-' then
  local holder, left = blocker(s)
  local _, last = ends(s)
  return { 'busy', last, next_look(s, 0), since, holder, left }
end
if s.waiting >= tonumber(longest) then return { 'full' } end

-- The line: a place for the order, a time for the last hearing.
-- Places follow the clock, and who comes last stands behind the last, whatever the clock says.
local position, place = s.waiting, sub(since, 2)
if position > 0 then
  local tail = call('ZRANGE', s.line, position - 1, position - 1, 'WITHSCORES')[2]
  if tonumber(tail) >= tonumber(place) then place = tail + 1 end
end
call('ZADD', s.line, place, 'p' .. id, since, 't' .. id)
call('HSET', s.data, id, id .. 'q-' .. sub(ARGV[1], 35) .. NONE .. since .. ARGV[2])
if of then call('HSET', s.data, 'n', of) end
s.waiting, s.of = position + 1, of
local left = call('PTTL', s.data)
if left < SILENCE + MARGIN then
  keep(s, SILENCE + MARGIN)
elseif position == 0 then
  call('PEXPIRE', s.line, left)
end
-- Whoever holds it alone must know at its release that somebody waits.
if s.value and sub(s.value, 34, 34) == '-' then call('SETRANGE', s.lock, 33, 'w') end
return queued(position)
