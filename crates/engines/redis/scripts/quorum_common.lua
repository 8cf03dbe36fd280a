-- The rules that the scripts of a quorum's node share. The definition is `quorum` in the core:
-- `node` for what a node keeps of its set, `register` for what it keeps of a name.
--
-- What the node keeps (a hash): m marker, i id, w what it was called before, g gate, c configuration,
-- s its stamp, r the rest of its wait in µs, t whether by time, l the largest token it knows of, f its
-- floor, b the marker before, and p the pass: marker, slash, stamp, exactly while the gate is open.
-- The counter of a name: the token it stands at. The mark of a lease id that may not come back: `g`
-- when it was given up, else `-`, and, when it was revoked, `r` and the operator's words.
local format = string.format
local HIGHEST = '9007199254740991'
-- How long a counter is kept, the longest lease of any set, and the shortest memory of a mark, in ms.
local DAY, LONGEST, MEMORY = '86400000', 600000, 30000

local function stamp(time)
  local micros = time[2]
  if #micros < 6 then micros = sub('00000' .. micros, -6) end
  return time[1] .. micros
end

-- Names what stands under a key and is not ours.
local function found(key)
  local kind = call('TYPE', key).ok
  if kind == 'string' then return 'a string of ' .. #call('GET', key) .. ' bytes' end
  if kind == 'zset' then return 'a sorted set' end
  return 'a ' .. kind
end

-- Tells whether a key was of another type than asked for; every other error is raised.
local function is_mistyped(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
  return true
end

-- Returns the string under a key, or nil; and what stands there when it is none.
local function look(key)
  local value = redis.pcall('GET', key)
  if is_mistyped(value) then return nil, found(key) end
  return value or nil
end

local function is_token(text)
  return text and #text == 16 and not find(text, '%D') and text <= HIGHEST
end

local function is_record(text)
  return #text > 104 and find(sub(text, 1, 32), '^[0-9a-f]+$')
    and find(sub(text, 33, 35), '^[ghrf][-w][ld]$')
    and find(sub(text, 36, 67), '^[0-9a-f]+$') and find(sub(text, 68, 104), '^%d+$')
end

-- Tells whether a record was healed: taken from another node's, without a vote of this one. Places
-- 100-104 have no other use here, as nothing is handed over.
local HEALED = '00000'
local function is_healed(record) return sub(record, 100, 104) == HEALED end

-- Returns the record under a lock key, or nil; and what stands there when it is none.
local function holder(lock)
  local value, other = look(lock)
  if value and not is_record(value) then return nil, found(lock) end
  return value, other
end

-- Returns where a name's counter stands, or nil; and what stands there when it is none.
local function last_of(lock)
  local last, other = look(OWN .. lock .. ':1l')
  if last and not is_token(last) then other = found(OWN .. lock .. ':1l') end
  if other then return nil, other .. ' in the place of its counter' end
  return last
end

local function mark_of(lock, id)
  local mark, other = look(OWN .. lock .. ':1t:' .. id)
  if mark and not find(mark, '^[-g]r?') then other = found(OWN .. lock .. ':1t:' .. id) end
  if other then return nil, other .. ' in the place of a mark' end
  return mark
end

-- Returns the operator's words of a mark, or nil.
local function words_of(mark)
  return mark and sub(mark, 2, 2) == 'r' and sub(mark, 3) or nil
end

local function later(one, other)
  if other and other > one then return other end
  return one
end

-- Returns the largest token and the floor, if the node votes for who shows this pass; else nil and
-- what is to be answered.
local function admitted(pass)
  local kept = redis.pcall('HMGET', NODE, 'p', 'l', 'f', 'm', 'g', 's')
  if is_mistyped(kept) then
    return nil, { 'foreign', found(NODE) .. ' in the place of what the node keeps' }
  end
  if kept[1] ~= pass then return nil, { 'barred', kept[4], kept[5], kept[6] } end
  if is_token(kept[2]) and is_token(kept[3]) then return kept[2], kept[3] end
  return nil, { 'foreign', 'no number in the place of the largest token' }
end

-- Sets a name's counter, and the largest token that the node knows of.
local function count(lock, token, largest)
  call('SET', OWN .. lock .. ':1l', token, 'PX', DAY)
  if largest < token then call('HSET', NODE, 'l', token) end
end

-- Returns how many ms a lock key still has. One that somebody took its end away from gets one that no
-- lease outlives.
local function left_of(lock)
  local left = call('PTTL', lock)
  if left == -1 then
    left = LONGEST
    call('PEXPIRE', lock, left)
  end
  return left < 0 and 0 or left
end

-- Shows a record without what only its holder may know.
local function show(record) return sub(record, 1, 8) .. sub(record, 33) end

-- Tells those who wait that a name is free. Who may not publish lets them ask again by themselves.
local function wake(lock, record)
  if sub(record, 34, 34) == 'w' then
    redis.pcall('PUBLISH', sub(NODE, 1, -7) .. 'wake:' .. lock, '')
  end
end
