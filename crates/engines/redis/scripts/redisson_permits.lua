-- KEYS: number of free permits, mark of the lease id, records, permits, and the token counter with fencing.
-- ARGV: lease id, lease in ms, hold and terms as requested, the holder's metadata, k if the id must be
--       known, how many permits, of how many, the verbs that publish, the tag of the name.
local FREE, MARK, RECORDS, PERMITS, COUNTER = unpack(KEYS)
local id, lease, terms, verbs, tag = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[8], ARGV[9]
local count, of = tonumber(ARGV[6]), tonumber(ARGV[7])
-- How many expired permits are reclaimed at a time, and among how many a holder of ours is looked for.
local MOST_RECLAIMED, SHOWN = 1024, 32

local text = redis.pcall('GETRANGE', FREE, 0, 20)
if type(text) == 'table' then
  local lock, other = lock_at(FREE)
  other = other or (lock.mode and READ_WRITE or MUTEX)
  return ended(call('GET', MARK)) or { 'foreign', other }
end
local exists = text ~= '' or call('EXISTS', FREE) == 1
if exists and not find(text, '^%-?%d+$') then return { 'foreign', 'a text that is no number of permits' } end
local first = redis.pcall('ZRANGE', PERMITS, 0, 0)
if first.err then return { 'foreign', 'a ' .. call('TYPE', PERMITS).ok .. ' in place of the permits' } end
if first[1] and #first[1] ~= ID_BYTES then return { 'foreign', 'a permit with the id ' .. shown(first[1]) } end
if first[1] and not exists then return { 'foreign', 'permits without their number' } end

local now_us = microseconds()
local now = math.floor(now_us / 1000)
local function reclaim()
  local over = call('ZRANGEBYSCORE', PERMITS, 0, now, 'LIMIT', 0, MOST_RECLAIMED)
  if #over == 0 then return end
  call('ZREM', PERMITS, unpack(over))
  call('HDEL', RECORDS, unpack(over))
  publish(verbs, 'redisson_sc:' .. tag, format('%.0f', call('INCRBY', FREE, #over)))
end
reclaim()

local score = call('ZSCORE', PERMITS, id)
if score then
  local record = call('HGET', RECORDS, id)
  if not record then return { 'foreign', 'a grant of ours without its record' } end
  if not has_terms(record, terms) then return { 'terms' } end
  return { 'granted', sub(record, 1, TOKEN_END), math.max(tonumber(score) - now, 1) }
end
local refusal = ended(call('GET', MARK), ARGV[5])
if refusal then return refusal end
local free = exists and tonumber(call('GET', FREE)) or of
local total = free + call('ZCARD', PERMITS)
if total ~= of then return { 'total', format('%.0f', total) } end
if free < count then
  local function left(permits)
    local ends = tonumber(permits[2])
    return ends and ends < NEVER and math.max(ends - now, 1)
  end
  local first_ones = call('ZRANGE', PERMITS, 0, SHOWN - 1)
  local holder, record = first_ones[1] or false, false
  for _, permit in ipairs(first_ones) do
    local found = call('HGET', RECORDS, permit)
    if found then
      holder, record = permit, found
      break
    end
  end
  local permits = format('%d', permits_of(record or ''))
  local soonest = left(call('ZRANGE', PERMITS, 0, 0, 'WITHSCORES'))
  local latest = left(call('ZRANGE', PERMITS, -1, -1, 'WITHSCORES'))
  return { 'busy', format('%.0f', now_us), latest, holder, permits, record, soonest }
end
local token, problem = draw(COUNTER)
if not token then return { 'foreign', problem } end
if not exists then call('SET', FREE, format('%.0f', of)) end
call('DECRBY', FREE, count)
for number = 0, count - 1 do
  call('ZADD', PERMITS, format('%.0f', now + lease), permit_id(id, number))
end
local life = left_of(FREE)
if life then call('PEXPIRE', PERMITS, life) end
if not exists then publish(verbs, 'redisson_sc:' .. tag, format('%.0f', free - count)) end
call('HSET', RECORDS, id, record_of(token, terms, ARGV[4]))
extend(RECORDS, lease + MARGIN)
return token
