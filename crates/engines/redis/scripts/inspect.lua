-- KEYS: counter, lock, line, data.
-- ARGV: how many holders and how many waiters to show at most.
local s = load(2)
if s.foreign then return { 'foreign', s.foreign } end
settle(s)
local most = tonumber(ARGV[1])
local holders, waiters, count = {}, {}, 0

local function records_of(ids)
  local records = {}
  -- A call takes only so many arguments.
  for from = 1, #ids, 500 do
    local part = call('HMGET', s.data, unpack(ids, from, math.min(from + 499, #ids)))
    for _, record in ipairs(part) do records[#records + 1] = record end
  end
  return records
end

-- Returns what the operator said who revoked this grant; empty when nobody did.
local function words_for(record)
  return state_of(record) == 'r' and revoked(s, sub(record, 1, 32)) or ''
end

if s.value and state_of(s.value) ~= 'f' then
  count = 1
  holders = { show(s.value), left_of(s, s.value), words_for(s.value) }
elseif s.set then
  count = call('ZCARD', s.lock)
  for _, record in ipairs(records_of(call('ZRANGE', s.lock, 0, most - 1))) do
    if record then
      holders[#holders + 1] = show(record)
      holders[#holders + 1] = left_of(s, record)
      holders[#holders + 1] = words_for(record)
    end
  end
end
if s.waiting > 0 then
  local ids = call('ZRANGE', s.line, 0, math.min(most, s.waiting) - 1)
  for at, member in ipairs(ids) do ids[at] = sub(member, 2) end
  for _, record in ipairs(records_of(ids)) do
    if record then waiters[#waiters + 1] = show(record) end
  end
end
local freeze, freeze_left = false, 0
if s.freeze then
  freeze, freeze_left = sub(s.freeze, 14), tonumber(sub(s.freeze, 1, 13)) - now
end
local active = s.value and state_of(s.value) == 'f' and 1 or 0
return { 'shown', since, count, holders, s.waiting, waiters, s.of or 0,
  freeze, freeze_left, active }
