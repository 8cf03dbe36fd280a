-- What differs in the plain dialect, where a string that is not our record is a lock of another library.
-- It is represented as `?` and its first bytes. No lease id starts with `?`, so such a holder blocks like
-- any other, and nothing here changes its key.
local function holder(lock)
  local value, other = look(lock)
  if value and not is_record(value) then return '?' .. sub(value, 1, SHORT_ID) end
  return value, other
end

-- A lock of another library may have no expiry: then this returns false and sets none.
local function left_of(lock)
  local left = call('PTTL', lock)
  if left == -1 then
    if not is_record(call('GET', lock)) then return false end
    left = MAX_LEASE
    call('PEXPIRE', lock, left)
  end
  return left < 0 and 0 or left
end

local function redact(record)
  return sub(record, 1, 1) == '?' and record or sub(record, 1, SHORT_ID) .. sub(record, STATE)
end
