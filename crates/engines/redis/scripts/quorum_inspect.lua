local since = stamp(call('TIME'))

local function inspect(lock)
  local value, other = holder(lock)
  if other then return { 'foreign', other } end
  local holders = {}
  if value then
    local words = sub(value, 33, 33) == 'r' and words_of((mark_of(lock, sub(value, 1, 32))))
    holders = { show(value), left_of(lock), words or '' }
  end
  return { 'shown', since, #holders / 3, holders, 0, {}, 0, false, 0, 0 }
end

local shown = {}
for at = 2, #KEYS do shown[at - 1] = inspect(KEYS[at]) end
return shown
