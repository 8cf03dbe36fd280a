-- The procedures that a client calls: each is one command and one transaction. It begins with a
-- rollback: a command that the server has killed leaves its transaction open, and beginning another
-- one would commit it. The reply is sent before the commit, and is valid only if the call succeeds.

-- Grants the name, queues the contender, or refuses it. If the lease id has a grant or an entry already,
-- it gets the same reply again. With `is_known`, only an existing grant or entry is
-- returned.
--
-- Outcomes besides those of the lock table: `kind` if the name is in use in another mode, `terms` if the
-- lease id was used with another mode or lease, `full` if the queue is.
create procedure @p@acquire_@r@(
    in n varbinary(512), in id binary(16), in client_id binary(8), in inbox_id binary(8),
    in lock_mode binary(1), in permit_count int, in permits_total int, in lease_kind binary(1), in duration bigint,
    in first_lease bigint, in holder_metadata varbinary(1024), in may_queue boolean, in is_known boolean,
    in max_waiters int
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare to_wake varbinary(1024) default '';
    declare handed int default 0;
    declare t, last_token, rest, holder_end, first_queued, own_place bigint;
    declare row_found, same boolean default null;
    declare waiting, row_at, ahead int;
    declare result varchar(16);
    declare reason_text varbinary(512);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    if lock_mode = 'x' and is_known then
        -- The common question: the name was handed over to the lease id alone. Its whole lease begins.
        -- The write makes the commit wait until the hand-off is flushed.
        select true into row_found from @p@heads h
        where h.name = n and h.held = 1 and h.freeze_until is null and h.marks = 0 for update;
        update @p@holders set news = 0, lease = duration, deadline = greatest(deadline, t + duration)
        where row_found and name = n and slot = 0 and lease_id = id and news in (1, 3) and mode = 'x'
            and deadline > t and asked = duration and asked_kind = lease_kind;
        if row_count() = 1 then
            select 'granted' as outcome, h.token as token, h.deadline - t as rest
            from @p@holders h where h.name = n and h.slot = 0;
            commit;
            leave this;
        end if;
        set row_found = null;
    elseif lock_mode = 'x' and may_queue then
        -- The common wait: nothing has to be settled, and one more entry is added to the queue.
        update @p@heads set
            heard_since = if(queued = 0, t, heard_since),
            first_place = if(queued = 0, next_place, first_place),
            queued = queued + 1, next_place = next_place + 1, used = t
        where name = n and held = 1 and ends > t and lease_id is null and freeze_until is null
            and marks = 0 and queued < max_waiters
            and (queued = 0 or heard_since + @queue_silence@ > t);
        if row_count() = 1 then
            -- The update may have waited for the row.
            set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
            insert ignore into @p@waiters
            select n, h.next_place - 1, id, client_id, inbox_id, 'x', 0, 0, lease_kind, duration,
                first_lease, t, t, holder_metadata
            from @p@heads h join @p@holders o on o.name = h.name and o.slot = 0
            where h.name = n and h.ends > t and o.lease_id <> id and o.mode = 'x';
            if row_count() = 1 then
                select 'queued' as outcome, h.queued - 1 as place,
                    if(h.queued > 1, @queue_heartbeat@,
                        greatest(0, least(@queue_heartbeat@, o.deadline - t))) as look,
                    substr(o.lease_id, 1, 4) as by_id, o.token as by_token, o.mode as by_mode,
                    o.permits as by_permits, o.total as by_total, greatest(0, t - o.since) as by_held,
                    greatest(0, o.deadline - t) as by_rest, o.metadata as by_metadata
                from @p@heads h join @p@holders o on o.name = h.name and o.slot = 0 where h.name = n;
                commit;
                leave this;
            end if;
            -- The id has a grant or an entry, or rows were removed by hand.
            rollback;
            set transaction isolation level read committed;
            start transaction;
        end if;
    end if;
    select true into row_found from @p@heads h where h.name = n for update;
    if row_found is null then
        if is_known then
            select 'unknown' as outcome;
            commit;
            leave this;
        end if;
        call @p@lock_name_@r@(n, t);
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, to_wake);
    if exists (
        select 1 from @p@marks m where m.name = n and m.kind = 't' and m.lease_id = id
    ) then
        set result = 'cancelled';
    else
        select 'revoked', m.reason into result, reason_text from @p@marks m
        where m.name = n and m.kind = 'r' and m.lease_id = id;
    end if;
    if result is null then
        select h.slot, h.token, h.deadline,
            (h.mode, h.permits, h.total, h.asked_kind, h.asked)
                = (lock_mode, permit_count, permits_total, lease_kind, duration)
        into row_at, last_token, holder_end, same
        from @p@holders h where h.name = n and h.lease_id = id;
        if row_at is not null and not same then
            set result = 'terms';
        elseif row_at is not null then
            if is_known and holder_end < t + duration then
                -- A contender that was queued asks about its hand-off: its whole lease begins.
                update @p@holders set lease = duration, deadline = t + duration
                where name = n and slot = row_at and revoked is null;
                if row_count() = 1 then
                    set holder_end = t + duration;
                end if;
            end if;
            update @p@holders set news = 0 where name = n and slot = row_at and news in (1, 3);
            -- The grant may not be flushed yet. A write makes this commit wait until it is.
            update @p@heads set used = t where name = n;
            set result = 'granted';
            set rest = holder_end - t;
        end if;
    end if;
    if result is null then
        select w.place,
            (w.mode, w.permits, w.total, w.kind, w.lease)
                = (lock_mode, permit_count, permits_total, lease_kind, duration)
        into own_place, same from @p@waiters w where w.name = n and w.lease_id = id;
        if same is not null and not same then
            set result = 'terms';
        elseif same then
            update @p@waiters set heard = t, inbox = inbox_id where name = n and place = own_place;
            select h.first_place, h.queued into first_queued, waiting from @p@heads h where h.name = n;
            call @p@ahead_@r@(n, first_queued, own_place, waiting, ahead);
            set result = 'queued';
        end if;
    end if;
    if result is null and is_known then
        set result = 'unknown';
    elseif result is null then
        call @p@fresh_@r@(n, id, client_id, inbox_id, lock_mode, permit_count, permits_total, lease_kind, duration, first_lease,
            holder_metadata, may_queue, max_waiters, t, result, last_token, rest, ahead);
    end if;
    call @p@answer_@r@(n, t, result, last_token, rest, ahead, reason_text);
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Handles a lease id that is new to the name: grants the name, queues the id, or refuses it.
create procedure @p@fresh_@r@(
    in n varbinary(512), in id binary(16), in client_id binary(8), in inbox_id binary(8),
    in lock_mode binary(1), in permit_count int, in permits_total int, in lease_kind binary(1), in duration bigint,
    in first_lease bigint, in holder_metadata varbinary(1024), in may_queue boolean, in max_waiters int,
    in t bigint, out result varchar(16), out last_token bigint, out rest bigint, out ahead int
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare frozen_until, end_place, latest bigint;
    declare holding, waiting, total_in_use int;
    declare fits boolean default true;
    select h.held, h.queued, h.permits_of, h.freeze_until, h.next_place, greatest(h.fence, a.floor)
    into holding, waiting, total_in_use, frozen_until, end_place, last_token
    from @p@heads h, @p@about a where h.name = n;
    if (holding > 0 or waiting > 0) and not (total_in_use <=> nullif(permits_total, 0)) then
        set result = 'kind';
        leave this;
    end if;
    if holding > 0 then
        call @p@admits_@r@(n, lock_mode, permit_count, permits_total, fits);
    end if;
    if frozen_until is null and waiting = 0 and fits then
        set result = 'granted';
        set last_token = last_token + 1;
        set rest = duration;
        call @p@grant_@r@(n, holding = 0, id, client_id, inbox_id, lock_mode, permit_count, permits_total, lease_kind,
            duration, last_token, t, t + duration, 0, holder_metadata);
        update @p@heads set
            ends = if(held = 0, t + duration, least(ends, t + duration)),
            held = held + 1, fence = last_token, permits_of = nullif(permits_total, 0), used = t
        where name = n;
    elseif not may_queue then
        select max(h.deadline) into latest from @p@holders h
        where h.name = n and h.lease_id is not null;
        set result = 'busy';
        set rest = greatest(0, greatest(coalesce(frozen_until, t), coalesce(latest, t)) - t);
        set ahead = 0;
    elseif waiting >= max_waiters then
        set result = 'full';
    else
        set result = 'queued';
        set ahead = waiting;
        insert into @p@waiters values (n, end_place, id, client_id, inbox_id, lock_mode, permit_count, permits_total,
            lease_kind, duration, first_lease, t, t, holder_metadata);
        update @p@heads set
            heard_since = if(queued = 0, t, heard_since),
            first_place = if(queued = 0, end_place, first_place),
            queued = queued + 1, next_place = end_place + 1,
            permits_of = nullif(permits_total, 0), used = t
        where name = n;
    end if;
end
$$

-- Sends the reply to an acquire. The fields `by_...` describe what blocks the name: the oldest holder, or
-- else the operator's freeze.
create procedure @p@answer_@r@(
    in n varbinary(512), in t bigint, in result varchar(16), in last_token bigint, in rest bigint,
    in ahead int, in reason_text varbinary(512)
) reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare look bigint;
    declare holding, total_in_use int;
    declare frozen_until bigint;
    if result <> 'queued' and result <> 'busy' then
        select result as outcome, last_token as token, rest as rest, reason_text as note,
            (select h.permits_of from @p@heads h where h.name = n) as by_total;
    else
        call @p@next_look_@r@(n, ahead, t, look);
        select h.held into holding from @p@heads h where h.name = n;
        if holding > 0 then
            select result as outcome, rest as rest, ahead as place, look as look,
                substr(h.lease_id, 1, 4) as by_id, h.token as by_token, h.mode as by_mode,
                h.permits as by_permits, h.total as by_total, greatest(0, t - h.since) as by_held,
                greatest(0, h.deadline - t) as by_rest, h.metadata as by_metadata
            from @p@holders h where h.name = n and h.lease_id is not null
            order by h.token limit 1;
        else
            select result as outcome, rest as rest, ahead as place, look as look,
                if(h.freeze_until is null, null, 'f') as by_mode, h.freeze_token as by_token,
                greatest(0, h.freeze_until - t) as by_rest, h.freeze_reason as by_metadata
            from @p@heads h where h.name = n;
        end if;
    end if;
end
$$

-- Renews a batch. An item is the name with its length in two bytes before it, then the lease id, the
-- client, the kind (`w` for a queue heartbeat) and the lease in 16 hex digits. Items come in the order
-- of their names: each name is locked and settled once. A name whose row another session has locked is
-- skipped, and its items are answered `locked`; with `may_wait`, which is for items of one name, the
-- call waits for the row. The reply has one line for each item: outcome, rest, place, next look and
-- note, separated by spaces, with `-` for null.
create procedure @p@renew_@r@(in batch mediumblob, in inbox_id binary(8), in may_wait boolean)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare to_wake varbinary(1024) default '';
    declare answers mediumblob default '';
    declare at_byte int default 1;
    declare size, handed, mark_count, holding, waiting, ahead, row_at int;
    declare t, ending, frozen_until, duration, rest, look, first_queued, at_place bigint;
    -- `is_ours`: whether this call has locked the row; null if there is no row, false if another session
    -- has locked it.
    declare is_ours, is_fast boolean;
    declare n, last_name, reason_text varbinary(512);
    declare id binary(16);
    declare client_id binary(8);
    declare lease_kind binary(1);
    declare result varchar(16);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    while at_byte < length(batch) do
        set size = ord(substr(batch, at_byte, 1)) * 256 + ord(substr(batch, at_byte + 1, 1));
        set n = substr(batch, at_byte + 2, size);
        set at_byte = at_byte + 2 + size;
        set id = substr(batch, at_byte, 16);
        set client_id = substr(batch, at_byte + 16, 8);
        set lease_kind = substr(batch, at_byte + 24, 1);
        set duration = cast(conv(substr(batch, at_byte + 25, 16), 16, 10) as signed);
        set at_byte = at_byte + 41;
        if not (n <=> last_name) then
            set last_name = n, is_ours = null, handed = 0;
            if may_wait then
                select h.ends into ending from @p@heads h where h.name = n for update;
            end if;
            select true, h.marks, h.held, h.queued, h.ends, h.freeze_until, h.first_place,
                h.lease_id is not null
            into is_ours, mark_count, holding, waiting, ending, frozen_until, first_queued, is_fast
            from @p@heads h where h.name = n for update skip locked;
            if is_ours is null then
                select false into is_ours from @p@heads h where h.name = n;
            end if;
            set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
            if is_ours and (is_fast
                or waiting > 0 or mark_count > 0 or frozen_until is not null or holding = 0 or ending <= t)
            then
                call @p@settle_@r@(n, t, handed, to_wake);
                select h.marks, h.held, h.queued, h.first_place
                into mark_count, holding, waiting, first_queued from @p@heads h where h.name = n;
            end if;
        end if;
        set row_at = null, at_place = null, reason_text = null, rest = null, ahead = null, look = null;
        set result = if(is_ours = false, 'locked', 'unknown');
        if is_ours and holding > 0 then
            select h.slot, h.revoked, h.deadline into row_at, reason_text, ending
            from @p@holders h where h.name = n and h.lease_id = id;
        end if;
        if row_at is not null then
            if lease_kind = 'w' then
                set result = 'held', reason_text = null;
            elseif reason_text is not null then
                set result = 'revoked';
            else
                set result = 'renewed', ending = greatest(ending, t + duration);
                update @p@holders set
                    client = if(lease_kind = 'l', client_id, client), inbox = if(lease_kind = 'l', inbox_id, inbox),
                    kind = lease_kind, lease = duration, deadline = ending, news = 0
                where name = n and slot = row_at;
            end if;
            set rest = ending - t;
        elseif is_ours then
            if mark_count > 0 then
                -- The mark may have been written by this call, if the revoked grant has expired.
                select m.reason into reason_text from @p@marks m
                where m.name = n and m.kind = 'r' and m.lease_id = id;
            end if;
            if reason_text is not null then
                set result = 'revoked', rest = 0;
            elseif waiting > 0 then
                select w.place into at_place from @p@waiters w where w.name = n and w.lease_id = id;
                if at_place is not null then
                    update @p@waiters set heard = t, inbox = inbox_id
                    where name = n and place = at_place;
                    call @p@ahead_@r@(n, first_queued, at_place, waiting, ahead);
                    call @p@next_look_@r@(n, ahead, t, look);
                    set result = 'queued';
                end if;
            end if;
        end if;
        set answers = concat(answers, concat_ws(' ', result, coalesce(rest, '-'),
            coalesce(ahead, '-'), coalesce(look, '-'), coalesce(hex(reason_text), '-')), '\n');
    end while;
    select answers;
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Releases the grant or the queue entry of a lease id. `remembered` is how long the id is refused from now on, or 0.
-- If the next holder waits in the inbox of the caller, `own_inbox`, the reply is its grant, and nobody is woken:
-- `next_id` has the first half of its lease id, `next_token` its token.
create procedure @p@release_@r@(
    in n varbinary(512), in id binary(16), in remembered bigint, in own_inbox binary(8)
)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare to_wake varbinary(1024) default '';
    declare handed int default 0;
    declare t, last_token, ending, seen_since, began, found_at, duration, first_lease bigint;
    declare row_found boolean default null;
    declare row_at int;
    declare news_state tinyint;
    declare next_id binary(16);
    declare client_id, inbox_id binary(8);
    declare lease_kind binary(1);
    declare holder_metadata varbinary(1024);
    declare reason_text varbinary(512);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    if remembered = 0 then
        -- The common hand-off: to the head of the queue alone. The row of the name is locked first. The floor
        -- is read without a lock, because all names share it.
        select h.ends, h.heard_since, greatest(h.fence, (select a.floor from @p@about a where a.only_row = 1)) + 1,
            o.since, w.place, w.lease_id, w.client, w.inbox, w.kind, w.lease, w.hand_off_lease, w.metadata
        into ending, seen_since, last_token, began, found_at, next_id, client_id, inbox_id, lease_kind,
            duration, first_lease, holder_metadata
        from @p@heads h
        straight_join @p@holders o on o.name = h.name and o.slot = 0
        straight_join @p@waiters w on w.name = h.name and w.place = h.first_place
        where h.name = n and h.held = 1 and h.queued > 0 and h.lease_id is null and h.freeze_until is null
            and h.marks = 0 and o.lease_id = id and o.mode = 'x' and o.revoked is null and w.mode = 'x'
        for update;
        set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
        if ending > t and seen_since + @queue_silence@ > t then
            set news_state = if(inbox_id = own_inbox, 0,
                if(get_lock(concat('holdline_', lower(hex(next_id))), 0) = 1, 3, 1));
            delete from @p@waiters where name = n and place = found_at;
            update @p@heads set
                fence = last_token, queued = queued - 1, first_place = found_at + 1,
                ends = t + first_lease, used = t
            where name = n;
            update @p@holders set
                lease_id = next_id, client = client_id, inbox = inbox_id, asked_kind = lease_kind,
                asked = duration, kind = lease_kind, lease = duration, token = last_token, since = t,
                deadline = t + first_lease, news = news_state, metadata = holder_metadata
            where name = n and slot = 0;
            commit;
            if news_state = 0 then
                select 'released' as outcome, greatest(0, t - began) as held,
                    lower(hex(substr(next_id, 1, 8))) as next_id, last_token as next_token;
            else
                call @p@wake_@r@(inbox_id);
                select 'released' as outcome, greatest(0, t - began) as held;
            end if;
            leave this;
        end if;
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    select true into row_found from @p@heads h where h.name = n for update;
    if row_found is null then
        if remembered = 0 then
            select 'nothing' as outcome, null as note;
            commit;
            leave this;
        end if;
        call @p@lock_name_@r@(n, t);
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, to_wake);
    if remembered > 0 then
        call @p@add_mark_@r@(n, 't', id, t + remembered, '', x'0000000000000000');
    end if;
    set row_at = null;
    select h.slot, h.since, h.deadline, h.lease, h.revoked, h.inbox
    into row_at, began, ending, duration, reason_text, inbox_id
    from @p@holders h where h.name = n and h.lease_id = id;
    if row_at is not null then
        if reason_text is not null then
            call @p@add_mark_@r@(n, 'r', id, least(ending, t) + greatest(duration, @min_tombstone@), reason_text,
                inbox_id);
        end if;
        call @p@clear_holder_@r@(n, row_at);
        select 'released' as outcome, greatest(0, t - began) as held;
    else
        delete from @p@waiters where name = n and lease_id = id;
        if row_count() > 0 then
            update @p@heads set queued = queued - 1 where name = n;
            select 'withdrawn' as outcome;
        else
            select m.reason into reason_text from @p@marks m
            where m.name = n and m.kind = 'r' and m.lease_id = id;
            select 'nothing' as outcome, reason_text as note;
        end if;
    end if;
    update @p@heads set used = t where name = n;
    call @p@hand_over_@r@(n, t, handed, to_wake);
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Revokes the grant with the token `wanted_token`. Its holder is notified and keeps the name until it releases
-- or its lease ends; with `at_once` the name is free now.
create procedure @p@revoke_@r@(
    in n varbinary(512), in wanted_token bigint, in reason_text varbinary(512), in at_once boolean
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare to_wake varbinary(1024) default '';
    declare handed int default 0;
    declare t, ending, duration bigint;
    declare row_found boolean default null;
    declare row_at int;
    declare id binary(16);
    declare inbox_id binary(8);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    select true into row_found from @p@heads h where h.name = n for update;
    if row_found is null then
        select 'nothing' as outcome;
        commit;
        leave this;
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, to_wake);
    select h.slot, h.lease_id, h.inbox, h.deadline, h.lease
    into row_at, id, inbox_id, ending, duration
    from @p@holders h where h.name = n and h.lease_id is not null and h.token = wanted_token;
    if row_at is null then
        select 'nothing' as outcome;
        commit;
        call @p@wake_@r@(to_wake);
        leave this;
    end if;
    if at_once then
        call @p@add_mark_@r@(n, 'r', id, least(ending, t) + greatest(duration, @min_tombstone@), reason_text, inbox_id);
        call @p@clear_holder_@r@(n, row_at);
        call @p@hand_over_@r@(n, t, handed, to_wake);
        select 'done' as outcome;
    else
        update @p@holders set revoked = reason_text, news = 2 where name = n and slot = row_at;
        select 'notified' as outcome, ending - t as rest;
    end if;
    update @p@heads set used = t where name = n;
    commit;
    call @p@wake_@r@(concat(to_wake, inbox_id));
