-- The functions that a client calls: each is one command. They run with the rights of the schema's
-- owner, so that a client needs no right to the tables, which contain lease ids.

-- Adds what blocks the name: the oldest holder, or else the operator's freeze.
create or replace function @schema@.blocker_1(
    h @schema@.names, a @schema@.answer, now bigint
) returns @schema@.answer language plpgsql as $$
declare
    x @schema@.holder := @schema@.oldest_1(h);
begin
    if x.token is not null then
        a.by_id := substr(x.lease_id, 1, 4);
        a.by_token := x.token;
        a.by_mode := x.mode;
        a.by_permits := x.permits;
        a.by_total := x.total;
        a.by_held := greatest(0, now - x.since);
        a.by_rest := greatest(0, x.deadline - now);
        a.by_metadata := x.metadata;
    elsif h.freeze_until is not null then
        a.by_mode := 'f';
        a.by_token := h.freeze_token;
        a.by_rest := greatest(0, h.freeze_until - now);
        a.by_metadata := h.freeze_reason;
    end if;
    return a;
end $$;

create or replace function @schema@.queued_1(
    h @schema@.names, a @schema@.answer, ahead int, now bigint
) returns @schema@.answer language plpgsql as $$
begin
    a.outcome := 'queued';
    a.place := ahead;
    a.look := @schema@.next_look_1(h, ahead, now);
    return @schema@.blocker_1(h, a, now);
end $$;

-- Looks a lease id up among the tombstones, the revoked ids, the holders and the waiters of a name.
create or replace function @schema@.known_1(
    h @schema@.names, r @schema@.request, is_known boolean, now bigint
) returns @schema@.step language plpgsql as $$
declare
    a @schema@.answer;
    w @schema@.waiters;
    x @schema@.holder := @schema@.holder_of_1(h, r.lease_id);
begin
    if h.tombstones is not null
        and exists (select from unnest(h.tombstones) m where m.lease_id = r.lease_id) then
        a.outcome := 'cancelled';
        return row(h, a);
    end if;
    if h.revoked is not null then
        select m.reason into a.note from unnest(h.revoked) m where m.lease_id = r.lease_id;
        if found then
            a.outcome := 'revoked';
            return row(h, a);
        end if;
    end if;
    if x.token is not null then
        if (x.mode, x.permits, x.total, x.asked_kind, x.asked)
            is distinct from (r.mode, r.permits, r.total, r.kind, r.lease) then
            a.outcome := 'terms';
            return row(h, a);
        end if;
        if is_known and x.revoked is null and x.deadline < now + r.lease then
            -- A contender that was queued asks about its hand-off: its whole lease begins.
            x.lease := r.lease;
            x.deadline := now + r.lease;
            h := @schema@.put_holder_1(h, x);
        end if;
        a.outcome := 'granted';
        a.token := x.token;
        a.rest := x.deadline - now;
        return row(h, a);
    end if;
    if h.queued = 0 then
        return row(h, a);
    end if;
    select * into w from @schema@.waiters where name = h.name and lease_id = r.lease_id;
    if not found then
        return row(h, a);
    end if;
    if (w.mode, w.permits, w.total, w.kind, w.lease)
        is distinct from (r.mode, r.permits, r.total, r.kind, r.lease) then
        a.outcome := 'terms';
        return row(h, a);
    end if;
    update @schema@.waiters set heard = now, inbox = r.inbox
    where name = h.name and place = w.place;
    return row(h, @schema@.queued_1(h, a, @schema@.ahead_1(h, w.place), now));
end $$;

-- Handles a lease id that is new to the name: grants the name, queues the id, or refuses it.
create or replace function @schema@.fresh_1(
    h @schema@.names, r @schema@.request, may_queue boolean, most int, now bigint
) returns @schema@.step language plpgsql as $$
declare
    a @schema@.answer;
