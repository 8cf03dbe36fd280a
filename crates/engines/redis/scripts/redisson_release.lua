-- Ends the grant of a lease id, or gives up its place in the queue of a fair lock.
-- KEYS: those that end a grant. ARGV: owner, lease id, for how many ms to remember that it was given up (0: not
--       at all), the verbs that publish, the tag of the name.
local keys = { lock = KEYS[1], mark = KEYS[2], records = KEYS[3], permits = KEYS[4], hold = KEYS[5],
  list = KEYS[6], scores = KEYS[7], beats = KEYS[8] }
local kind, record, other = grant_of(keys, ARGV[1], ARGV[2])
if other then return { 'foreign', other } end
local mark = (not kind or ARGV[3] ~= '0') and call('GET', keys.mark)
if ARGV[3] ~= '0' then
  local ms = math.max(tonumber(ARGV[3]), call('PTTL', keys.mark))
  call('SET', keys.mark, 'g' .. sub(mark or '', 2), 'PX', format('%.0f', ms))
end
if not kind then
  return give_up_place(keys, ARGV[1], ARGV[4], ARGV[5]) or { 'nothing', reason_of(mark) }
end
end_grant(kind, keys, ARGV[1], ARGV[2], record, ARGV[4], ARGV[5])
local since = held_for(record)
if not since then return 'released' end
return { 'released', tonumber(since) }
