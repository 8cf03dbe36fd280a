-- The suffixes of a name's keys. In the queue, scores below TIMES are positions; above, they are the
-- times of heartbeats, in µs.
local QUEUE, DATA, TOMBSTONE, TIMES = ':1q', ':1d', ':1t:', '1000000000000000'
-- A waiter that sends no heartbeat for SILENCE_S leaves the queue. CLAIM_MARGIN is how much longer than
-- its claim window the key of a hand-off lasts. Queue and data last KEEP, which is renewed when less
-- than KEEP_LEAST is left. All but the first are in ms.
local SILENCE_S, HEARTBEAT, CLAIM_MARGIN, KEEP, KEEP_LEAST = 4, 1000, 9000, '19000', 9000
local NO_INBOX, NO_TOKEN = '0000000000000000', '0000000000000000'
