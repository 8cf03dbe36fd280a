local format = string.format

-- Returns the reply to TIME as microseconds in 16 digits. Arithmetic would cost more, and numbers without a
-- format would lose digits.
local function stamp(time)
  local text = time[1] .. time[2]
  if #text < 16 then text = format('%010.0f%06.0f', time[1], time[2]) end
  return text
end

-- Draws a token: the server's time, or one more than the last token, whichever is larger.
local function draw(since)
  local last
  if CLUSTER then last = call('SET', COUNTER, since, 'PX', COUNTER_LIFE, 'GET')
  else last = call('GETSET', COUNTER, since) end
  if not last then return since end
  local number = tonumber(last)
  if number and #last == 16 and last < since then return since end
  -- A counter with an invalid value is restored.
  if not number or number % 1 ~= 0 or number >= 9007199254740991 then
    call('SET', COUNTER, last)
    local spent = number and number >= 9007199254740991
    error(spent and 'HOLDLINE-SPENT' or 'HOLDLINE-FOREIGN ' .. COUNTER)
  end
  local token = format('%016.0f', math.max(number + 1, tonumber(since)))
  if CLUSTER then call('SET', COUNTER, token, 'PX', COUNTER_LIFE)
  else call('SET', COUNTER, token) end
  return token
end
