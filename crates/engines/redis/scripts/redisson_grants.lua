-- Finds and ends the grant of a lease id, whichever kind of lock it is of.
-- A grant's keys: the name, the mark of the lease id, the records, the permits, the read hold. Those that end
-- a grant have the queue of a fair lock behind them: its list, its scores, its heartbeats.

-- Returns the kind of a grant (lock, read, write, permits) and its record; nil if there is none; nil, nil
-- and what is under the name instead, if that is nothing of Redisson's.
local function grant_of(keys, owner, id)
  local found = redis.pcall('HMGET', keys.lock, 'mode', owner, owner .. ':write', RECORD)
  if found.err then
    local score = redis.pcall('ZSCORE', keys.permits, id)
    if type(score) == 'table' or not score or call('TYPE', keys.lock).ok ~= 'string' then
      local text = redis.pcall('GETRANGE', keys.lock, 0, 20)
      if type(text) == 'table' or not find(text, '^%-?%d+$') then
        local _, other = lock_at(keys.lock)
        return nil, nil, other
      end
      return nil
    end
    if tonumber(score) * 1000 <= microseconds() then return nil end
    return 'permits', call('HGET', keys.records, id)
  end
  local mode, reads, writes, record = unpack(found)
  if not mode and reads then return 'lock', record end
  if mode and writes then return 'write', call('HGET', keys.records, owner) end
  if mode and reads and call('EXISTS', keys.hold) == 1 then
    return 'read', call('HGET', keys.records, owner)
  end
  local _, other = lock_at(keys.lock)
  return nil, nil, other
end

local function end_permits(keys, id, record, verbs, tag)
  local ended = 0
  for number = 0, permits_of(record) - 1 do
    ended = ended + call('ZREM', keys.permits, permit_id(id, number))
  end
  call('HDEL', keys.records, id)
  local free = call('INCRBY', keys.lock, ended)
  publish(verbs, 'redisson_sc:' .. tag, format('%.0f', free))
end

local function end_read(keys, owner, verbs, tag)
  call('HDEL', keys.lock, owner)
  call('DEL', keys.hold)
  call('HDEL', keys.records, owner)
  if call('HLEN', keys.lock) > 1 then
    local lock = lock_at(keys.lock)
    -- A writer may read, too.
    if not lock or lock.mode == 'write' then return end
    local left = readers_left(tag, lock.counts)
    if left > 0 then return call('PEXPIRE', keys.lock, left) end
  end
  call('DEL', keys.lock, keys.records)
  publish(verbs, 'redisson_rwlock:' .. tag, '0')
end

-- Ends a grant, and wakes those that wait for it.
local function end_grant(kind, keys, owner, id, record, verbs, tag)
  if kind == 'permits' then return end_permits(keys, id, record, verbs, tag) end
  if kind == 'read' then return end_read(keys, owner, verbs, tag) end
  if kind == 'write' then
    call('HDEL', keys.lock, owner .. ':write')
    call('HDEL', keys.records, owner)
    if call('HLEN', keys.lock) > 1 then return call('HSET', keys.lock, 'mode', 'read') end
    call('DEL', keys.lock, keys.records)
    return publish(verbs, 'redisson_rwlock:' .. tag, '1')
  end
  call('DEL', keys.lock)
  publish(verbs, 'redisson_lock__channel:' .. tag, '0')
  wake_next(keys, verbs, tag)
end
