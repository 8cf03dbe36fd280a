-- What the scripts of the plain dialect begin with.
--
-- A value of ours is the lease, or, where tokens are given, the lease and behind it
--   colon, token of 16 digits, colon, since when in µs of 16 digits, colon,
--   l leased or d detached, the terms as they were asked (l or d, lease in ms), colon,
--   the holder's own words.
-- Whatever else stands under the key is another's.
--
-- A mark is kept of a lease id that may not come back: `g` when it was given up, else `-`, and,
-- when its grant was revoked, `r` and the operator's words.
local call, format, sub, find = redis.call, string.format, string.sub, string.find

-- No value of ours is longer. Others may be, and are not read to their end.
local LONGEST = 2048
-- In ms: no lease is longer.
local LONGEST_LEASE = 86400000
local TOKEN, SINCE, KIND = 2, 19, 36

-- Returns the value under a key, or nil; and what stands there when it is no string.
local function look(key)
  local value = redis.pcall('GETRANGE', key, 0, LONGEST)
  if type(value) == 'table' then
    local kind = call('TYPE', key).ok
    if kind == 'string' then error(value.err) end
    return nil, 'a ' .. kind
  end
  if value == '' and call('EXISTS', key) == 0 then return nil end
  return value
end

local function is_of(lease, value)
  return value == lease or (value and sub(value, 1, #lease + 1) == lease .. ':')
end

-- Returns a field of a value that has a token, or nil.
local function field(lease, value, at, length)
  if #value > #lease then return sub(value, #lease + at, #lease + at + length - 1) end
end

local function microseconds()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Returns how many ms a key still has; false when nothing ends it.
local function left_of(key)
  local left = call('PTTL', key)
  return left >= 0 and left
end

-- Makes a key last for at least so many ms, and returns how many it still has. One that somebody took
-- its end away from gets one again.
local function keep(key, ms)
  local left = left_of(key)
  if left and left >= ms then return left end
  call('PEXPIRE', key, ms)
  return ms
end

-- Whether a value is of ours, of whichever lease. One without a token cannot be told from another's.
local function is_ours(value)
  return #value > 69 and sub(value, 33, 33) == ':'
    and find(value, '^%x+:%d+:%d+:[ld][ld]%d+:') ~= nil
end

-- Ends whatever holds the lock, and wakes one who blocks on the list that tells of it.
local function free(lock, signal)
  if signal then
    call('DEL', signal)
    call('LPUSH', signal, 1)
    call('PEXPIRE', signal, 1000)
  end
  call('DEL', lock)
end

-- Returns what is to be said of a lease that is not held, by its mark.
local function words_of(mark)
  return mark and sub(mark, 2, 2) == 'r' and sub(mark, 3) or false
end
