-- The scripts of the Redisson dialect start with this file. `docs/redisson.md` has a table of the keys.
--
-- A lock is a hash under the name: a field for its owner, `uuid:id`, with the hold count as value. A
-- read/write lock has a field `mode` besides, and `:write` behind the owner that writes. A semaphore is a
-- number of free permits, and a sorted set of the permits that are held.
--
-- Redisson reads no other field of a lock's hash. So the record of a grant of ours is one of them:
--   token of 16 digits, colon, since in microseconds of 16 digits, colon,
--   l leased or d detached, the terms as requested (mode, l or d, lease in ms), colon,
--   the holder's metadata.
-- Redisson counts the fields of a read/write lock. So its records, and those of a semaphore, are in a
-- hash of their own, by owner or by the id of the permit.
--
-- The mark of a lease id that may not return is `g` if it was given up, else `-`; if its grant was
-- revoked, `r` and the operator's reason follow.
local call, format, sub, find = redis.call, string.format, string.sub, string.find

local RECORD = 'holdline'
local TOKEN_END, SINCE, SINCE_END, KIND, TERMS = 16, 18, 33, 35, 36
local HEX4 = '%x%x%x%x'
-- The owner of a lock, and what a transaction of Redisson's adds to it.
local UUID_ID = '^' .. HEX4 .. HEX4 .. '%-' .. HEX4 .. '%-' .. HEX4 .. '%-' .. HEX4 .. '%-'
  .. HEX4 .. HEX4 .. HEX4 .. ':%-?%d+'
local OWNER, TRANSACTION, WRITER = UUID_ID .. '$', UUID_ID .. ':[%x%-]+$', ':write$'
-- What is longer is not read to its end.
local MAX_FIELDS, MAX_HOLDS, MAX_SHOWN_TEXT = 100000, 1024, 60
local ID_BYTES = 16
-- What a lock is that was requested as another.
local MUTEX, READ_WRITE = 'a lock without readers (RLock)', 'a read/write lock (RReadWriteLock)'

local function microseconds()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Returns how many ms a key has left; false if it has no expiry.
local function left_of(key)
  local left = call('PTTL', key)
  return left >= 0 and left
end

-- Makes a key last for at least this many ms, and returns how many it has left. It restores an expiry
-- that somebody has removed.
local function extend(key, ms)
  local left = left_of(key)
  if left and left >= ms then return left end
  call('PEXPIRE', key, ms)
  return ms
end

local function shown(text)
  return "'" .. string.gsub(sub(text, 1, MAX_SHOWN_TEXT), '[^%w%p ]', '?') .. "'"
end

-- Draws a token; without a counter it is the smallest. Returns nil and what is wrong with the counter.
local function draw(counter)
  if not counter then return format('%016.0f', 1) end
  local token = redis.pcall('INCR', counter)
  if type(token) == 'table' then return nil, 'a token counter that is no number' end
  if token >= 1 and token <= MAX_TOKEN then return format('%016.0f', token) end
  call('DECR', counter)
  return nil, 'a token counter that is out of range'
end

-- Makes a record: the token, now, the hold with the terms, the metadata.
local function record_of(token, terms, metadata)
  return token .. ':' .. format('%016.0f', microseconds()) .. ':' .. terms .. ':' .. metadata
end

-- Returns whether a record has these terms as requested.
local function has_terms(record, terms)
  local ends = find(record, ':', TERMS, true)
  return ends ~= nil and sub(record, TERMS, ends - 1) == sub(terms, 2)
end

local function held_for(record)
  local since = record and tonumber(sub(record, SINCE, SINCE_END))
  return since and format('%.0f', math.max(microseconds() - since, 0))
end

local function publish(verbs, channel, payload)
  -- A message is a hint: a user who may not publish may release.
  for verb in string.gmatch(verbs, '%u+') do redis.pcall(verb, channel, payload) end
end

