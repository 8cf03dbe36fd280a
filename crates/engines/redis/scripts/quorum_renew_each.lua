-- ARGV: the proof; for each lock key: lease id and `g`; hold (l, d) or w to inspect only, client, inbox;
--       lease in ms.
local accepts = redis.pcall('HGET', NODE, 'p') == ARGV[1]
local renewals, before = accepts and #KEYS - 1 or 0, 1
