-- The rules that the scripts of a quorum's node share. The definition is `quorum` in the core: `node` for
-- the state of a node in its set, `register` for the state of a name.
--
-- The node's state is a hash: m marker, i id, w its previous id, g state, c configuration, s the
-- configuration's stamp, r the rest of its quarantine in microseconds, t whether that is by time, l the largest
-- token that it knows, f its floor, b the previous marker, o of which master the server was a replica in
-- this run and until when, and p the proof: marker, slash, stamp, present exactly while the node votes.
-- The counter of a name is its last token. The mark of a lease id that may not return is `g` if it was
-- given up, else `-`; if it was revoked, `r` and the operator's reason follow.
local format = string.format
local HIGHEST = '9007199254740991'
-- How long a counter lasts, in ms.
local COUNTER_LIFE = '86400000'
local NO_INBOX = string.rep('0', 16)

-- Returns the reply to TIME as microseconds in 16 digits.
local function stamp(time)
  local text = time[1] .. time[2]
  if #text < 16 then text = format('%010.0f%06.0f', time[1], time[2]) end
  return text
end

-- Describes the value of a key that is not ours.
local function describe(key)
  local kind = call('TYPE', key).ok
  if kind == 'string' then return 'a string of ' .. #call('GET', key) .. ' bytes' end
  if kind == 'zset' then return 'a sorted set' end
  return 'a ' .. kind
end

-- Returns whether a command failed because of the key's type; raises every other error.
local function is_mistyped(reply)
  if type(reply) ~= 'table' or not reply.err then return false end
  if not find(reply.err, 'WRONGTYPE', 1, true) then error(reply.err) end
  return true
end

-- Returns the string under a key, or nil; and a description of any other value.
local function look(key)
  local value = redis.pcall('GET', key)
  if is_mistyped(value) then return nil, describe(key) end
  return value or nil
end

local function is_token(text)
  return text and #text == 16 and not find(text, '%D') and text <= HIGHEST
end

local function is_record(text)
  return #text >= TERMS and find(sub(text, 1, ID_END), '^[0-9a-f]+$')
    and find(sub(text, STATE, HOLD), '^[ghrf][-w][ld]$')
    and find(sub(text, CLIENT, INBOX_END), '^[0-9a-f]+$') and find(sub(text, TOKEN, HAND_OFF_END), '^%d+$')
end

-- Returns whether a record was healed: copied from another node, without a vote of this one. The
-- lease of a hand-off marks that, as there are no hand-offs here.
local HEALED = '00000'
local function is_healed(record) return sub(record, HAND_OFF, HAND_OFF_END) == HEALED end

-- Returns the record under a lock key, or nil; and a description of any other value.
local function holder(lock)
  local value, other = look(lock)
  if value and not is_record(value) then return nil, describe(lock) end
  return value, other
end

-- Returns a name's counter, or nil; and a description of any other value.
local function last_of(lock)
  local last, other = look(OWN .. lock .. ':1l')
  if last and not is_token(last) then other = describe(OWN .. lock .. ':1l') end
  if other then return nil, other .. ' in place of its counter' end
  return last
end

local function mark_of(lock, id)
  local mark, other = look(OWN .. lock .. ':1t:' .. id)
  if mark and not find(mark, '^[-g]r?') then other = describe(OWN .. lock .. ':1t:' .. id) end
  if other then return nil, other .. ' in place of a mark' end
  return mark
end

-- Returns the operator's reason of a mark, or nil.
local function reason_of(mark)
  return mark and sub(mark, 2, 2) == 'r' and sub(mark, 3) or nil
end

local function later(one, other)
  if other and other > one then return other end
  return one
end

-- Returns the largest token and the floor, if the node votes for a request with this proof; else nil
-- and the reply.
local function admitted(proof)
  local kept = redis.pcall('HMGET', NODE, 'p', 'l', 'f', 'm', 'g', 's')
  if is_mistyped(kept) then
    return nil, { 'foreign', describe(NODE) .. ' in place of the state of the node' }
  end
  if kept[1] ~= proof then return nil, { 'barred', kept[4], kept[5], kept[6] } end
  if is_token(kept[2]) and is_token(kept[3]) then return kept[2], kept[3] end
  return nil, { 'foreign', 'no number in place of the largest token' }
end

-- Sets a name's counter, and the largest token that the node knows.
local function count(lock, token, largest)
  call('SET', OWN .. lock .. ':1l', token, 'PX', COUNTER_LIFE)
  if largest < token then call('HSET', NODE, 'l', token) end
end

-- Returns how many ms a lock key has left. If somebody removed its expiry, sets one that no lease
-- exceeds.
local function left_of(lock)
  local left = call('PTTL', lock)
  if left == -1 then
    left = MAX_LEASE
    call('PEXPIRE', lock, left)
  end
  return left < 0 and 0 or left
end

-- Returns a record without the secret part of its lease id.
local function redact(record) return sub(record, 1, SHORT_ID) .. sub(record, STATE) end

-- Announces to waiters that a name is free. Without the right to publish, waiters repeat their requests.
local function wake(lock, record)
  if sub(record, WAITS, WAITS) == 'w' then
    redis.pcall('PUBLISH', sub(NODE, 1, -7) .. 'wake:' .. lock, '')
  end
end
