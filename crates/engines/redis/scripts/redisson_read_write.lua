-- KEYS: lock, mark of the lease id, records, read hold, and the token counter with fencing.
-- ARGV: owner, lease in ms, hold and terms as requested, the holder's metadata, k if the id must be known,
--       r to read or w to write, the tag of the name.
local LOCK, MARK, RECORDS, HOLD, COUNTER = unpack(KEYS)
local owner, lease, terms, tag = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[7]
local writes = ARGV[6] == 'w'
local field = writes and owner .. ':write' or owner
local lock, other = lock_at(LOCK)
other = other or (lock and not lock.mode and MUTEX)
if other then return ended(call('GET', MARK)) or { 'foreign', other } end
-- The hash outlives its last reader if that did not release.
local is_over = lock and lock.mode == 'read' and readers_left(tag, lock.counts) <= 0
local held = lock and not is_over and (lock.counts[owner .. ':write']
  or (lock.counts[owner] and call('EXISTS', HOLD) == 1))
if held then
  local record = call('HGET', RECORDS, owner)
  if not record then return { 'foreign', 'a grant of ours without its record' } end
  if not has_terms(record, terms) then return { 'terms' } end
  local key = writes and LOCK or HOLD
  return { 'granted', sub(record, 1, TOKEN_END), extend(key, left_of(key) or lease) }
end
local refusal = ended(call('GET', MARK), ARGV[5])
if refusal then return refusal end
if lock and not is_over and (writes or lock.mode == 'write') then
  local holder, count = nil, nil
  for at, holds in pairs(lock.counts) do
    if lock.mode == 'write' then
      if find(at, WRITER) then holder, count = at, holds end
    elseif not holder and read_left(tag, at, holds) > 0 then
      holder, count = at, holds
    end
  end
  local record = holder and call('HGET', RECORDS, (string.gsub(holder, WRITER, '')))
  local left = left_of(LOCK) or (record and extend(LOCK, MAX_LEASE)) or false
  local view = holder or false
  return { 'busy', format('%.0f', microseconds()), left, view, count or false, record or false }
end
local token, problem = draw(COUNTER)
if not token then return { 'foreign', problem } end
if is_over then call('DEL', LOCK, RECORDS) end
call('HSET', LOCK, 'mode', writes and 'write' or 'read', field, '1')
if not writes then call('SET', HOLD, '1', 'PX', lease) end
call('HSET', RECORDS, owner, record_of(token, terms, ARGV[4]))
extend(RECORDS, lease + MARGIN)
extend(LOCK, lease)
return token