end
$$

-- Removes the first waiter whose lease id begins with `short_id`. The id is remembered as a revoked one.
create procedure @p@remove_waiter_@r@(
    in n varbinary(512), in short_id binary(4), in reason_text varbinary(512)
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare to_wake varbinary(1024) default '';
    declare handed int default 0;
    declare t, duration, found_at, first_queued bigint;
    declare row_found boolean default null;
    declare id binary(16);
    declare inbox_id binary(8);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    select true into row_found from @p@heads h where h.name = n for update;
    if row_found is null then
        select 'nothing' as outcome;
        commit;
        leave this;
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, to_wake);
    select h.first_place into first_queued from @p@heads h where h.name = n;
    select w.place, w.lease_id, w.inbox, w.lease into found_at, id, inbox_id, duration
    from @p@waiters w
    where w.name = n and w.place >= first_queued and left(w.lease_id, 4) = short_id
    order by w.place limit 1;
    if found_at is null then
        select 'nothing' as outcome;
        commit;
        call @p@wake_@r@(to_wake);
        leave this;
    end if;
    delete from @p@waiters where name = n and place = found_at;
    update @p@heads set queued = queued - 1, used = t where name = n;
    call @p@add_mark_@r@(n, 'r', id, t + greatest(duration, @min_tombstone@), reason_text, inbox_id);
    call @p@hand_over_@r@(n, t, handed, to_wake);
    select 'done' as outcome;
    commit;
    call @p@wake_@r@(concat(to_wake, inbox_id));
