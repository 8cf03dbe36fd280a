-- The rules of the lock table, as `crates/core/src/table` states them, for one name. The caller has
-- locked its row in `heads`; the other rows of a name are read and written only under that lock.
-- The procedures that a client calls are in `verbs.sql`; they call these.
--
-- A parameter or variable hides a column of the same name, so it never has the name of a column:
-- `n` is the name and `t` the moment. The time is read by a statement of its own, after the wait for
-- the row, because the server's clock does not advance within one statement. `to_wake` collects the
-- inboxes to wake after the commit, eight bytes each. `handed` counts the hand-offs of one command.
--
-- An UPDATE assigns its columns from left to right, and later expressions read the new values. Procedures
-- keep the SQL mode with which they were created, and it has no SIMULTANEOUS_ASSIGNMENT.

-- Adds or prolongs a mark. If there are 1024 of its kind (`MAX_REMEMBERED` in `crates/core/src/table`),
-- removes the one that expires first.
create procedure @p@add_mark_@r@(
    in n varbinary(512), in mark_kind binary(1), in id binary(16), in ending bigint,
    in reason_text varbinary(512), in inbox_id binary(8)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    if not exists (select 1 from @p@marks m where m.name = n and m.kind = mark_kind and m.lease_id = id)
        and (select count(*) from @p@marks m where m.name = n and m.kind = mark_kind) >= 1024
    then
        delete from @p@marks where name = n and kind = mark_kind order by until limit 1;
    end if;
    insert into @p@marks (name, kind, lease_id, until, reason, inbox)
    values (n, mark_kind, id, ending, reason_text, inbox_id)
    on duplicate key update until = greatest(until, ending), reason = reason_text, inbox = inbox_id;
    update @p@heads set marks = (select count(*) from @p@marks m where m.name = n) where name = n;
end
$$

-- Counts a queue again after entries were removed. A queue is read only between its first and its
-- next place: removed rows are scanned for as long as an old snapshot is open.
create procedure @p@recount_@r@(in n varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare many int;
    declare seen_since, first_queued, end_place bigint;
    select h.first_place, h.next_place into first_queued, end_place from @p@heads h where h.name = n;
    select count(*), coalesce(min(w.heard), 0), min(w.place) into many, seen_since, first_queued
    from @p@waiters w where w.name = n and w.place >= first_queued and w.place < end_place;
    update @p@heads
    set queued = many, heard_since = seen_since, first_place = coalesce(first_queued, next_place)
    where name = n;
end
$$

-- Empties a holder's row, and counts one holder less.
create procedure @p@clear_holder_@r@(in n varbinary(512), in row_at int)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    update @p@holders set
        lease_id = null, inbox = x'0000000000000000', revoked = null, metadata = ''
    where name = n and slot = row_at;
    update @p@heads set
        held = held - 1,
        ends = if(held = 0, 0, ends)
    where name = n;
end
$$

-- Ends the grants whose lease is over, the oldest first. Marks those that were revoked, so that their
-- holders learn the reason.
create procedure @p@expire_@r@(in n varbinary(512), in t bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare id binary(16);
    declare inbox_id binary(8);
    declare row_at int;
    declare ended, duration bigint;
    declare reason_text varbinary(512);
    each_one: loop
        set row_at = null;
        select h.slot, h.lease_id, h.inbox, h.deadline, h.lease, h.revoked
        into row_at, id, inbox_id, ended, duration, reason_text
        from @p@holders h where h.name = n and h.lease_id is not null and h.deadline <= t
        order by h.token limit 1;
        if row_at is null then
            leave each_one;
        end if;
        if reason_text is not null and ended + greatest(duration, @min_tombstone@) > t then
            call @p@add_mark_@r@(n, 'r', id, ended + greatest(duration, @min_tombstone@), reason_text, inbox_id);
        end if;
        call @p@clear_holder_@r@(n, row_at);
    end loop;
    update @p@heads set ends = (
        select coalesce(min(h.deadline), 0) from @p@holders h
        where h.name = n and h.lease_id is not null
    ) where name = n;
end
$$

-- Writes a grant into a row of its own: slot 0 for the only holder, otherwise an empty row or a new
-- one. The caller has counted it in `heads`.
create procedure @p@grant_@r@(
    in n varbinary(512), in alone boolean, in id binary(16), in client_id binary(8), in inbox_id binary(8),
    in lock_mode binary(1), in permit_count int, in permits_total int, in lease_kind binary(1), in duration bigint,
    in last_token bigint, in t bigint, in ending bigint, in news_state tinyint, in holder_metadata varbinary(1024)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare row_at int default 0;
    if not alone then
        select min(h.slot) into row_at from @p@holders h where h.name = n and h.lease_id is null;
        if row_at is null then
            -- Not the number of rows: somebody may have removed one by hand.
            select coalesce(max(h.slot) + 1, 0) into row_at from @p@holders h where h.name = n;
        end if;
    end if;
    insert into @p@holders values (
        n, row_at, id, client_id, inbox_id, lock_mode, permit_count, permits_total, lease_kind, duration, lease_kind, duration, last_token,
        t, ending, news_state, null, holder_metadata
    ) on duplicate key update
        lease_id = id, client = client_id, inbox = inbox_id, mode = lock_mode, permits = permit_count,
        total = permits_total, asked_kind = lease_kind, asked = duration, kind = lease_kind, lease = duration,
        token = last_token, since = t, deadline = ending, news = news_state, revoked = null,
        metadata = holder_metadata;
end
$$

-- Returns whether one more contender of this mode fits beside the holders.
create procedure @p@admits_@r@(
    in n varbinary(512), in lock_mode binary(1), in permit_count int, in permits_total int, out fits boolean
) reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare used_up bigint;
    declare other_modes int;
    select coalesce(sum(h.permits), 0), coalesce(sum(h.mode <> lock_mode), 0) into used_up, other_modes
    from @p@holders h where h.name = n and h.lease_id is not null;
    set fits = lock_mode <> 'x' and other_modes = 0 and (lock_mode = 's' or used_up + permit_count <= permits_total);
end
$$

-- Gives a free name to the freeze, or to the first contenders in the queue that fit together, at most 64
-- in one command (`HAND_OVER_BATCH` in `crates/core/src/contract.rs`).
create procedure @p@hand_over_@r@(
    in n varbinary(512), in t bigint, inout handed int, inout to_wake varbinary(1024)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare id binary(16);
    declare client_id, inbox_id binary(8);
    declare lock_mode, lease_kind binary(1);
    declare permit_count, permits_total, holding, waiting, total_in_use int;
    declare first_queued, found_at, duration, first_lease, last_token, frozen_until, ending, frozen_token bigint;
    declare holder_metadata varbinary(1024);
    declare fits boolean;
    declare news_state tinyint;
    select h.held, h.queued, h.first_place, h.freeze_until, h.freeze_token, h.permits_of, h.ends,
        greatest(h.fence, a.floor)
    into holding, waiting, first_queued, frozen_until, frozen_token, total_in_use, ending, last_token
    from @p@heads h, @p@about a where h.name = n;
    giving: while frozen_until is null and waiting > 0 and handed < 64 do
        set found_at = null;
        select w.place, w.lease_id, w.client, w.inbox, w.mode, w.permits, w.total, w.kind, w.lease,
            w.hand_off_lease, w.metadata
        into found_at, id, client_id, inbox_id, lock_mode, permit_count, permits_total, lease_kind, duration, first_lease, holder_metadata
        from @p@waiters w where w.name = n and w.place >= first_queued order by w.place limit 1;
        if found_at is null then
            leave giving;
        end if;
        if found_at > first_queued then
            -- The entries before it were removed.
            update @p@heads set first_place = found_at where name = n;
            set first_queued = found_at;
        end if;
        if holding > 0 then
            call @p@admits_@r@(n, lock_mode, permit_count, permits_total, fits);
            if not fits then
                leave giving;
            end if;
        end if;
        set last_token = last_token + 1;
        delete from @p@waiters where name = n and place = found_at;
        -- `wake` frees the lock after the commit: so the inbox knows that the grant is flushed.
        set news_state = if(
            inbox_id <> x'0000000000000000' and get_lock(concat('holdline_', lower(hex(id))), 0) = 1, 3, 1
        );
        call @p@grant_@r@(n, holding = 0, id, client_id, inbox_id, lock_mode, permit_count, permits_total, lease_kind, duration,
            last_token, t, t + first_lease, news_state, holder_metadata);
        set ending = if(holding = 0, t + first_lease, least(ending, t + first_lease));
        set holding = holding + 1;
        set waiting = waiting - 1;
        set first_queued = found_at + 1;
        set handed = handed + 1;
        -- `to_wake` has room for 1024 bytes. A waiter for which there is no room left finds the hand-off
        -- by its heartbeat.
        if inbox_id <> x'0000000000000000' and length(to_wake) <= 1016 and locate(inbox_id, to_wake) = 0 then
            set to_wake = concat(to_wake, inbox_id);
        end if;
        update @p@heads set
            held = holding, queued = waiting, first_place = first_queued, ends = ending, fence = last_token
        where name = n;
    end while;
    if holding = 0 and frozen_until is not null and frozen_token is null then
        update @p@heads set fence = last_token + 1, freeze_token = last_token + 1 where name = n;
    end if;
    if holding = 0 and waiting = 0 and total_in_use is not null then
        update @p@heads set permits_of = null where name = n;
    end if;
end
$$

-- Moves a holder that took the name by the fast path to its row in `holders`, where the rules look.
create procedure @p@move_fast_holder_@r@(in n varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare id binary(16);
    declare client_id, inbox_id binary(8);
    declare lease_kind binary(1);
    declare duration, last_token, began, ending bigint;
    declare holder_metadata varbinary(1024);
    select h.lease_id, h.client, h.inbox, h.kind, h.lease, h.fence, h.since, h.ends, h.metadata
    into id, client_id, inbox_id, lease_kind, duration, last_token, began, ending, holder_metadata
    from @p@heads h where h.name = n;
    call @p@grant_@r@(n, true, id, client_id, inbox_id, 'x', 0, 0, lease_kind, duration, last_token,
        began, ending, 0, holder_metadata);
    update @p@heads set lease_id = null where name = n;
end
$$

-- Settles a name: every command does this first.
create procedure @p@settle_@r@(
    in n varbinary(512), in t bigint, inout handed int, inout to_wake varbinary(1024)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare mark_count, holding, waiting, rows_found, permits_total int;
    declare ending, earliest, frozen_until, seen_since, first_queued, end_place bigint;
    declare is_fast boolean;
    select h.marks, h.held, h.queued, h.ends, h.freeze_until, h.heard_since, h.first_place,
        h.next_place, h.lease_id is not null
    into mark_count, holding, waiting, ending, frozen_until, seen_since, first_queued, end_place,
        is_fast
    from @p@heads h where h.name = n;
    if is_fast then
        call @p@move_fast_holder_@r@(n);
    end if;
    select count(*), coalesce(min(h.deadline), 0), max(h.total) into rows_found, earliest, permits_total
    from @p@holders h where h.name = n and h.lease_id is not null;
    if rows_found <> holding then
        -- Somebody has removed rows by hand: of holders, or the row of the name. A holder without a row
        -- has lost its lease; one that has a row keeps it.
        update @p@heads set
            held = rows_found, ends = earliest,
            permits_of = if(rows_found > 0, nullif(permits_total, 0), if(queued > 0, permits_of, null))
        where name = n;
        set holding = rows_found, ending = earliest;
    end if;
    if mark_count > 0 then
        delete from @p@marks where name = n and until <= t;
        if row_count() > 0 then
            update @p@heads set marks = (select count(*) from @p@marks m where m.name = n)
            where name = n;
        end if;
    end if;
    if frozen_until <= t then
        update @p@heads set freeze_until = null, freeze_reason = null, freeze_token = null
        where name = n;
        set frozen_until = null;
    end if;
    if holding > 0 and ending <= t then
        call @p@expire_@r@(n, t);
        select h.held, h.queued, h.heard_since into holding, waiting, seen_since
        from @p@heads h where h.name = n;
    end if;
    if waiting > 0 and seen_since + @queue_silence@ <= t then
        delete from @p@waiters
        where name = n and place >= first_queued and place < end_place and heard <= t - @queue_silence@;
        call @p@recount_@r@(n);
    end if;
    if waiting > 0 or frozen_until is not null or holding = 0 then
        call @p@hand_over_@r@(n, t, handed, to_wake);
    end if;
end
$$

-- Locks the row of a name for this command, and makes it if it is missing. The statement takes the
-- write lock at once: two sessions that took a read lock first would deadlock.
--
-- Rows of the name may remain in `holders` and `waiters` after its row was removed by hand. Then the next
-- token is larger than theirs, and the old queue is deleted, because its places begin anew.
create procedure @p@lock_name_@r@(in n varbinary(512), in t bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    insert into @p@heads (name, used, fence)
    select n, t, coalesce(max(h.token), 0) from @p@holders h where h.name = n
    on duplicate key update used = t;
    -- 1: the row was inserted; 2: it was there.
    if row_count() = 1 then
        delete from @p@waiters where name = n;
    end if;
end
$$

-- Returns how many of `many` entries are before a place. Every heartbeat asks this, so the whole queue
-- is not read: entries are counted among the first 64 places only. Farther back the result is exact
-- unless entries have left the middle of the queue; then it may be too large by their number.
create procedure @p@ahead_@r@(
    in n varbinary(512), in first_queued bigint, in at_place bigint, in many int, out ahead int
) reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    if at_place - first_queued > 64 then
        set ahead = least(at_place - first_queued, many - 1);
    else
        select count(*) into ahead from @p@waiters w
        where w.name = n and w.place >= first_queued and w.place < at_place;
    end if;
end
$$

-- Returns when a contender at this position should ask again: with the heartbeat, and at the head
-- also when the first grant expires.
create procedure @p@next_look_@r@(in n varbinary(512), in ahead int, in t bigint, out look bigint)
reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare earliest bigint;
    set look = @queue_heartbeat@;
    if ahead = 0 then
        select least(
            coalesce(min(h.deadline), 9223372036854775807),
            coalesce((select f.freeze_until from @p@heads f where f.name = n), 9223372036854775807)
        ) into earliest from @p@holders h where h.name = n and h.lease_id is not null;
        set look = greatest(0, least(@queue_heartbeat@, earliest - t));
    end if;
end
$$

-- Wakes the clients of some inboxes, after the commit. First frees the locks of the leases that this
-- session has handed over: the commit was flushed.
--
-- The connection that holds the named lock of an inbox sleeps in
-- `listen`, and `kill query` ends its sleep. The lock's name is random for each connection, so no other
-- statement can be hit. If the server forbids it (another account), the heartbeat finds the change.
create procedure @p@wake_@r@(in to_wake varbinary(1024))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare at_byte int default 1;
    declare sleeper bigint;
    declare continue handler for sqlexception begin end;
    if to_wake <> '' then
        set sleeper = release_all_locks();
    end if;
    while at_byte < length(to_wake) do
        set sleeper = is_used_lock(concat('holdline_', lower(hex(substr(to_wake, at_byte, 8)))));
        if sleeper is not null then
            kill query sleeper;
        end if;
        set at_byte = at_byte + 8;
    end while;
end
