local format = string.format

-- Writes the answer of TIME as µs in 16 digits: arithmetic would cost more, and plain numbers
-- would lose digits.
local function stamp(time)
  local micros = time[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end
  return time[1] .. micros
end

-- Draws a token: the server's time, or one more than the last, whichever is larger.
local function draw(since)
  local last = call('GETSET', COUNTER, since)
  if not last then return since end
  local number = tonumber(last)
  if number and #last == 16 and last < since then return since end
  -- What cannot be counted on from is put back as it was.
  if not number or number % 1 ~= 0 or number >= 9007199254740991 then
    call('SET', COUNTER, last)
    local spent = number and number >= 9007199254740991
    error(spent and 'HOLDLINE-SPENT' or 'HOLDLINE-FOREIGN ' .. COUNTER)
  end
  local token = format('%016.0f', math.max(number + 1, tonumber(since)))
  call('SET', COUNTER, token)
  return token
end
