-- KEYS: lock. ARGV: lease, and the lease in ms.
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'granted' end
return 'held'
