-- The scripts of the plain dialect start with this file.
--
-- A value of ours is the lease; or, with fencing, the lease followed by
--   colon, token of 16 digits, colon, since in microseconds of 16 digits, colon,
--   l leased or d detached, the terms as requested (l or d, lease in ms), colon,
--   the holder's metadata.
-- Any other value belongs to another library.
--
-- The mark of a lease id that may not return is `g` if it was given up, else `-`; if its grant was
-- revoked, `r` and the operator's reason follow.
local call, format, sub, find = redis.call, string.format, string.sub, string.find

-- No value of ours is longer. Longer values of other libraries are not read to their end.
local MAX_VALUE = 2048
-- Where the fields of a value start behind the lease.
local TOKEN_FIELD, SINCE_FIELD, KIND = 2, 19, 36
-- The length of a lease in hex, and of what stands before the metadata behind such a lease, at least.
local HEX_LEASE, FENCED = 32, 69

-- Returns the value of a key, or nil; and a description of any other type.
local function look(key)
  local value = redis.pcall('GETRANGE', key, 0, MAX_VALUE)
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

-- Returns a field of a value with a token, or nil.
local function field(lease, value, at, length)
  if #value > #lease then return sub(value, #lease + at, #lease + at + length - 1) end
end

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

-- Returns whether a value is ours, of any lease. One without a token looks like another library's.
local function is_ours(value)
  return #value > FENCED and sub(value, HEX_LEASE + 1, HEX_LEASE + 1) == ':'
    and find(value, '^%x+:%d+:%d+:[ld][ld]%d+:') ~= nil
end

-- Deletes the lock, and wakes a waiter that blocks on the list of releases.
local function free(lock, signal)
  if signal then
    call('DEL', signal)
    call('LPUSH', signal, 1)
    call('PEXPIRE', signal, 1000)
  end
  call('DEL', lock)
end

-- Returns the operator's reason of a mark, or false.
local function reason_of(mark)
  return mark and sub(mark, 2, 2) == 'r' and sub(mark, 3) or false
end