end
$$

-- Freezes the name for `duration` from now; replaces an earlier freeze.
create procedure @p@freeze_@r@(in n varbinary(512), in duration bigint, in reason_text varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare to_wake varbinary(1024) default '';
    declare handed int default 0;
    declare t bigint;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    if duration not between 0 and @max_freeze@ then
        signal sqlstate '22003' set
            message_text = 'a freeze lasts at most @max_freeze@ microseconds';
    end if;
    set transaction isolation level read committed;
    start transaction;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@lock_name_@r@(n, t);
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, to_wake);
    update @p@heads set freeze_until = t + duration, freeze_reason = reason_text, used = t where name = n;
    call @p@hand_over_@r@(n, t, handed, to_wake);
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Ends a freeze; the name goes to the head of the queue.
create procedure @p@unfreeze_@r@(in n varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare to_wake varbinary(1024) default '';
    declare handed int default 0;
    declare t, frozen_until bigint;
    declare row_found boolean default null;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    select true into row_found from @p@heads h where h.name = n for update;
    if row_found then
        set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
        call @p@settle_@r@(n, t, handed, to_wake);
        select h.freeze_until into frozen_until from @p@heads h where h.name = n;
        update @p@heads set
            freeze_until = null, freeze_reason = null, freeze_token = null, used = t
        where name = n;
        call @p@hand_over_@r@(n, t, handed, to_wake);
    end if;
    select if(frozen_until is null, 'nothing', 'done') as outcome;
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Makes all later tokens larger than `up_to`, which leaves enough of them.
create procedure @p@raise_@r@(in up_to bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    if up_to > @largest_fence@ then
        signal sqlstate '22003' set
            message_text = 'the fence may be raised to @largest_fence@ at most';
    end if;
    start transaction;
    update @p@about set floor = greatest(floor, up_to) where only_row = 1;
    commit;
end
$$

-- Settles the given names that have an expired grant, a queue, marks or a freeze. Each name has its length
-- in two bytes before it; they come in order. If another session has locked a row, the call waits for it if the name is the only one,
-- and skips it otherwise.
create procedure @p@refresh_@r@(in names mediumblob)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare to_wake varbinary(1024) default '';
    declare at_byte int default 1;
    declare size, handed int;
    declare t bigint;
    declare due boolean;
    declare n varbinary(512);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    while at_byte < length(names) do
        set size = ord(substr(names, at_byte, 1)) * 256 + ord(substr(names, at_byte + 1, 1));
        set n = substr(names, at_byte + 2, size), at_byte = at_byte + 2 + size;
        set due = false, handed = 0;
        set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
        select h.queued > 0 or h.marks > 0 or h.freeze_until is not null
            or (h.held > 0 and h.ends <= t)
            -- Somebody has removed the rows of the holders by hand.
            or (h.held > 0 and h.lease_id is null and not exists (
                select 1 from @p@holders x where x.name = n and x.lease_id is not null
            ))
        into due from @p@heads h where h.name = n;
        if due then
            set due = false;
            if length(names) = 2 + size then
                select true into due from @p@heads h where h.name = n for update;
            else
                select true into due from @p@heads h where h.name = n for update skip locked;
            end if;
            -- The call may have waited for the row.
            set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
            if due then
                call @p@settle_@r@(n, t, handed, to_wake);
            end if;
        end if;
    end while;
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Looks at `page_size` rows, and removes the empty ones that were not used for a minute. It continues
-- where the last call of any client ended: a process that takes one lock never sweeps twice. That place
-- is the `reason` of a row in `marks` without a name.
create procedure @p@sweep_@r@(in page_size int)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare to_wake varbinary(1024) default '';
    declare seen, handed int default 0;
    declare t, last_token bigint;
    -- A minute.
    declare unused_after bigint default 60000000;
    declare over_now boolean default false;
    declare idle boolean;
    declare n, after_name varbinary(512);
    declare page cursor for
        select h.name from @p@heads h where h.name > after_name order by h.name limit page_size;
    declare continue handler for not found set over_now = true;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    -- Lock this row first: so no session that has locked a name's row ever waits for this one.
    select a.floor into last_token from @p@about a where a.only_row = 1 for update;
    set after_name = coalesce((
        select m.reason from @p@marks m
        where m.name = '' and m.kind = 's' and m.lease_id = x'00000000000000000000000000000000'
    ), '');
    open page;
    each_one: loop
        fetch page into n;
        if over_now then
            leave each_one;
        end if;
        set seen = seen + 1, idle = false, handed = 0;
        set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
        select true into idle from @p@heads h
        where h.name = n and h.used < t - unused_after for update skip locked;
        if idle then
            call @p@settle_@r@(n, t, handed, to_wake);
            set last_token = null;
            select h.fence into last_token from @p@heads h
            where h.name = n and h.held = 0 and h.queued = 0 and h.freeze_until is null
                and h.marks = 0;
            if last_token is not null then
                update @p@about set floor = greatest(floor, last_token) where only_row = 1;
                delete from @p@holders where name = n;
                delete from @p@heads where name = n;
            end if;
        end if;
        set over_now = false;
    end loop;
    close page;
    set after_name = if(seen = page_size, n, '');
    insert into @p@marks (name, kind, lease_id, until, reason, inbox) values (
        '', 's', x'00000000000000000000000000000000', 0, after_name, x'0000000000000000'
    ) on duplicate key update reason = after_name;
    commit;
    call @p@wake_@r@(to_wake);
end
$$

-- Returns the changes of an inbox, and then sleeps until it changes again. A command that changes the inbox
-- kills this call after its commit (`wake`), wherever it is, and the next call finds the change. So none is
-- missed between the look and the sleep.
--
-- The changes are a result set, which is sent before the sleep; each is returned until it is dealt with:
-- `g` for a hand-off that is the grant, `l` for one to ask about, `c` for a revocation. Other sessions see a hand-off
-- before it is flushed. It is returned only once the session that made it has freed the lock of the lease id.
create procedure @p@listen_@r@(in inbox_id binary(8), in seconds int)
reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    select if(h.revoked is not null, 'c', if(h.news = 3, 'g', 'l')) as letter,
        lower(hex(substr(h.lease_id, 1, 8))) as id, h.token as token
    from @p@holders h
    where h.inbox = inbox_id and h.news > 0
        and (h.news <> 3 or is_free_lock(concat('holdline_', lower(hex(h.lease_id)))))
    union all
    select 'c', lower(hex(substr(m.lease_id, 1, 8))), 0 from @p@marks m where m.inbox = inbox_id;
    do sleep(seconds);
end
