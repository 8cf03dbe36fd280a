-- The suffixes of a name's keys. In the queue, scores below TIMES are positions; above, they are the
-- times of heartbeats, in microseconds.
local QUEUE, DATA, TOMBSTONE, TIMES = ':1q', ':1d', ':1t:', '1000000000000000'
local NO_INBOX, NO_TOKEN = '0000000000000000', '0000000000000000'
