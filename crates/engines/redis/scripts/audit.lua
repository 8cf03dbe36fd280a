-- The audit trail: a stream with one field `r` in each entry, the record. KEYS: its key. ARGV:
--   append: about how many records are kept, the record
--   read: the last id, the first id, how many entries at most
if ARGV[1] == 'append' then
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', 'r', ARGV[3])
  return 'done'
end
return { 'audit', redis.call('XREVRANGE', KEYS[1], ARGV[2], ARGV[3], 'COUNT', ARGV[4]) }
