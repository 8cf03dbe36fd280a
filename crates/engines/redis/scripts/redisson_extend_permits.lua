-- Makes the permits of a grant last for at least this many ms, and returns how many they have left. Returns nil if
-- one of them has expired.
local function extend_permits(permits, id, count, ms)
  local now, least = math.floor(microseconds() / 1000), nil
  for number = 0, count - 1 do
    local permit = permit_id(id, number)
    local ends = tonumber(call('ZSCORE', permits, permit) or 0)
    if ends <= now then return nil end
    if ends < now + ms then
      ends = now + ms
      call('ZADD', permits, 'XX', format('%.0f', ends), permit)
    end
    least = math.min(least or ends, ends)
  end
  return least - now
end
