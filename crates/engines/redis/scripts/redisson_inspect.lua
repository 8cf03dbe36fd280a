-- KEYS: the name, records, permits, the list of those that wait for a fair lock, and the token counter with
--       fencing.
-- ARGV: how many holders and waiters to show at most, the tag of the name.
-- Returns 'free'; or now, the kind (lock, read, write, permits), how many permits there are or 0, how many
-- holders, for each holder its field or id, its count, its ms left and its record, the last token, how many
-- wait, and who.
local NAME, RECORDS, PERMITS, WAITERS, COUNTER = unpack(KEYS)
local most, tag = tonumber(ARGV[1]), ARGV[2]
local now_us = microseconds()
local views, holders = {}, 0

local function add(field, count, left, record)
  holders = holders + 1
  if holders <= most then views[holders] = { field, count, left, record or false } end
end

local function reply(kind, total)
  local length = kind == 'permits' and 0 or redis.pcall('LLEN', WAITERS)
  if type(length) == 'table' then length = 0 end
  if holders == 0 and length == 0 then return 'free' end
  local waiters = length > 0 and call('LRANGE', WAITERS, 0, most - 1) or {}
  local last = COUNTER and redis.pcall('GET', COUNTER)
  if type(last) ~= 'string' then last = false end
  return { 'held', format('%.0f', now_us), kind, total, holders, views, last, length, waiters }
end

local text = redis.pcall('GETRANGE', NAME, 0, 20)
if type(text) == 'string' and (text ~= '' or call('EXISTS', NAME) == 1) then
  if not find(text, '^%-?%d+$') then return { 'foreign', 'a text that is no number of permits' } end
  local permits = redis.pcall('ZRANGE', PERMITS, 0, -1, 'WITHSCORES')
  if permits.err then return { 'foreign', 'a ' .. call('TYPE', PERMITS).ok .. ' in place of the permits' } end
  local now, records, part_of = math.floor(now_us / 1000), {}, {}
  for at = 1, #permits, 2 do
    local id = permits[at]
    if #id ~= ID_BYTES then return { 'foreign', 'a permit with the id ' .. shown(id) } end
    records[id] = call('HGET', RECORDS, id)
    for number = 1, permits_of(records[id] or '') - 1 do part_of[permit_id(id, number)] = true end
  end
  for at = 1, #permits, 2 do
    local id, ends = permits[at], tonumber(permits[at + 1])
    if ends > now and not part_of[id] then
      add(id, format('%d', permits_of(records[id] or '')), ends < NEVER and ends - now, records[id])
    end
  end
  return reply('permits', tonumber(text) + #permits / 2)
end
local lock, other = lock_at(NAME)
if other then return { 'foreign', other } end
if not lock then return reply('lock', 0) end
for field, count in pairs(lock.counts) do
  local left = call('PTTL', NAME)
  local record = lock.record
  if lock.mode then record = call('HGET', RECORDS, (string.gsub(field, WRITER, ''))) end
  local reads = lock.mode and not find(field, WRITER)
  if reads then left = read_left(tag, field, count) end
  -- The writer's own read holds are the writer's.
  if left ~= -2 and not (reads and lock.mode == 'write') then
    add(field, count, left >= 0 and left, record)
  end
end
return reply(lock.mode or 'lock', 0)
