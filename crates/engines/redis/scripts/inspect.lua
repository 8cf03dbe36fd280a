-- ARGV: how many holders and how many waiters of a name to show at most.
local max_shown, last_key = tonumber(ARGV[1]), #KEYS
-- The last key of a cluster's script never exists.
if CLUSTER then last_key = last_key - 1 end

-- Returns the records of these lease ids; a call takes only so many arguments.
local function records_of(s, ids)
  local records = {}
  for from = 1, #ids, 500 do
    local part = call('HMGET', s.data, unpack(ids, from, math.min(from + 499, #ids)))
    for _, record in ipairs(part) do records[#records + 1] = record end
  end
  return records
end

-- Adds a holder: its record, the time left, and the operator's reason if it was revoked.
local function add_holder(s, holders, record)
  local reason = state_of(record) == 'r' and revoked(s, id_of(record)) or ''
  holders[#holders + 1] = redact(record)
  holders[#holders + 1] = left_of(s, record)
  holders[#holders + 1] = reason
end

local function holders_of(s)
  local holders, count = {}, 0
  if s.value and state_of(s.value) ~= 'f' then
    count = 1
    add_holder(s, holders, s.value)
  elseif s.set then
    count = call('ZCARD', s.lock)
    for _, record in ipairs(records_of(s, call('ZRANGE', s.lock, 0, max_shown - 1))) do
      if record then add_holder(s, holders, record) end
    end
  end
  return holders, count
end

local function waiters_of(s)
  local waiters = {}
  if s.waiting == 0 then return waiters end
  local ids = call('ZRANGE', s.queue, 0, math.min(max_shown, s.waiting) - 1)
  for at, member in ipairs(ids) do ids[at] = sub(member, 2) end
  for _, record in ipairs(records_of(s, ids)) do
    if record then waiters[#waiters + 1] = redact(record) end
  end
  return waiters
end

local function inspect(lock)
  local s = load(lock)
  if s.foreign then return { 'foreign', s.foreign } end
  settle(s)
  local holders, count = holders_of(s)
  local freeze, freeze_left = false, 0
  if s.freeze then
    freeze, freeze_left = sub(s.freeze, FREEZE_TOKEN), freeze_end(s) - now
  end
  local active = s.value and state_of(s.value) == 'f' and 1 or 0
  return { 'shown', since, count, holders, s.waiting, waiters_of(s), s.total or 0,
    freeze, freeze_left, active }
end

local shown = {}
for at = 2, last_key do shown[#shown + 1] = attempt(inspect, KEYS[at]) end
return refused or shown
