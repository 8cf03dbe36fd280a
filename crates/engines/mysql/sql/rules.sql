-- The rules of the lock table, as `crates/core/src/table` states them, for one name whose row in
-- `heads` the caller has locked: all other rows of a name are touched under that lock alone.
-- The procedures that a client calls are in `verbs.sql`; these here are called by them.
--
-- A name of ours in a procedure hides a column of the same name, so no two are alike: `n` is the
-- name and `t` the moment. Times are read by a statement of their own, after the wait for the row:
-- within a statement the server's clock stands still. `told` collects the inboxes that are to be
-- woken after the commit, eight bytes each; `handed` counts hand-overs of one command.

-- Adds or prolongs a mark; when there are too many, the one that would go first goes.
create procedure @p@remember_@r@(
    in n varbinary(512), in sort binary(1), in id binary(16), in ending bigint,
    in why varbinary(512), in ear binary(8)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    if not exists (select 1 from @p@marks m where m.name = n and m.kind = sort and m.lease_id = id)
        and (select count(*) from @p@marks m where m.name = n and m.kind = sort) >= 1024
    then
        delete from @p@marks where name = n and kind = sort order by until limit 1;
    end if;
    insert into @p@marks (name, kind, lease_id, until, reason, inbox)
    values (n, sort, id, ending, why, ear)
    on duplicate key update until = greatest(until, ending), reason = why, inbox = ear;
    update @p@heads set marks = (select count(*) from @p@marks m where m.name = n) where name = n;
end
$$

-- Counts a queue anew after entries have left it. A queue is read between its first and its next
-- place only: rows that were removed before stay readable for as long as an old snapshot is open.
create procedure @p@recount_@r@(in n varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare many int;
    declare silent, front, behind bigint;
    select h.first_place, h.next_place into front, behind from @p@heads h where h.name = n;
    select count(*), coalesce(min(w.heard), 0), min(w.place) into many, silent, front
    from @p@waiters w where w.name = n and w.place >= front and w.place < behind;
    update @p@heads
    set queued = many, heard_since = silent, first_place = coalesce(front, next_place)
    where name = n;
end
$$

-- Empties a holder's row.
create procedure @p@leave_@r@(in n varbinary(512), in row_at int)
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

create procedure @p@expire_@r@(in n varbinary(512), in t bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare id binary(16);
    declare whose, ear binary(8);
    declare row_at, came int;
    declare began, ended, duration, front, behind bigint;
    declare why varbinary(512);
    select h.first_place, h.next_place into front, behind from @p@heads h where h.name = n;
    each_one: loop
        set row_at = null;
        select h.slot, h.lease_id, h.client, h.inbox, h.claimed, h.since, h.deadline, h.lease,
            h.revoked
        into row_at, id, whose, ear, came, began, ended, duration, why
        from @p@holders h where h.name = n and h.lease_id is not null and h.deadline <= t
        order by h.token limit 1;
        if row_at is null then
            leave each_one;
        end if;
        if why is not null and ended + greatest(duration, 30000000) > t then
            call @p@remember_@r@(n, 'r', id, ended + greatest(duration, 30000000), why, ear);
        end if;
        if not came then
            -- The client was told and did not come: what else it has queued and not renewed since
            -- would only cost the others a claim window each.
            delete from @p@waiters
            where name = n and place >= front and place < behind
                and client = whose and heard <= began;
            if row_count() > 0 then
                call @p@recount_@r@(n);
            end if;
        end if;
        call @p@leave_@r@(n, row_at);
    end loop;
    update @p@heads set ends = (
        select coalesce(min(h.deadline), 0) from @p@holders h
        where h.name = n and h.lease_id is not null
    ) where name = n;
end
$$

-- Puts a grant into a row of its own: the first where nobody holds, else one that is empty, or a
-- new one. The caller has counted it in `heads`.
create procedure @p@grant_@r@(
    in n varbinary(512), in alone boolean, in id binary(16), in whose binary(8), in ear binary(8),
    in wanted binary(1), in so_many int, in of_all int, in sort binary(1), in duration bigint,
    in drawn bigint, in t bigint, in ending bigint, in came tinyint, in about_it varbinary(1024)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare row_at int default 0;
    if not alone then
        select min(h.slot) into row_at from @p@holders h where h.name = n and h.lease_id is null;
        if row_at is null then
            select count(*) into row_at from @p@holders h where h.name = n;
        end if;
    end if;
    insert into @p@holders values (
        n, row_at, id, whose, ear, wanted, so_many, of_all, sort, duration, sort, duration, drawn,
        t, ending, came, null, about_it
    ) on duplicate key update
        lease_id = id, client = whose, inbox = ear, mode = wanted, permits = so_many,
        total = of_all, asked_kind = sort, asked = duration, kind = sort, lease = duration,
        token = drawn, since = t, deadline = ending, claimed = came, revoked = null,
        metadata = about_it;
end
$$

-- Whether the holders leave room for one more of this mode.
create procedure @p@admits_@r@(
    in n varbinary(512), in wanted binary(1), in so_many int, in of_all int, out fits boolean
) reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare used_up bigint;
    declare strangers int;
    select coalesce(sum(h.permits), 0), coalesce(sum(h.mode <> wanted), 0) into used_up, strangers
    from @p@holders h where h.name = n and h.lease_id is not null;
    set fits = wanted <> 'x' and strangers = 0 and (wanted = 's' or used_up + so_many <= of_all);
end
$$

-- Gives a free name to the freeze, or to the head of the queue and whoever fits beside it.
create procedure @p@hand_over_@r@(
    in n varbinary(512), in t bigint, inout handed int, inout told varbinary(1024)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare id binary(16);
    declare whose, ear binary(8);
    declare wanted, sort binary(1);
    declare so_many, of_all, holding, waiting, kept_of int;
    declare front, found_at, duration, patience, drawn, frozen, ending, frozen_as bigint;
    declare about_it varbinary(1024);
    declare fits boolean;
    select h.held, h.queued, h.first_place, h.freeze_until, h.freeze_token, h.permits_of, h.ends,
        greatest(h.fence, a.floor)
    into holding, waiting, front, frozen, frozen_as, kept_of, ending, drawn
    from @p@heads h, @p@about a where h.name = n;
    giving: while frozen is null and waiting > 0 and handed < 64 do
        set found_at = null;
        select w.place, w.lease_id, w.client, w.inbox, w.mode, w.permits, w.total, w.kind, w.lease,
            w.claim_window, w.metadata
        into found_at, id, whose, ear, wanted, so_many, of_all, sort, duration, patience, about_it
        from @p@waiters w where w.name = n and w.place >= front order by w.place limit 1;
        if found_at is null then
            leave giving;
        end if;
        if found_at > front then
            -- Who stood before it has left.
            update @p@heads set first_place = found_at where name = n;
            set front = found_at;
        end if;
        if holding > 0 then
            call @p@admits_@r@(n, wanted, so_many, of_all, fits);
            if not fits then
                leave giving;
            end if;
        end if;
        set drawn = drawn + 1;
        delete from @p@waiters where name = n and place = found_at;
        call @p@grant_@r@(n, holding = 0, id, whose, ear, wanted, so_many, of_all, sort, duration,
            drawn, t, t + patience, 0, about_it);
        set ending = if(holding = 0, t + patience, least(ending, t + patience));
        set holding = holding + 1;
        set waiting = waiting - 1;
        set front = found_at + 1;
        set handed = handed + 1;
        -- Whoever finds no room there is found by the heartbeat.
        if ear <> x'0000000000000000' and length(told) <= 1016 and locate(ear, told) = 0 then
            set told = concat(told, ear);
        end if;
        update @p@heads set
            held = holding, queued = waiting, first_place = front, ends = ending, fence = drawn
        where name = n;
    end while;
    if holding = 0 and frozen is not null and frozen_as is null then
        update @p@heads set fence = drawn + 1, freeze_token = drawn + 1 where name = n;
    end if;
    if holding = 0 and waiting = 0 and kept_of is not null then
        update @p@heads set permits_of = null where name = n;
    end if;
end
$$

-- Brings a name up to date: every command does this first.
create procedure @p@settle_@r@(
    in n varbinary(512), in t bigint, inout handed int, inout told varbinary(1024)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare noted, holding, waiting int;
    declare ending, frozen, silent, front, behind bigint;
    select h.marks, h.held, h.queued, h.ends, h.freeze_until, h.heard_since, h.first_place,
        h.next_place
    into noted, holding, waiting, ending, frozen, silent, front, behind
    from @p@heads h where h.name = n;
    if noted > 0 then
        delete from @p@marks where name = n and until <= t;
        if row_count() > 0 then
            update @p@heads set marks = (select count(*) from @p@marks m where m.name = n)
            where name = n;
        end if;
    end if;
    if frozen <= t then
        update @p@heads set freeze_until = null, freeze_reason = null, freeze_token = null
        where name = n;
        set frozen = null;
    end if;
    if holding > 0 and ending <= t then
        call @p@expire_@r@(n, t);
        select h.held, h.queued, h.heard_since into holding, waiting, silent
        from @p@heads h where h.name = n;
    end if;
    if waiting > 0 and silent + 4000000 <= t then
        delete from @p@waiters
        where name = n and place >= front and place < behind and heard <= t - 4000000;
        call @p@recount_@r@(n);
    end if;
    if waiting > 0 or frozen is not null or holding = 0 then
        call @p@hand_over_@r@(n, t, handed, told);
    end if;
end
$$

-- Takes the row of a name for this command alone, and makes it if it is not there. The statement
-- locks the row for writing at once: who locks it for reading first waits for each other in a ring.
create procedure @p@take_@r@(in n varbinary(512), in t bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    insert into @p@heads (name, used) values (n, t) on duplicate key update used = t;
end
$$

-- How many stand before a place of a queue of `many`. It is counted among the first 64 places only:
-- every heartbeat asks, and would read the whole queue each time. Farther back it is exact while
-- nobody has left the middle of the queue, and else may be too large by those who have.
create procedure @p@ahead_@r@(
    in n varbinary(512), in front bigint, in stands bigint, in many int, out ahead int
) reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    if stands - front > 64 then
        set ahead = least(stands - front, many - 1);
    else
        select count(*) into ahead from @p@waiters w
        where w.name = n and w.place >= front and w.place < stands;
    end if;
end
$$

-- When a contender at this position looks again: with the heartbeat, and at the head also when the
-- first grant ends by time.
create procedure @p@next_look_@r@(in n varbinary(512), in ahead int, in t bigint, out look bigint)
reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare earliest bigint;
    set look = 1000000;
    if ahead = 0 then
        select least(
            coalesce(min(h.deadline), 9223372036854775807),
            coalesce((select f.freeze_until from @p@heads f where f.name = n), 9223372036854775807)
        ) into earliest from @p@holders h where h.name = n and h.lease_id is not null;
        set look = greatest(0, least(1000000, earliest - t));
    end if;
end
$$

-- Wakes those who listen: whoever has the lock of an inbox's name sleeps, and is told by being
-- woken. Only that sleep can be met: the name of the lock is drawn at random for each connection. A
-- server may forbid it (another account): the heartbeat finds it.
create procedure @p@wake_@r@(in told varbinary(1024))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare at_byte int default 1;
    declare who bigint;
    declare continue handler for sqlexception begin end;
    while at_byte < length(told) do
        set who = is_used_lock(concat('holdline_', lower(hex(substr(told, at_byte, 8)))));
        if who is not null then
            kill query who;
        end if;
        set at_byte = at_byte + 8;
    end while;
end
