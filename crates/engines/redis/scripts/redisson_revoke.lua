-- KEYS: those that end a grant. ARGV: owner, lease id, token of 16 digits or nothing, for how many ms to remember, the
--       operator's reason, the verbs that publish, the tag of the name.
local keys = { lock = KEYS[1], mark = KEYS[2], records = KEYS[3], permits = KEYS[4], hold = KEYS[5],
  list = KEYS[6], scores = KEYS[7], beats = KEYS[8] }
local kind, record, other = grant_of(keys, ARGV[1], ARGV[2])
if other then return { 'foreign', other } end
if not kind or not record then return 'nothing' end
if ARGV[3] ~= '' and sub(record, 1, TOKEN_END) ~= ARGV[3] then return 'nothing' end
end_grant(kind, keys, ARGV[1], ARGV[2], record, ARGV[6], ARGV[7])
call('SET', keys.mark, '-r' .. ARGV[5], 'PX', ARGV[4])
return 'done'
