-- What is otherwise in the plain dialect, where a string that is no record of ours is the lock of
-- another library. It is told as `?` and its first bytes, which no lease id begins with and nothing
-- here changes: so its holder is in the way like any other.
local function holder(lock)
  local value, other = look(lock)
  if value and not is_record(value) then return '?' .. sub(value, 1, 8) end
  return value, other
end

-- Another's may have no end: then false is returned, and it keeps none.
local function left_of(lock)
  local left = call('PTTL', lock)
  if left == -1 then
    if not is_record(call('GET', lock)) then return false end
    left = LONGEST
    call('PEXPIRE', lock, left)
  end
  return left < 0 and 0 or left
end

local function show(record)
  return sub(record, 1, 1) == '?' and record or sub(record, 1, 8) .. sub(record, 33)
end
