-- KEYS: counter, and the lock key of each renewal.
-- ARGV: for each renewal: lease id and `g`; hold (l, d) or w for a queue heartbeat, client, inbox;
--       lease in ms.
local accepts, renewals, before = true, #ARGV / 3, 0
