local since = stamp(call('TIME'))

local function inspect(lock)
  local value, other = holder(lock)
  if other then return { 'foreign', other } end
  local holders = {}
  if value then
    local reason = sub(value, STATE, STATE) == 'r' and reason_of((mark_of(lock, sub(value, 1, ID_END))))
    holders = { redact(value), left_of(lock), reason or '' }
  end
  return { 'shown', since, #holders / 3, holders, 0, {}, 0, false, 0, 0 }
end

local shown = {}
for at = 2, #KEYS do shown[at - 1] = inspect(KEYS[at]) end
return shown
