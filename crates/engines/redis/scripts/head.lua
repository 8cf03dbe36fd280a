-- Every script starts with this file. Where the rules need times, a first line stands before it, which
-- `lua_constants.rs` builds and describes.
--
-- A name is given by its lock key. Its queue, its data and its tombstones are that key and a suffix,
-- so they are in the same slot. Each argument of a call costs half as much as a command. So these keys
-- are not arguments, nor is anything that has its default value.
--
-- A record describes a holder or a waiter. Its fields are at fixed positions:
--   1-32 lease id   33 state: g granted, r revoked, f freeze, q queued
--   34 waits: w if others may have to be served when it ends, else -
--   35 hold: l leased, d detached   36-51 client   52-67 inbox   68-83 token
--   84-99 since, in microseconds   100-104 the lease of a hand-off, in ms
--   105- terms (mode, hold, lease as requested), a semicolon, the holder's metadata
local ID_END, STATE, WAITS, HOLD, CLIENT, CLIENT_END, INBOX, INBOX_END = 32, 33, 34, 35, 36, 51, 52, 67
local TOKEN, TOKEN_END, SINCE, SINCE_END, HAND_OFF, HAND_OFF_END, TERMS = 68, 83, 84, 99, 100, 104, 105
-- The same positions for SETRANGE and GETRANGE, which count from 0.
local AT_STATE, AT_WAITS, AT_HOLD, AT_TOKEN, AT_HAND_OFF = '32', '33', '34', '67', '99'

-- How many digits of a lease id are shown. All of them would let a reader act as the holder.
local SHORT_ID = 8
-- How many digits the message of a grant has: as many as make it unique.
local GRANT_ID = 16

-- The most frequent cases come first, without functions: defining those of the rules costs as much as
-- ten commands. A string argument of a command costs less than a number.
local call, sub, find = redis.call, string.sub, string.find