begin
    if ((h.holder).token is not null or h.shared > 0 or h.queued > 0)
        and h.permits_of is distinct from nullif(r.total, 0) then
        a.outcome := 'kind';
        a.by_total := h.permits_of;
    elsif h.freeze_until is null and h.queued = 0
        and @schema@.admits_1(h, r.mode, r.permits, r.total) then
        a.outcome := 'granted';
        a.token := nextval('@schema@.fence');
        a.rest := r.lease;
        h.permits_of := nullif(r.total, 0);
        h := @schema@.add_holder_1(h, row(
            r.lease_id, r.client, r.inbox, r.mode, r.permits, r.total, r.kind, r.lease, r.kind,
            r.lease, a.token, now, now + r.lease, null, r.metadata
        )::@schema@.holder);
    elsif not may_queue then
        a.outcome := 'busy';
        a.rest := greatest(0, coalesce(greatest(h.freeze_until, (h.holder).deadline, (
            select max(s.deadline) from @schema@.shared_holders s
            where h.shared > 0 and s.name = h.name
        )), now) - now);
        a.look := @schema@.next_look_1(h, 0, now);
        a := @schema@.blocker_1(h, a, now);
    elsif h.queued >= most then
        a.outcome := 'full';
    else
        a := @schema@.queued_1(h, a, h.queued, now);
        insert into @schema@.waiters values (
            h.name, h.next_place, r.lease_id, r.client, r.inbox, r.mode, r.permits, r.total,
            r.kind, r.lease, r.hand_off_lease, now, now, r.metadata
        );
        if h.queued = 0 then
            h.heard_since := now;
            h.first_place := h.next_place;
        end if;
        h.next_place := h.next_place + 1;
        h.queued := h.queued + 1;
        h.permits_of := nullif(r.total, 0);
    end if;
    return row(h, a);
end $$;

-- Queues an exclusive contender for a name that is plain (`is_plain_1`).
create or replace function @schema@.enqueue_1(
    h @schema@.names, r @schema@.request, now bigint
) returns @schema@.answer language plpgsql as $$
declare
    a @schema@.answer;
    x @schema@.holder := h.holder;
begin
    -- An entry is no grant, so the row is unlocked without waiting for the flush. If a crash loses the
    -- entry, the contender queues again. The commit of a later grant flushes it too.
    perform set_config('synchronous_commit', 'off', true);
    insert into @schema@.waiters values (
        h.name, h.next_place, r.lease_id, r.client, r.inbox, 'x', 0, 0,
        r.kind, r.lease, r.hand_off_lease, now, now, r.metadata
    );
    update @schema@.names t set
        queued = t.queued + 1, next_place = t.next_place + 1,
        first_place = case when t.queued = 0 then t.next_place else t.first_place end,
        heard_since = case when t.queued = 0 then now else t.heard_since end, used = now
    where t.name = h.name;
    a.outcome := 'queued';
    a.place := h.queued;
    a.look := case when h.queued = 0 then least(@queue_heartbeat@, x.deadline - now) else @queue_heartbeat@ end;
    a.by_id := substr(x.lease_id, 1, 4);
    a.by_token := x.token;
    a.by_mode := 'x';
    a.by_permits := 0;
    a.by_total := 0;
    a.by_held := greatest(0, now - x.since);
    a.by_rest := x.deadline - now;
    a.by_metadata := x.metadata;
    return a;
end $$;

-- Grants the name to an exclusive holder and returns the token, by one update: the name has no holder
-- and no marks. Otherwise it returns null, and `acquire_1` decides. A number as the result costs a quarter
-- of the time of `acquire_1` less.
create or replace function @schema@.grant_free_1(
    n bytea, lease_id bytea, client bigint, inbox bigint, kind text, lease bigint, metadata bytea
) returns bigint language plpgsql security definer set search_path = @schema@, pg_temp as $$
#variable_conflict use_variable
declare
    now bigint := @schema@.now_1();
    token bigint;
begin
    update @schema@.names t set
        holder = row(lease_id, client, inbox, 'x', 0, 0, kind, lease, kind,
            lease, nextval('@schema@.fence'), now, now + lease, null, metadata
        )::@schema@.holder,
        since = now, used = now
    where t.name = n and t.holder is null and t.shared = 0 and t.queued = 0 and t.freeze_until is null
        and t.tombstones is null and t.revoked is null
    returning (t.holder).token into token;
    return token;
end $$;

