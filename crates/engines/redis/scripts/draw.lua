-- What every script begins with.
--
-- KEYS[1] is the counter. The keys of a name follow in threes: lock, line, data.
--
-- A record is what is kept of a holder or a waiter; its fields stand at fixed places:
--   1-32 lease id   33 state: g granted, h handed, r revoked, f freeze, q queued
--   34 waits: w when others may have to be served at its end, else -
--   35 hold: l leased, d detached   36-51 client   52-67 inbox   68-83 token
--   84-99 since, µs   100-112 handed: claim until, ms; queued: claim window, ms
--   113- terms (mode, hold, lease as asked), a semicolon, the holder's own words
local call, format, sub = redis.call, string.format, string.sub

-- Draws a token: the server's time in µs, or one more than the last, whichever is larger.
-- Returns it and the time, both as 16 digits: plain concatenation would lose some.
local function draw(us)
  local since = format('%016.0f', us)
  local last = call('GETSET', KEYS[1], since)
  if not last then return since, since end
  local number = tonumber(last)
  if number and number < us then return since, since end
  -- What cannot be counted on from is put back as it was.
  if not number or number % 1 ~= 0 or number >= 9007199254740991 then
    call('SET', KEYS[1], last)
    error(number and 'HOLDLINE-SPENT' or 'HOLDLINE-FOREIGN ' .. KEYS[1])
  end
  local token = format('%016.0f', number + 1)
  call('SET', KEYS[1], token)
  return token, since
end
