-- What a client calls: each is one command and one transaction, whole by itself. It begins with a
-- rollback: a command that the server has killed leaves its transaction open, and to begin another
-- would commit that. The answer is written before the commit and is good only with its end.

create procedure @p@acquire_@r@(
    in n varbinary(512), in id binary(16), in whose binary(8), in ear binary(8),
    in wanted binary(1), in so_many int, in of_all int, in sort binary(1), in duration bigint,
    in patience bigint, in about_it varbinary(1024), in may_queue boolean, in is_known boolean,
    in most int
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare told varbinary(1024) default '';
    declare handed int default 0;
    declare t, drawn, rest, look, ending, silent, frozen, front, last_place bigint;
    declare there, same boolean default null;
    declare noted, holding, waiting, kept_of, row_at, came, ahead int;
    declare result varchar(16);
    declare why varbinary(512);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    if wanted = 'x' and not is_known then
        -- The usual case: nobody holds the name, and there is nothing to remember.
        update @p@heads set
            fence = last_insert_id(
                greatest(fence, (select a.floor from @p@about a where a.only_row = 1)) + 1
            ),
            held = 1, permits_of = null, ends = t + duration, used = t
        where name = n and held = 0 and queued = 0 and freeze_until is null and marks = 0;
        if row_count() = 1 then
            set drawn = last_insert_id();
            update @p@holders set
                lease_id = id, client = whose, inbox = ear, mode = 'x', permits = 0, total = 0,
                asked_kind = sort, asked = duration, kind = sort, lease = duration, token = drawn,
                since = t, deadline = t + duration, claimed = 1, revoked = null,
                metadata = about_it
            where name = n and slot = 0;
            if row_count() = 0 then
                call @p@grant_@r@(n, true, id, whose, ear, 'x', 0, 0, sort, duration, drawn, t,
                    t + duration, 1, about_it);
            end if;
            select 'granted' as outcome, drawn as token, duration as rest;
            commit;
            leave this;
        end if;
    elseif wanted = 'x' then
        -- The usual claim: the name was handed over, and the window is open.
        select true, h.ends into there, ending from @p@heads h
        where h.name = n and h.held = 1 and h.freeze_until is null and h.marks = 0 for update;
        update @p@holders set
            claimed = 1, metadata = about_it, inbox = ear, deadline = t + duration
        where there and name = n and slot = 0 and lease_id = id and claimed = 0 and mode = 'x'
            and deadline > t and asked = duration and lease = duration and asked_kind = sort
            and revoked is null;
        if row_count() = 1 then
            -- A lease may be shorter than the window in which it was to be claimed.
            if ending > t + duration then
                update @p@heads set ends = t + duration where name = n;
            end if;
            select 'granted' as outcome, h.token as token, duration as rest
            from @p@holders h where h.name = n and h.slot = 0;
            commit;
            leave this;
        end if;
        set there = null;
    end if;
    select true, h.marks, h.held, h.queued, h.ends, h.heard_since, h.freeze_until, h.next_place
    into there, noted, holding, waiting, ending, silent, frozen, last_place
    from @p@heads h where h.name = n for update;
    if there is null then
        if is_known then
            select 'unknown' as outcome;
            commit;
            leave this;
        end if;
        call @p@take_@r@(n, t);
        select h.marks, h.held, h.queued, h.ends, h.heard_since, h.freeze_until, h.next_place
        into noted, holding, waiting, ending, silent, frozen, last_place
        from @p@heads h where h.name = n;
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    if may_queue and not is_known and wanted = 'x' and holding = 1 and ending > t
        and frozen is null and noted = 0 and (waiting = 0 or silent + 4000000 > t)
        and waiting < most
        and exists (
            select 1 from @p@holders h
            where h.name = n and h.slot = 0 and h.lease_id <> id and h.mode = 'x'
        ) and (waiting = 0 or not exists (
            select 1 from @p@waiters w where w.name = n and w.lease_id = id
        ))
    then
        -- The usual wait: nothing is to be settled, and one more stands at the end of the queue.
        insert into @p@waiters values (n, last_place, id, whose, ear, 'x', 0, 0, sort, duration,
            patience, t, t, about_it);
        update @p@heads set
            heard_since = if(queued = 0, t, heard_since),
            first_place = if(queued = 0, last_place, first_place),
            queued = queued + 1, next_place = last_place + 1, used = t
        where name = n;
        call @p@answer_@r@(n, t, 'queued', null, null, waiting, null);
        commit;
        leave this;
    end if;
    call @p@settle_@r@(n, t, handed, told);
    if exists (
        select 1 from @p@marks m where m.name = n and m.kind = 't' and m.lease_id = id
    ) then
        set result = 'cancelled';
    else
        select 'revoked', m.reason into result, why from @p@marks m
        where m.name = n and m.kind = 'r' and m.lease_id = id;
    end if;
    if result is null then
        select h.slot, h.claimed, h.token, h.deadline,
            (h.mode, h.permits, h.total, h.asked_kind, h.asked)
                = (wanted, so_many, of_all, sort, duration)
        into row_at, came, drawn, ending, same
        from @p@holders h where h.name = n and h.lease_id = id;
        if row_at is not null and not same then
            set result = 'terms';
        elseif row_at is not null then
            -- What was given under a lease id is repeated; a hand-off is claimed by this.
            if not came then
                update @p@holders set
                    claimed = 1, metadata = about_it, inbox = ear, deadline = t + lease
                where name = n and slot = row_at;
                update @p@heads set ends = least(ends, t + duration) where name = n;
                select h.deadline into ending from @p@holders h
                where h.name = n and h.slot = row_at;
            end if;
            -- The grant may wait for the disk yet: whoever writes after it waits for that too.
            update @p@heads set used = t where name = n;
            set result = 'granted';
            set rest = ending - t;
        end if;
    end if;
    if result is null then
        select w.place,
            (w.mode, w.permits, w.total, w.kind, w.lease)
                = (wanted, so_many, of_all, sort, duration)
        into last_place, same from @p@waiters w where w.name = n and w.lease_id = id;
        if same is not null and not same then
            set result = 'terms';
        elseif same then
            update @p@waiters set heard = t, inbox = ear where name = n and place = last_place;
            select h.first_place, h.queued into front, waiting from @p@heads h where h.name = n;
            call @p@ahead_@r@(n, front, last_place, waiting, ahead);
            set result = 'queued';
        end if;
    end if;
    if result is null and is_known then
        set result = 'unknown';
    elseif result is null then
        call @p@fresh_@r@(n, id, whose, ear, wanted, so_many, of_all, sort, duration, patience,
            about_it, may_queue, most, t, result, drawn, rest, ahead);
    end if;
    call @p@answer_@r@(n, t, result, drawn, rest, ahead, why);
    commit;
    call @p@wake_@r@(told);
end
$$

-- A lease id that is new to the name: a grant, a place in the queue, or neither.
create procedure @p@fresh_@r@(
    in n varbinary(512), in id binary(16), in whose binary(8), in ear binary(8),
    in wanted binary(1), in so_many int, in of_all int, in sort binary(1), in duration bigint,
    in patience bigint, in about_it varbinary(1024), in may_queue boolean, in most int,
    in t bigint, out result varchar(16), out drawn bigint, out rest bigint, out ahead int
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare frozen, last_place, latest bigint;
    declare holding, waiting, kept_of int;
    declare fits boolean default true;
    select h.held, h.queued, h.permits_of, h.freeze_until, h.next_place, greatest(h.fence, a.floor)
    into holding, waiting, kept_of, frozen, last_place, drawn
    from @p@heads h, @p@about a where h.name = n;
    if (holding > 0 or waiting > 0) and not (kept_of <=> nullif(of_all, 0)) then
        set result = 'kind';
        leave this;
    end if;
    if holding > 0 then
        call @p@admits_@r@(n, wanted, so_many, of_all, fits);
    end if;
    if frozen is null and waiting = 0 and fits then
        set result = 'granted';
        set drawn = drawn + 1;
        set rest = duration;
        call @p@grant_@r@(n, holding = 0, id, whose, ear, wanted, so_many, of_all, sort,
            duration, drawn, t, t + duration, 1, about_it);
        update @p@heads set
            ends = if(held = 0, t + duration, least(ends, t + duration)),
            held = held + 1, fence = drawn, permits_of = nullif(of_all, 0), used = t
        where name = n;
    elseif not may_queue then
        select max(h.deadline) into latest from @p@holders h
        where h.name = n and h.lease_id is not null;
        set result = 'busy';
        set rest = greatest(0, greatest(coalesce(frozen, t), coalesce(latest, t)) - t);
        set ahead = 0;
    elseif waiting >= most then
        set result = 'full';
    else
        set result = 'queued';
        set ahead = waiting;
        insert into @p@waiters values (n, last_place, id, whose, ear, wanted, so_many, of_all,
            sort, duration, patience, t, t, about_it);
        update @p@heads set
            heard_since = if(queued = 0, t, heard_since),
            first_place = if(queued = 0, last_place, first_place),
            queued = queued + 1, next_place = last_place + 1,
            permits_of = nullif(of_all, 0), used = t
        where name = n;
    end if;
end
$$

-- The answer to an acquire. Who is in the way: the oldest holder, or else the operator's freeze.
create procedure @p@answer_@r@(
    in n varbinary(512), in t bigint, in result varchar(16), in drawn bigint, in rest bigint,
    in ahead int, in why varbinary(512)
) reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare look bigint;
    declare holding, kept_of int;
    declare frozen bigint;
    if result <> 'queued' and result <> 'busy' then
        select result as outcome, drawn as token, rest as rest, why as note,
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

-- Renews a batch. A line is the name with its length in two bytes before it, then the lease id, the
-- client, the kind (`w` for a queue heartbeat) and the lease in 16 hex digits. Lines come in the
-- order of their names: each name is locked and settled once. A name whose row another session has
-- locked is skipped, and its lines are answered `locked`; with `may_wait`, which is for lines of one
-- name, the row is waited for. The answer has one line for each: outcome, rest, place, next look and
-- note, with a space between and `-` for nothing.
create procedure @p@renew_@r@(in lines_in mediumblob, in ear binary(8), in may_wait boolean)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare told varbinary(1024) default '';
    declare answers mediumblob default '';
    declare at_byte int default 1;
    declare size, handed, noted, holding, waiting, ahead, row_at, came int;
    declare t, ending, frozen, duration, rest, look, front, stands bigint;
    declare is_ours boolean;
    declare n, last_name, why varbinary(512);
    declare id binary(16);
    declare whose binary(8);
    declare sort binary(1);
    declare result varchar(16);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    while at_byte < length(lines_in) do
        set size = ord(substr(lines_in, at_byte, 1)) * 256 + ord(substr(lines_in, at_byte + 1, 1));
        set n = substr(lines_in, at_byte + 2, size);
        set at_byte = at_byte + 2 + size;
        set id = substr(lines_in, at_byte, 16);
        set whose = substr(lines_in, at_byte + 16, 8);
        set sort = substr(lines_in, at_byte + 24, 1);
        set duration = cast(conv(substr(lines_in, at_byte + 25, 16), 16, 10) as signed);
        set at_byte = at_byte + 41;
        if not (n <=> last_name) then
            -- `is_ours` is null where there is no such name, and false where it is locked.
            set last_name = n, is_ours = null, handed = 0;
            if may_wait then
                select h.ends into ending from @p@heads h where h.name = n for update;
            end if;
            select true, h.marks, h.held, h.queued, h.ends, h.freeze_until, h.first_place
            into is_ours, noted, holding, waiting, ending, frozen, front
            from @p@heads h where h.name = n for update skip locked;
            if is_ours is null then
                select false into is_ours from @p@heads h where h.name = n;
            end if;
            set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
            if is_ours
                and (waiting > 0 or noted > 0 or frozen is not null or holding = 0 or ending <= t)
            then
                call @p@settle_@r@(n, t, handed, told);
                select h.marks, h.held, h.queued, h.first_place
                into noted, holding, waiting, front from @p@heads h where h.name = n;
            end if;
        end if;
        set row_at = null, stands = null, why = null, rest = null, ahead = null, look = null;
        set result = if(is_ours = false, 'locked', 'unknown');
        if is_ours and holding > 0 then
            select h.slot, h.claimed, h.revoked, h.deadline into row_at, came, why, ending
            from @p@holders h where h.name = n and h.lease_id = id;
        end if;
        if row_at is not null then
            if sort = 'w' or not came then
                set result = 'handed', why = null;
            elseif why is not null then
                set result = 'revoked';
            else
                set result = 'renewed', ending = greatest(ending, t + duration);
                update @p@holders set
                    client = if(sort = 'l', whose, client), inbox = if(sort = 'l', ear, inbox),
                    kind = sort, lease = duration, deadline = ending
                where name = n and slot = row_at;
            end if;
            set rest = ending - t;
        elseif is_ours then
            if noted > 0 then
                -- Also one that was written just now: the revoked grant has run out.
                select m.reason into why from @p@marks m
                where m.name = n and m.kind = 'r' and m.lease_id = id;
            end if;
            if why is not null then
                set result = 'revoked', rest = 0;
            elseif waiting > 0 then
                select w.place into stands from @p@waiters w where w.name = n and w.lease_id = id;
                if stands is not null then
                    update @p@waiters set heard = t, inbox = ear
                    where name = n and place = stands;
                    call @p@ahead_@r@(n, front, stands, waiting, ahead);
                    call @p@next_look_@r@(n, ahead, t, look);
                    set result = 'queued';
                end if;
            end if;
        end if;
        set answers = concat(answers, concat_ws(' ', result, coalesce(rest, '-'),
            coalesce(ahead, '-'), coalesce(look, '-'), coalesce(hex(why), '-')), '\n');
    end while;
    select answers;
    commit;
    call @p@wake_@r@(told);
end
$$

-- Ends whatever the lease id has. `remembered` is how long it is refused from now on, or 0.
create procedure @p@release_@r@(in n varbinary(512), in id binary(16), in remembered bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare told varbinary(1024) default '';
    declare handed int default 0;
    declare t, drawn, ending, silent, frozen, front, began, found_at, duration, patience bigint;
    declare there boolean default null;
    declare noted, holding, waiting, row_at int;
    declare next_id binary(16);
    declare whose, ear binary(8);
    declare wanted, sort binary(1);
    declare about_it varbinary(1024);
    declare why varbinary(512);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    if remembered = 0 then
        -- The usual case: it holds the name alone, and nobody waits.
        update @p@heads set held = 0, permits_of = null, ends = 0, used = t
        where name = n and held = 1 and queued = 0 and freeze_until is null and marks = 0;
        if row_count() = 1 then
            update @p@holders set lease_id = null, inbox = x'0000000000000000'
            where name = n and slot = 0 and lease_id = id and deadline > t and revoked is null;
            if row_count() = 1 then
                select 'released' as outcome, greatest(0, t - h.since) as held
                from @p@holders h where h.name = n and h.slot = 0;
                commit;
                leave this;
            end if;
            rollback;
            set transaction isolation level read committed;
            start transaction;
        end if;
    end if;
    select true, h.marks, h.held, h.queued, h.ends, h.heard_since, h.freeze_until, h.first_place
    into there, noted, holding, waiting, ending, silent, frozen, front
    from @p@heads h where h.name = n for update;
    if there is null then
        if remembered = 0 then
            select 'nothing' as outcome, null as note;
            commit;
            leave this;
        end if;
        call @p@take_@r@(n, t);
        set noted = 0, holding = 0, waiting = 0;
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    if remembered = 0 and waiting > 0 and holding = 1 and ending > t and frozen is null
        and noted = 0 and silent + 4000000 > t
    then
        select h.slot, h.since into row_at, began from @p@holders h
        where h.name = n and h.slot = 0 and h.lease_id = id and h.mode = 'x' and h.revoked is null;
        select w.place, w.lease_id, w.client, w.inbox, w.mode, w.kind, w.lease, w.claim_window,
            w.metadata
        into found_at, next_id, whose, ear, wanted, sort, duration, patience, about_it
        from @p@waiters w where w.name = n and w.place >= front order by w.place limit 1;
        if row_at = 0 and wanted = 'x' then
            -- The usual hand-off: to the head of the queue, alone. The floor is read unlocked: all
            -- names share it.
            select greatest(h.fence, a.floor) into drawn
            from @p@heads h, @p@about a where h.name = n;
            delete from @p@waiters where name = n and place = found_at;
            update @p@heads set
                fence = drawn + 1, queued = queued - 1, first_place = found_at + 1,
                ends = t + patience, used = t
            where name = n;
            update @p@holders set
                lease_id = next_id, client = whose, inbox = ear, asked_kind = sort,
                asked = duration, kind = sort, lease = duration, token = drawn + 1, since = t,
                deadline = t + patience, claimed = 0, metadata = about_it
            where name = n and slot = 0;
            select 'released' as outcome, greatest(0, t - began) as held;
            commit;
            call @p@wake_@r@(ear);
            leave this;
        end if;
    end if;
    call @p@settle_@r@(n, t, handed, told);
    if remembered > 0 then
        call @p@remember_@r@(n, 't', id, t + remembered, '', x'0000000000000000');
    end if;
    set row_at = null;
    select h.slot, h.since, h.deadline, h.lease, h.revoked, h.inbox
    into row_at, began, ending, duration, why, ear
    from @p@holders h where h.name = n and h.lease_id = id;
    if row_at is not null then
        if why is not null then
            call @p@remember_@r@(n, 'r', id, least(ending, t) + greatest(duration, 30000000), why,
                ear);
        end if;
        call @p@leave_@r@(n, row_at);
        select 'released' as outcome, greatest(0, t - began) as held;
    else
        delete from @p@waiters where name = n and lease_id = id;
        if row_count() > 0 then
            update @p@heads set queued = queued - 1 where name = n;
            select 'withdrawn' as outcome;
        else
            select m.reason into why from @p@marks m
            where m.name = n and m.kind = 'r' and m.lease_id = id;
            select 'nothing' as outcome, why as note;
        end if;
    end if;
    update @p@heads set used = t where name = n;
    call @p@hand_over_@r@(n, t, handed, told);
    commit;
    call @p@wake_@r@(told);
end
$$

create procedure @p@revoke_@r@(
    in n varbinary(512), in which bigint, in why varbinary(512), in at_once boolean
) modifies sql data sql security invoker comment 'Holdline: revision @r@'
this: begin
    declare told varbinary(1024) default '';
    declare handed int default 0;
    declare t, ending, duration bigint;
    declare there boolean default null;
    declare row_at, came int;
    declare id binary(16);
    declare ear binary(8);
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    select true into there from @p@heads h where h.name = n for update;
    if there is null then
        select 'nothing' as outcome;
        commit;
        leave this;
    end if;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, told);
    select h.slot, h.claimed, h.lease_id, h.inbox, h.deadline, h.lease
    into row_at, came, id, ear, ending, duration
    from @p@holders h where h.name = n and h.lease_id is not null and h.token = which;
    if row_at is null then
        select 'nothing' as outcome;
        commit;
        call @p@wake_@r@(told);
        leave this;
    end if;
    -- A hand-off that nobody has claimed is believed by nobody: it can go at once.
    if at_once or not came then
        call @p@remember_@r@(n, 'r', id, least(ending, t) + greatest(duration, 30000000), why, ear);
        call @p@leave_@r@(n, row_at);
        call @p@hand_over_@r@(n, t, handed, told);
        select 'done' as outcome;
    else
        update @p@holders set revoked = why, claimed = 2 where name = n and slot = row_at;
        select 'told' as outcome, ending - t as rest;
    end if;
    update @p@heads set used = t where name = n;
    commit;
    call @p@wake_@r@(concat(told, ear));
end
$$

-- Keeps everybody from the name for `duration` from now; replaces an earlier freeze.
create procedure @p@freeze_@r@(in n varbinary(512), in duration bigint, in why varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare told varbinary(1024) default '';
    declare handed int default 0;
    declare t bigint;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@take_@r@(n, t);
    set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call @p@settle_@r@(n, t, handed, told);
    update @p@heads set freeze_until = t + duration, freeze_reason = why, used = t where name = n;
    call @p@hand_over_@r@(n, t, handed, told);
    commit;
    call @p@wake_@r@(told);
end
$$

create procedure @p@unfreeze_@r@(in n varbinary(512))
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare told varbinary(1024) default '';
    declare handed int default 0;
    declare t, frozen bigint;
    declare there boolean default null;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    select true into there from @p@heads h where h.name = n for update;
    if there then
        set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
        call @p@settle_@r@(n, t, handed, told);
        select h.freeze_until into frozen from @p@heads h where h.name = n;
        update @p@heads set
            freeze_until = null, freeze_reason = null, freeze_token = null, used = t
        where name = n;
        call @p@hand_over_@r@(n, t, handed, told);
    end if;
    select if(frozen is null, 'nothing', 'done') as outcome;
    commit;
    call @p@wake_@r@(told);
end
$$

-- Makes all later tokens larger than `up_to`.
create procedure @p@raise_@r@(in up_to bigint)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    start transaction;
    update @p@about set floor = greatest(floor, up_to) where only_row = 1;
    commit;
end
$$

-- Brings some names up to date, those that time had changed. Each has its length in two bytes
-- before it; they come in order. A name whose row another session has locked is waited for if it is
-- the only one, and left as it is among others.
create procedure @p@refresh_@r@(in names mediumblob)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare told varbinary(1024) default '';
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
        into due from @p@heads h where h.name = n;
        if due then
            set due = false;
            if length(names) = 2 + size then
                select true into due from @p@heads h where h.name = n for update;
            else
                select true into due from @p@heads h where h.name = n for update skip locked;
            end if;
            -- The row may have been waited for.
            set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
            if due then
                call @p@settle_@r@(n, t, handed, told);
            end if;
        end if;
    end while;
    commit;
    call @p@wake_@r@(told);
end
$$

-- Looks at some rows behind `behind` and removes those that were not used for a minute and tell
-- nothing. Answers where to go on; null at the end.
create procedure @p@sweep_@r@(in behind varbinary(512), in most int)
modifies sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare told varbinary(1024) default '';
    declare seen, handed int default 0;
    declare t, drawn bigint;
    declare over_now boolean default false;
    declare idle boolean;
    declare n varbinary(512);
    declare page cursor for
        select h.name from @p@heads h where h.name > behind order by h.name limit most;
    declare continue handler for not found set over_now = true;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    set transaction isolation level read committed;
    start transaction;
    -- First, so that nobody who holds a name's row ever waits for this one.
    select a.floor into drawn from @p@about a where a.only_row = 1 for update;
    open page;
    each_one: loop
        fetch page into n;
        if over_now then
            leave each_one;
        end if;
        set seen = seen + 1, idle = false, handed = 0;
        set t = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
        select h.used < t - 60000000 into idle from @p@heads h
        where h.name = n and h.used < t - 60000000 for update skip locked;
        if idle then
            call @p@settle_@r@(n, t, handed, told);
            set drawn = null;
            select h.fence into drawn from @p@heads h
            where h.name = n and h.held = 0 and h.queued = 0 and h.freeze_until is null
                and h.marks = 0;
            if drawn is not null then
                update @p@about set floor = greatest(floor, drawn) where only_row = 1;
                delete from @p@holders where name = n;
                delete from @p@heads where name = n;
            end if;
        end if;
        set over_now = false;
    end loop;
    close page;
    select if(seen = most, n, null) as behind;
    commit;
    call @p@wake_@r@(told);
end
$$

-- Sleeps in an inbox until something is there that the caller has not heard: names that were handed
-- over, and grants that were revoked. `heard` is how things stood when it was told last. Whoever
-- puts something there ends this call from outside (`wake`), wherever it stands; the next one then
-- finds it. So nothing is missed between the look and the sleep, which are one statement.
create procedure @p@listen_@r@(in ear binary(8), in heard varchar(64), in seconds int)
reads sql data sql security invoker comment 'Holdline: revision @r@'
begin
    declare stand varchar(64);
    select concat(count(*), ' ', coalesce(bit_xor(crc32(concat(x.letter, x.id, x.token))), 0))
    into stand from (
        select if(h.revoked is null, 'l', 'c') as letter, hex(h.lease_id) as id, h.token as token
        from @p@holders h where h.inbox = ear and h.claimed in (0, 2)
        union all
        select 'c', hex(m.lease_id), 0 from @p@marks m where m.inbox = ear
    ) x;
    if stand = heard then
        do sleep(seconds);
    else
        select stand;
        select if(h.revoked is null, 'l', 'c') as letter,
            lower(hex(substr(h.lease_id, 1, 4))) as id
        from @p@holders h where h.inbox = ear and h.claimed in (0, 2)
        union all
        select 'c', lower(hex(substr(m.lease_id, 1, 4))) from @p@marks m where m.inbox = ear;
    end if;
end