create or replace function @schema@.acquire_1(
    name bytea, lease_id bytea, client bigint, inbox bigint, mode text, permits int, total int,
    kind text, lease bigint, hand_off_lease bigint, metadata bytea, may_queue boolean,
    is_known boolean, most int
) returns @schema@.answer language plpgsql security definer set search_path = @schema@, pg_temp as $$
#variable_conflict use_column
declare
    r @schema@.request := row($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
    now bigint := @schema@.now_1();
    a @schema@.answer;
    was @schema@.names;
    done @schema@.step;
begin
    select t.* into was from @schema@.names t where t.name = r.name for update;
    if not found then
        if is_known then
            a.outcome := 'unknown';
            return a;
        end if;
        was := @schema@.take_1(r.name);
    end if;
    if r.mode = 'x' and not is_known and (was.holder).token is null
        and was.queued = 0 then
        a.token := @schema@.grant_free_1(name, lease_id, client, inbox, kind, lease, metadata);
        if a.token is not null then
            a.outcome := 'granted';
            a.rest := r.lease;
            return a;
        end if;
    end if;
    now := @schema@.now_1();
    if may_queue and not is_known and r.mode = 'x' and @schema@.is_plain_1(was, now)
        and was.queued < most and (was.holder).lease_id <> r.lease_id and not (was.queued > 0
            and exists (select from @schema@.waiters w
                where w.name = r.name and w.lease_id = r.lease_id))
    then
        return @schema@.enqueue_1(was, r, now);
    end if;
    done := @schema@.known_1(@schema@.settle_1(was, now), r, is_known, now);
    a := done.a;
    if a.outcome is null and is_known then
        a.outcome := 'unknown';
    elsif a.outcome is null then
        done := @schema@.fresh_1(done.h, r, may_queue, most, now);
        a := done.a;
    end if;
    perform @schema@.save_1(done.h, was, now);
    return a;
end $$;

-- Carries out one item of a renewal batch. `lease_kind` is `w` for a queue heartbeat.
create or replace function @schema@.renew_item_1(
    h @schema@.names, id bytea, client_id bigint, inbox_id bigint, lease_kind text,
    duration bigint, now bigint
) returns @schema@.step language plpgsql as $$
declare
    a @schema@.answer;
    x @schema@.holder := @schema@.holder_of_1(h, id);
    w @schema@.waiters;
begin
    if x.token is not null then
        if lease_kind = 'w' then
            a.outcome := 'held';
        elsif x.revoked is not null then
            a.outcome := 'revoked';
            a.note := x.revoked;
        else
            if lease_kind = 'l' then
                x.client := client_id;
                x.inbox := inbox_id;
            end if;
            x.kind := lease_kind;
            x.lease := duration;
            x.deadline := greatest(x.deadline, now + duration);
            h := @schema@.put_holder_1(h, x);
            a.outcome := 'renewed';
        end if;
        a.rest := x.deadline - now;
        return row(h, a);
    end if;
    if h.revoked is not null then
        select m.reason into a.note from unnest(h.revoked) m where m.lease_id = id;
        if found then
            a.outcome := 'revoked';
            a.rest := 0;
            return row(h, a);
        end if;
    end if;
    a.outcome := 'unknown';
    if h.queued > 0 then
        update @schema@.waiters set heard = now, inbox = inbox_id
        where name = h.name and lease_id = id returning * into w;
        if found then
            a := @schema@.queued_1(h, a, @schema@.ahead_1(h, w.place), now);
        end if;
    end if;
    return row(h, a);
end $$;

-- Renews a shared grant and returns what is left of it, by one update, if nothing of the name is to be
-- settled. Otherwise it returns null, and `renew_item_1` decides.
--
-- The name's row is not locked, so thousands of readers do not wait for each other's flush. A row of
-- `shared_holders` that exists is counted in the name's row. So nobody gets the name meanwhile, and a
-- command that has locked the name's row never shortens a deadline (`put_holder_1`).
create or replace function @schema@.renew_shared_1(
    n bytea, id bytea, client_id bigint, inbox_id bigint, lease_kind text, duration bigint
) returns bigint language plpgsql as $$
declare
    now bigint := @schema@.now_1();
    rest bigint;
begin
    perform from @schema@.names t
    where t.name = n and t.shared > 0 and t.ends > now and t.queued = 0 and t.freeze_until is null
        and t.tombstones is null and t.revoked is null;
    if found then
        update @schema@.shared_holders s set
            client = case when lease_kind = 'l' then client_id else s.client end,
            inbox = case when lease_kind = 'l' then inbox_id else s.inbox end,
            kind = lease_kind, lease = duration, deadline = greatest(s.deadline, now + duration)
        where s.name = n and s.lease_id = id and s.deadline > now and s.revoked is null
        returning s.deadline - now into rest;
    end if;
    return rest;
end $$;

-- Renews a batch. Items are processed in the order of their names, so that two batches cannot
-- deadlock. The items of one name are one command on it, at one moment.
--
-- If another session has locked a row, the batch waits for it for at most 100 ms, and for at most two
-- such rows. The items of rows that it did not get are not answered. A batch of a single name waits as
-- other commands do. `ear` is the inbox of the client, and `line` the index of the item: a function of
-- this format cannot rename its parameters.
create or replace function @schema@.renew_1(
    names bytea[], ids bytea[], clients bigint[], ear bigint, kinds text[], leases bigint[]
) returns table (
    line int, outcome text, rest bigint, place int, look bigint, note bytea
) language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint;
    was @schema@.names;
    done @schema@.step;
    name bytea;
    locked boolean;
    is_alone boolean := names[1] = all (names);
    waits int := 2;
    has_handed boolean := false;
    i int;
begin
    for i in select s from generate_subscripts(names, 1) s order by names[s], ids[s], s loop
        line := i;
        if name is distinct from names[i] then
            rest := case when kinds[i] <> 'w' then @schema@.renew_shared_1(
                names[i], ids[i], clients[i], ear, kinds[i], leases[i]) end;
            if rest is not null then
                outcome := 'renewed';
                place := null;
                look := null;
                note := null;
                return next;
                continue;
            end if;
            if was.name is not null then
                perform @schema@.save_1(done.h, was, now);
            end if;
            name := names[i];
            locked := false;
            if is_alone then
                select t.* into was from @schema@.names t where t.name = names[i] for update;
            else
                was := @schema@.take_within_1(names[i], case when waits > 0 then 100 else 0 end);
                if was.name is null then
                    locked := exists (select from @schema@.names t where t.name = names[i]);
                    waits := waits - locked::int;
                end if;
            end if;
            if was.name is not null then
                -- The lease of a hand-off begins after the wait for the row.
                now := @schema@.now_1();
                done.h := @schema@.settle_1(was, now);
                has_handed := has_handed or (done.h).handed > 0;
            end if;
        end if;
        continue when locked;
        if was.name is not null then
            done := @schema@.renew_item_1(done.h, ids[i], clients[i], ear, kinds[i], leases[i], now);
            outcome := (done.a).outcome;
            rest := (done.a).rest;
            place := (done.a).place;
            look := (done.a).look;
            note := (done.a).note;
        else
            outcome := 'unknown';
            rest := null;
            place := null;
            look := null;
            note := null;
        end if;
        return next;
    end loop;
    if was.name is not null then
        perform @schema@.save_1(done.h, was, now);
    end if;
    if 'w' = all (kinds) and not has_handed then
        -- A crash that loses heartbeats revokes no grant.
        perform set_config('synchronous_commit', 'off', true);
    end if;
end $$;

-- Releases the name and returns how long it was held, by one update: it has an exclusive holder, and
-- the queue is empty. Otherwise it returns null, and `release_1` decides.
create or replace function @schema@.release_alone_1(n bytea, id bytea)
returns bigint language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint := @schema@.now_1();
    held bigint;
begin
    update @schema@.names t set holder = null, permits_of = null, used = now
    where t.name = n and t.queued = 0 and t.freeze_until is null and t.tombstones is null
        and t.revoked is null and (t.holder).lease_id = id and (t.holder).deadline > now
        and (t.holder).revoked is null
    returning greatest(0, now - t.since) into held;
    return held;
end $$;

-- Ends what a lease id has. `remembered` is how long the id is refused from now on, or 0.
create or replace function @schema@.release_1(
    n bytea, id bytea, remembered bigint, out outcome text, out held bigint, out note bytea
) language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint := @schema@.now_1();
    h @schema@.names;
    was @schema@.names;
    x @schema@.holder;
    head @schema@.waiters;
    token bigint;
begin
    outcome := 'released';
    select t.* into was from @schema@.names t where t.name = n for update;
    if not found then
        if remembered = 0 then
            outcome := 'nothing';
            return;
        end if;
        was := @schema@.take_1(n);
    end if;
    now := @schema@.now_1();
    if remembered = 0 and (was.holder).lease_id = id and (was.holder).revoked is null
        and @schema@.is_plain_1(was, now) then
        held := greatest(0, now - was.since);
        if was.queued = 0 then
            update @schema@.names t set holder = null, permits_of = null, used = now where t.name = n;
            return;
        end if;
        -- The common hand-off: to the head of the queue alone, which has not moved.
        delete from @schema@.waiters q
        where q.name = n and q.place = was.first_place and q.mode = 'x' returning q.* into head;
        if found then
            update @schema@.names t set
                holder = row(head.lease_id, head.client, head.inbox, 'x', 0, 0, head.kind,
                    head.lease, head.kind, head.hand_off_lease, nextval('@schema@.fence'), now,
                    now + head.hand_off_lease, null, head.metadata)::@schema@.holder,
                queued = t.queued - 1, first_place = head.place + 1, since = now, used = now
            where t.name = n
            returning (t.holder).token into token;
            -- The message is sent after the commit is flushed, so no crash takes the token back.
            perform @schema@.notify_1(head.inbox, @schema@.grant_1(head.lease_id, token));
            return;
        end if;
    end if;
    h := @schema@.settle_1(was, now);
    if remembered > 0 then
        h.tombstones := @schema@.remember_1(h.tombstones, id, now + remembered, '');
    end if;
    x := @schema@.holder_of_1(h, id);
    if x.token is not null then
        held := greatest(0, now - x.since);
        h := @schema@.remember_revoked_1(h, x, now);
        h := @schema@.end_holder_1(h, x);
    else
        delete from @schema@.waiters w where h.queued > 0 and w.name = n and w.lease_id = id;
        if found then
            outcome := 'withdrawn';
            h.queued := h.queued - 1;
        else
            outcome := 'nothing';
            select m.reason into note from unnest(h.revoked) m where m.lease_id = id;
        end if;
    end if;
    perform @schema@.save_1(@schema@.hand_over_1(h, now), was, now);
end $$;

create or replace function @schema@.revoke_1(
    n bytea, which bigint, why bytea, at_once boolean, out outcome text, out rest bigint
) language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint := @schema@.now_1();
    h @schema@.names;
    was @schema@.names;
    x @schema@.holder;
    id bytea;
begin
    outcome := 'nothing';
    select t.* into was from @schema@.names t where t.name = n for update;
    if not found then
        return;
    end if;
    now := @schema@.now_1();
    h := @schema@.settle_1(was, now);
    if (h.holder).token = which then
        id := (h.holder).lease_id;
    elsif h.shared > 0 then
        select s.lease_id into id from @schema@.shared_holders s
        where s.name = n and s.token = which;
    end if;
    if id is not null then
        x := @schema@.holder_of_1(h, id);
        x.revoked := why;
        perform @schema@.notify_1(x.inbox, @schema@.hint_1('c', x.lease_id));
        if at_once then
            outcome := 'done';
            h := @schema@.remember_revoked_1(h, x, now);
            h := @schema@.end_holder_1(h, x);
            h := @schema@.hand_over_1(h, now);
        else
            outcome := 'notified';
            rest := x.deadline - now;
            h := @schema@.put_holder_1(h, x);
        end if;
    end if;
    perform @schema@.save_1(h, was, now);
end $$;

-- Removes the first waiter whose lease id begins with `short`. The id is remembered as a revoked one.
create or replace function @schema@.remove_waiter_1(
    n bytea, short bytea, why bytea, out outcome text, out rest bigint
) language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint := @schema@.now_1();
    h @schema@.names;
    was @schema@.names;
    w @schema@.waiters;
begin
    outcome := 'nothing';
    select t.* into was from @schema@.names t where t.name = n for update;
    if not found then
        return;
    end if;
    now := @schema@.now_1();
    h := @schema@.settle_1(was, now);
    delete from @schema@.waiters q where q.name = n
        and q.place = (select min(f.place) from @schema@.waiters f
            where h.queued > 0 and f.name = n and f.place >= h.first_place
                and substring(f.lease_id from 1 for 4) = short)
    returning q.* into w;
    if found then
        outcome := 'done';
        h.queued := h.queued - 1;
        h.revoked := @schema@.remember_1(
            h.revoked, w.lease_id, now + greatest(w.lease, @min_tombstone@), why);
        perform @schema@.notify_1(w.inbox, @schema@.hint_1('l', w.lease_id));
        h := @schema@.hand_over_1(h, now);
    end if;
    perform @schema@.save_1(h, was, now);
end $$;

-- Freezes the name for `duration` from now; replaces an earlier freeze.
create or replace function @schema@.freeze_1(n bytea, duration bigint, why bytea)
returns void language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    was @schema@.names;
    now bigint;
    h @schema@.names;
begin
    if duration not between 0 and @max_freeze@ then
        raise exception using errcode = 'numeric_value_out_of_range',
            message = 'a freeze lasts at most @max_freeze@ microseconds';
    end if;
    was := @schema@.take_1(n);
    now := @schema@.now_1();
    h := @schema@.settle_1(was, now);
    h.freeze_until := now + duration;
    h.freeze_reason := why;
    perform @schema@.save_1(@schema@.hand_over_1(h, now), was, now);
end $$;

create or replace function @schema@.unfreeze_1(n bytea)
returns boolean language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint;
    h @schema@.names;
    was @schema@.names;
    was_frozen boolean;
begin
    select t.* into was from @schema@.names t where t.name = n for update;
    if not found then
        return false;
    end if;
    now := @schema@.now_1();
    h := @schema@.settle_1(was, now);
    was_frozen := h.freeze_until is not null;
    h.freeze_until := null;
    h.freeze_reason := null;
    h.freeze_token := null;
    perform @schema@.save_1(@schema@.hand_over_1(h, now), was, now);
    return was_frozen;
end $$;

-- Makes all later tokens larger than `floor`, which leaves enough of them. A role needs a grant for this
-- function (`finish.sql`). The `alter sequence`, which changes nothing, locks the
-- sequence, so that no token is drawn meanwhile.
create or replace function @schema@.raise_1(floor bigint)
returns void language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    last bigint;
    drawn boolean;
begin
    if floor > @largest_fence@ then
        raise exception using errcode = 'numeric_value_out_of_range',
            message = 'the fence may be raised to @largest_fence@ at most';
    end if;
    alter sequence @schema@.fence no cycle;
    select f.last_value, f.is_called into last, drawn from @schema@.fence f;
    -- An unused sequence returns its `last_value` first.
    if floor > last or (floor = last and not drawn) then
        perform setval('@schema@.fence', floor);
    end if;
end $$;

-- Settles those of some names that time has changed by `now`. If there is more than one name, names
-- whose rows are locked are skipped.
create or replace function @schema@.refresh_1(wanted bytea[], now bigint)
returns void language plpgsql as $$
declare
    n bytea;
    was @schema@.names;
begin
    for n in
        select t.name from @schema@.names t where t.name = any (wanted) and (
            t.queued > 0 or t.freeze_until <= now
            or (t.holder).deadline <= now or (t.shared > 0 and t.ends <= now)
            or exists (select from unnest(t.tombstones || t.revoked) m where m.until <= now)
        ) order by t.name
    loop
        if cardinality(wanted) = 1 then
            was := @schema@.take_1(n);
        else
            was := @schema@.take_within_1(n, 0);
            continue when was.name is null;
        end if;
        -- The call may have waited for the row.
        now := @schema@.now_1();
        perform @schema@.save_1(@schema@.settle_1(was, now), was, now);
    end loop;
end $$;

-- Returns the state of some names at one moment: a row of the part `name` for each that is not free, then
-- its holders and its queue, at most `most` of each.
create or replace function @schema@.inspect_1(wanted bytea[], most int)
returns table (
    name bytea, part text, id bytea, mode text, permits int, total int, token bigint,
    passed bigint, rest bigint, state text, kind text, note bytea, metadata bytea,
    holders int, queued int
) language plpgsql security definer set search_path = @schema@, pg_temp as $$
#variable_conflict use_column
declare
    now bigint := @schema@.now_1();
begin
    perform @schema@.refresh_1(wanted, now);
    now := @schema@.now_1();
    return query
    with shown as materialized (
        select t.*, (t.holder).token is not null as is_exclusive
        from @schema@.names t where t.name = any (wanted)
    ), holding as (
        select t.name, (t.holder).* from shown t where t.is_exclusive
        union all
        select x.* from shown t, lateral (
            select s.* from @schema@.shared_holders s
            where t.shared > 0 and s.name || ''::bytea = t.name order by s.token limit most
        ) x
    ), waiting as (
        select x.* from shown t, lateral (
            select w.* from @schema@.waiters w where w.name = t.name and w.place >= t.first_place
            order by w.place limit most
        ) x
    )
    select p.name, p.part, p.id, p.mode, p.permits, p.total, p.token, p.passed, p.rest, p.state,
        p.kind, p.note, p.metadata, p.holders, p.queued
    from (
        select 1, 0, t.name, 'name', null::bytea, null::text, null::int,
            t.permits_of, t.freeze_token, null::bigint, greatest(0, t.freeze_until - now),
            null::text, case when t.freeze_until is not null then 'f' end, t.freeze_reason,
            null::bytea, case when t.is_exclusive then 1 else t.shared end, t.queued
        from shown t
        where t.is_exclusive or t.shared > 0 or t.queued > 0 or t.freeze_until is not null
        union all
        select 2, x.token, x.name, 'holder', substr(x.lease_id, 1, 4), x.mode, x.permits, x.total,
            x.token, greatest(0, now - x.since), greatest(0, x.deadline - now),
            case when x.revoked is not null then 'r' else 'g' end,
            x.kind, x.revoked, x.metadata, null, null
        from holding x
        union all
        select 3, w.place, w.name, 'waiter', substr(w.lease_id, 1, 4), w.mode, w.permits, w.total,
            null, greatest(0, now - w.queued_at), null, null, w.kind, null, w.metadata, null, null
        from waiting w
    ) p(of_part, at, name, part, id, mode, permits, total, token, passed, rest, state, kind, note,
        metadata, holders, queued)
    order by p.of_part, p.name, p.at;
end $$;

-- Lists the names that may be in use, from `first` or after `after` on, in the order of their bytes.
create or replace function @schema@.list_1(first bytea, after bytea, last bytea, most int)
returns setof bytea language sql security definer set search_path = @schema@, pg_temp as $$
    select t.name from @schema@.names t
    where t.name >= first and (after is null or t.name > after)
        and (last is null or t.name < last)
        and ((t.holder).token is not null or t.shared > 0 or t.queued > 0
            or t.freeze_until is not null)
    order by t.name limit most
$$;

-- Where the sweep of the next client continues: a process that takes one lock never sweeps twice.
create table if not exists @schema@.sweep_place (
    only_row boolean primary key default true check (only_row),
    -- The last name that was looked at; null at the end.
    place bytea
);
insert into @schema@.sweep_place (place) values (null) on conflict do nothing;

-- Looks at some rows after `after` and removes the empty ones that were not used for a minute. Returns
-- where to go on; null at the end. Without `after` it continues where the last such call of any client
-- ended, and does nothing while another one runs. It waits for no row.
create or replace function @schema@.sweep_1(after bytea, most int)
returns bytea language plpgsql security definer set search_path = @schema@, pg_temp as $$
declare
    now bigint := @schema@.now_1();
    old bigint := now - 60000000;
    is_shared boolean := after is null;
    page bytea[];
    unused bytea[];
begin
    if is_shared then
        select t.place into after from @schema@.sweep_place t for update skip locked;
        if not found then
            return null;
        end if;
    end if;
    page := array(
        select t.name from @schema@.names t where after is null or t.name > after
        order by t.name limit most
    );
    unused := array(
        select t.name from @schema@.names t where t.name = any (page) and t.used < old
        for update skip locked
    );
    perform @schema@.refresh_1(unused, now);
    delete from @schema@.names t where t.name = any (unused) and t.used < old
        and t.holder is null and t.shared = 0 and t.queued = 0 and t.freeze_until is null
        and t.tombstones is null and t.revoked is null;
    after := case when cardinality(page) = most then page[most] end;
    if is_shared then
        update @schema@.sweep_place t set place = after;
    end if;
    return after;
end $$;
