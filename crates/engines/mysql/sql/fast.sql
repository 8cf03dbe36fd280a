-- The fast path: one prepared statement grants a free name, or releases it, without a transaction and
-- without a row of `holders`. The server's reply has the result: how many rows were changed, and
-- `last_insert_id`. If no row was changed, the procedure of the verb decides (`verbs.sql`).
--
-- The conditions ensure that `settle` would change nothing.
--
-- An UPDATE assigns its columns from left to right, and later expressions read the new values. The SQL
-- mode that the handshake sets has no SIMULTANEOUS_ASSIGNMENT, which would change that.

-- Grants the name to an exclusive holder. `last_insert_id` returns the fencing token.
update @p@heads set
    fence = last_insert_id(
        greatest(fence, (select a.floor from @p@about a where a.only_row = 1)) + 1
    ),
    held = 1, permits_of = null, lease_id = ?, client = ?, inbox = ?, kind = ?, lease = ?, metadata = ?,
    used = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), since = used, ends = used + lease
where name = ? and held = 0 and queued = 0 and freeze_until is null and marks = 0
$$

-- Releases a grant of the statement above, unless it was renewed since, or `settle` has moved it to
-- `holders`. `last_insert_id` returns how long it was held.
update @p@heads set
    used = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
    since = last_insert_id(greatest(0, used - since)), held = 0, ends = 0, lease_id = null
where name = ? and lease_id = ? and queued = 0 and freeze_until is null and marks = 0
    and ends > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