-- Returns the operator's reason of a mark, or false.
local function reason_of(mark)
  return mark and sub(mark, 2, 2) == 'r' and sub(mark, 3) or false
end

-- Returns why a request under a lease id that holds nothing ends, by its mark and whether the id must be
-- known; nil if it may go on.
local function ended(mark, known)
  if mark and sub(mark, 1, 1) == 'g' then return { 'cancelled' } end
  if mark then return { 'revoked', reason_of(mark) } end
  if known == 'k' then return { 'unknown' } end
end

local function is_count(text)
  return find(text, '^[1-9]%d*$') ~= nil and #text < 16
end

local function check_holder(field, count, has_mode)
  local owner = has_mode and string.gsub(field, WRITER, '') or field
  if not find(owner, OWNER) and not find(owner, TRANSACTION) then
    return 'a hash with the field ' .. shown(field)
  end
  if not is_count(count) then return 'a hold count of ' .. shown(count) end
end

-- Returns the lock under a key: `mode` if it is a read/write lock, `counts` of its holders, the `record`
-- of a grant of ours. Nil if there is none; nil and what is there instead, if that is no lock.
local function lock_at(key)
  local length = redis.pcall('HLEN', key)
  if type(length) == 'table' then
    local kind = call('TYPE', key).ok
    if kind == 'string' and find(call('GETRANGE', key, 0, 20), '^%-?%d+$') then
      return nil, 'a number, as of a semaphore or a latch'
    end
    return nil, 'a ' .. kind
  end
  if length == 0 then return nil end
  if length > MAX_FIELDS then return nil, format('a hash of %d fields', length) end
  local fields, lock, holders = call('HGETALL', key), { counts = {} }, 0
  for at = 1, #fields, 2 do
    if fields[at] == 'mode' then lock.mode = fields[at + 1] end
  end
  if lock.mode and lock.mode ~= 'read' and lock.mode ~= 'write' then
    return nil, 'a hash with the mode ' .. shown(lock.mode)
  end
  for at = 1, #fields, 2 do
    local field, value = fields[at], fields[at + 1]
    if field == RECORD then
      if lock.mode then return nil, 'a read/write lock that was made of a lock of ours' end
      lock.record = value
    elseif field ~= 'mode' then
      local other = check_holder(field, value, lock.mode)
      if other then return nil, other end
      lock.counts[field], holders = value, holders + 1
    end
  end
  if holders == 0 or (holders > 1 and not lock.mode) then
    return nil, format('a hash of %d owners', holders)
  end
  return lock
end

-- Returns how long a holder of a read/write lock keeps it: its longest read hold. NEVER if that has no
-- expiry, -2 if there is none.
local function read_left(tag, field, count)
  local longest = -2
  for hold = 1, math.min(tonumber(count), MAX_HOLDS) do
    local left = call('PTTL', tag .. ':' .. field .. ':rwlock_timeout:' .. hold)
    longest = math.max(longest, left == -1 and NEVER or left)
  end
  return longest
end

-- Returns how long any reader keeps a read/write lock: 0 if none does, so that it is free.
local function readers_left(tag, counts)
  local longest = 0
  for field, count in pairs(counts) do longest = math.max(longest, read_left(tag, field, count)) end
  return longest
end

-- Returns the id of a permit: the lease id for the first, and the next numbers for the others.
local function permit_id(lease_id, number)
  if number == 0 then return lease_id end
  local a, b, c, d = string.byte(lease_id, ID_BYTES - 3, ID_BYTES)
  local last = (((a * 256 + b) * 256 + c) * 256 + d + number) % 4294967296
  local bytes = {}
  for at = 4, 1, -1 do bytes[at], last = last % 256, math.floor(last / 256) end
  return sub(lease_id, 1, ID_BYTES - 4) .. string.char(unpack(bytes))
end

-- Returns how many permits a record is of.
local function permits_of(record)
  return tonumber(string.match(record or '', '^p(%d+)/', TERMS) or 1)
end
