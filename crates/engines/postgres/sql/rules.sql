-- The rules of the lock table, as `crates/core/src/table` states them, for one name at a time.
-- The functions that a client calls are in `verbs.sql`; only they call these. They are in PL/pgSQL,
-- which caches its plans. Functions in SQL are parsed again at each call, unless they can be inlined, as
-- `now_1` can.
--
-- They do not set a search path, which would cost more than most of them do. Their callers set it, and
-- only their owner may call them (see `finish.sql`).

create or replace function @schema@.now_1() returns bigint language sql volatile as $$
    select (extract(epoch from pg_catalog.clock_timestamp())
        operator(pg_catalog.*) 1000000::pg_catalog.numeric)::bigint
$$;

-- Adds or prolongs a mark; if there are too many, removes the one that expires first.
create or replace function @schema@.remember_1(
    marks @schema@.mark[], id bytea, ends bigint, why bytea
) returns @schema@.mark[] language plpgsql as $$
declare
    kept @schema@.mark[];
    known @schema@.mark;
begin
    select m.* into known from unnest(marks) m where m.lease_id = id;
    if found then
        ends := greatest(ends, known.until);
        why := known.reason;
        kept := array(select m from unnest(marks) m where m.lease_id <> id);
    else
        kept := marks;
        if cardinality(kept) >= 1024 then
            kept := array(select m from unnest(kept) m order by m.until desc limit 1023);
        end if;
    end if;
    return array_append(kept, row(id, ends, why)::@schema@.mark);
end $$;

-- Returns whether one more contender of this mode fits beside the holders.
create or replace function @schema@.admits_1(
    h @schema@.names, wanted text, count int, of int
) returns boolean language plpgsql as $$
begin
    if (h.holder).token is not null then
        return false;
    elsif h.shared = 0 then
        return true;
    elsif wanted = 's' then
        return h.permits_of is null;
    elsif wanted = 'p' then
        return h.permits_of is not null and h.permits_used + count <= of;
    end if;
    return false;
end $$;

-- Adds a holder, which has the youngest token of the name.
create or replace function @schema@.add_holder_1(h @schema@.names, x @schema@.holder)
returns @schema@.names language plpgsql as $$
begin
    if x.mode = 'x' then
        h.holder := x;
        return h;
    end if;
    insert into @schema@.shared_holders select h.name, x.*;
    if h.shared = 0 then
        h.ends := x.deadline;
        h.first_token := x.token;
    end if;
    h.shared := h.shared + 1;
    h.permits_used := h.permits_used + x.permits;
    h.ends := least(h.ends, x.deadline);
    return h;
end $$;

-- Returns the holder with this lease id, or a row of nulls.
create or replace function @schema@.holder_of_1(h @schema@.names, id bytea)
returns @schema@.holder language plpgsql as $$
declare
    x @schema@.holder;
begin
    if (h.holder).lease_id = id then
        return h.holder;
    elsif h.shared > 0 then
        select s.lease_id, s.client, s.inbox, s.mode, s.permits, s.total, s.asked_kind, s.asked,
            s.kind, s.lease, s.token, s.since, s.deadline, s.revoked, s.metadata
        into x from @schema@.shared_holders s where s.name = h.name and s.lease_id = id;
    end if;
    return x;
end $$;

-- Returns the oldest holder, or a row of nulls.
create or replace function @schema@.oldest_1(h @schema@.names)
returns @schema@.holder language plpgsql as $$
declare
    id bytea;
begin
    if h.shared = 0 then
        return h.holder;
    end if;
    select s.lease_id into id from @schema@.shared_holders s
    where s.name || ''::bytea = h.name and s.token >= h.first_token order by s.token limit 1;
    return @schema@.holder_of_1(h, id);
end $$;

-- Replaces a holder by a later state of it, whose deadline is no earlier. A shared holder may have been
-- renewed since it was read (`renew_shared_1`).
create or replace function @schema@.put_holder_1(h @schema@.names, x @schema@.holder)
returns @schema@.names language plpgsql as $$
begin
    if x.mode = 'x' then
        h.holder := x;
    else
        update @schema@.shared_holders s set
            client = x.client, inbox = x.inbox, kind = x.kind, lease = x.lease,
            deadline = greatest(s.deadline, x.deadline), revoked = x.revoked
        where s.name = h.name and s.lease_id = x.lease_id;
    end if;
    return h;
end $$;

create or replace function @schema@.end_holder_1(h @schema@.names, x @schema@.holder)
returns @schema@.names language plpgsql as $$
begin
    if x.mode = 'x' then
        h.holder := null;
    else
        delete from @schema@.shared_holders s where s.name = h.name and s.lease_id = x.lease_id;
        h.shared := h.shared - 1;
        h.permits_used := h.permits_used - x.permits;
    end if;
    return h;
end $$;

-- How full the server's notification queue may be, from 0 to 1, for one more notification.
create or replace function @schema@.notify_limit_1()
returns double precision language sql immutable as $$ select 0.75::double precision $$;

-- Notifies a waiter or a holder. If the server's notification queue is full, the commit fails, and with
-- it a release that hands over. One session of the cluster that listens inside a long transaction fills
-- the queue. So if the queue is nearly full, nothing is sent: the heartbeat finds the hand-off.
create or replace function @schema@.notify_1(inbox bigint, message text)
returns void language plpgsql as $$
begin
    if inbox <> 0 and pg_notification_queue_usage() < @schema@.notify_limit_1() then
        perform pg_notify('holdline_' || lpad(to_hex(inbox), 16, '0'), message);
    end if;
end $$;

-- Returns the message to look again (`l`), or to check the lease (`c`).
create or replace function @schema@.hint_1(letter text, id bytea)
returns text language plpgsql as $$
begin
    return letter || left(encode(id, 'hex'), 8);
end $$;

-- Returns the message that is the grant of a hand-off. The rest of the lease id is the holder's secret.
create or replace function @schema@.grant_1(id bytea, token bigint)
returns text language plpgsql as $$
begin
    return 'g' || left(encode(id, 'hex'), 16) || lpad(token::text, 16, '0');
end $$;

-- Gives a free name to the freeze, or to the first contenders in the queue that fit together.
create or replace function @schema@.hand_over_1(h @schema@.names, now bigint)
returns @schema@.names language plpgsql as $$
declare
    w @schema@.waiters;
    token bigint;
begin
    while h.freeze_until is null and h.queued > 0 and h.handed < 64 loop
        select * into w from @schema@.waiters
        where name = h.name and place >= h.first_place order by place limit 1;
        exit when not found;
        h.first_place := w.place;
        exit when not @schema@.admits_1(h, w.mode, w.permits, w.total);
        delete from @schema@.waiters where name = h.name and place = w.place;
        h.first_place := w.place + 1;
        h.queued := h.queued - 1;
        h.handed := h.handed + 1;
        token := nextval('@schema@.fence');
        h := @schema@.add_holder_1(h, row(
            w.lease_id, w.client, w.inbox, w.mode, w.permits, w.total, w.kind, w.lease, w.kind,
            w.hand_off_lease, token, now, now + w.hand_off_lease, null, w.metadata
        )::@schema@.holder);
        perform @schema@.notify_1(w.inbox, @schema@.grant_1(w.lease_id, token));
    end loop;
    if (h.holder).token is null and h.shared = 0 then
        if h.freeze_until is not null and h.freeze_token is null then
            h.freeze_token := nextval('@schema@.fence');
        end if;
        if h.queued = 0 then
            h.permits_of := null;
        end if;
    end if;
    return h;
end $$;

-- Remembers the id of a revoked grant that has ended, so that its holder learns the reason.
create or replace function @schema@.remember_revoked_1(
    h @schema@.names, x @schema@.holder, now bigint
) returns @schema@.names language plpgsql as $$
declare
    ends bigint := least(x.deadline, now) + greatest(x.lease, @min_tombstone@);
begin
    if x.revoked is not null and ends > now then
        h.revoked := @schema@.remember_1(h.revoked, x.lease_id, ends, x.revoked);
    end if;
    return h;
end $$;

-- Counts a queue again after entries were removed.
create or replace function @schema@.recount_1(h @schema@.names)
returns @schema@.names language plpgsql as $$
begin
    select count(*), coalesce(min(heard), 0), coalesce(min(place), h.next_place)
    into h.queued, h.heard_since, h.first_place
    from @schema@.waiters where name = h.name and place >= h.first_place;
    return h;
end $$;

-- Ends the shared grants whose lease is over, and counts the others again. That reads all of them, and
-- comes when the earliest lease of the last count ends: holders that renew in time are counted once in
-- most of a lease.
create or replace function @schema@.expire_shared_1(h @schema@.names, now bigint)
returns @schema@.names language plpgsql as $$
declare
    id bytea;
begin
    for id in
        select s.lease_id from @schema@.shared_holders s
        where s.name = h.name and s.deadline <= now and s.revoked is not null order by s.token
    loop
        h := @schema@.remember_revoked_1(h, @schema@.holder_of_1(h, id), now);
    end loop;
    delete from @schema@.shared_holders s where s.name = h.name and s.deadline <= now;
    select count(*), coalesce(sum(s.permits), 0), coalesce(min(s.deadline), 0),
        coalesce(min(s.token), 0)
    into h.shared, h.permits_used, h.ends, h.first_token
    from @schema@.shared_holders s where s.name = h.name;
    return h;
end $$;

-- Settles a name: every command does this first.
create or replace function @schema@.settle_1(h @schema@.names, now bigint)
returns @schema@.names language plpgsql as $$
begin
    if h.tombstones is not null then
        h.tombstones := nullif(array(select m from unnest(h.tombstones) m where m.until > now), '{}');
    end if;
    if h.revoked is not null then
        h.revoked := nullif(array(select m from unnest(h.revoked) m where m.until > now), '{}');
    end if;
    if h.freeze_until <= now then
        h.freeze_until := null;
        h.freeze_reason := null;
        h.freeze_token := null;
    end if;
    if (h.holder).deadline <= now then
        h := @schema@.remember_revoked_1(h, h.holder, now);
        h.holder := null;
    end if;
    if h.shared > 0 and h.ends <= now then
        h := @schema@.expire_shared_1(h, now);
    end if;
    if h.queued > 0 and h.heard_since + @queue_silence@ <= now then
        delete from @schema@.waiters
        where name = h.name and place >= h.first_place and heard <= now - @queue_silence@;
        h := @schema@.recount_1(h);
    end if;
    if h.queued > 0 or h.freeze_until is not null
        or (h.shared = 0 and (h.holder).token is null) then
        h := @schema@.hand_over_1(h, now);
    end if;
    return h;
end $$;

-- Returns whether a name is plain: one exclusive holder, maybe a queue, no marks, and nothing to settle.
-- For such a name the short ways in `verbs.sql` do what the rules would do.
create or replace function @schema@.is_plain_1(h @schema@.names, now bigint)
returns boolean language plpgsql as $$
begin
    return (h.holder).deadline > now
        and h.freeze_until is null and h.tombstones is null and h.revoked is null
        and (h.queued = 0 or h.heard_since + @queue_silence@ > now);
end $$;

create or replace function @schema@.save_1(h @schema@.names, was @schema@.names, now bigint)
returns void language plpgsql as $$
begin
    if h is not distinct from was then
        return;
    end if;
    update @schema@.names set
        holder = h.holder, shared = h.shared, permits_used = h.permits_used, ends = h.ends,
        first_token = h.first_token, permits_of = h.permits_of, queued = h.queued,
        next_place = h.next_place, first_place = h.first_place,
        heard_since = h.heard_since, freeze_until = h.freeze_until,
        freeze_reason = h.freeze_reason, freeze_token = h.freeze_token,
        tombstones = h.tombstones, revoked = h.revoked,
        since = coalesce((h.holder).since, h.since), used = now
    where name = h.name;
end $$;

-- Locks the row of a name for this command, and makes it if it is missing.
create or replace function @schema@.take_1(n bytea)
returns @schema@.names language plpgsql as $$
declare
    h @schema@.names;
begin
    loop
        select * into h from @schema@.names where name = n for update;
        if found then
            return h;
        end if;
        insert into @schema@.names (name) values (n) on conflict do nothing;
        if found then
            -- If somebody has removed the row by hand, its queue and its shared holders are left. They
            -- have ended: the places begin anew, and nothing counts the holders.
            delete from @schema@.waiters where name = n;
            delete from @schema@.shared_holders where name = n;
        end if;
    end loop;
end $$;

-- Locks the row of a name, if there is one, and waits at most `most` milliseconds for it. Returns a row
-- of nulls if it did not get the row.
create or replace function @schema@.take_within_1(n bytea, most int)
returns @schema@.names language plpgsql as $$
declare
    h @schema@.names;
    before text;
begin
    select * into h from @schema@.names where name = n for update skip locked;
    if found or most = 0 or not exists (select from @schema@.names where name = n) then
        return h;
    end if;
    -- In a block of its own, which is a subtransaction: most rows are not locked and need none.
    begin
        before := current_setting('lock_timeout');
        perform set_config('lock_timeout', most::text, true);
        select * into h from @schema@.names where name = n for update;
        perform set_config('lock_timeout', before, true);
    exception when lock_not_available then
        null;
    end;
    return h;
end $$;

-- Returns the earliest end of a grant or of the freeze. An end that is later than the next heartbeat of
-- the queue may be reported as an earlier moment, which is later than that too.
create or replace function @schema@.next_free_1(h @schema@.names, now bigint)
returns bigint language plpgsql as $$
declare
    first bigint := least(h.freeze_until, (h.holder).deadline);
begin
    if h.shared > 0 and h.ends >= now + @queue_heartbeat@ then
        return least(first, h.ends);
    elsif h.shared > 0 then
        return least(first, (
            select min(s.deadline) from @schema@.shared_holders s where s.name = h.name
        ));
    end if;
    return first;
end $$;

-- Returns how many entries are before a place. Every heartbeat asks this for each waiter, so the whole
-- queue is not read: entries are counted among the first 64 places only. Farther back the result is
-- exact unless entries have left the middle of the queue; then it may be too large by their number.
create or replace function @schema@.ahead_1(h @schema@.names, of bigint)
returns int language plpgsql as $$
declare
    given bigint := of - h.first_place;
begin
    if given > 64 then
        return least(given, h.queued - 1);
    end if;
    return (select count(*) from @schema@.waiters
        where name = h.name and place >= h.first_place and place < of);
end $$;

-- Returns when a contender at this position should look again: with the heartbeat, and at the head
-- also when the first grant expires.
create or replace function @schema@.next_look_1(h @schema@.names, place int, now bigint)
returns bigint language plpgsql as $$
begin
    if place > 0 then
        return @queue_heartbeat@;
    end if;
    return greatest(0, least(@queue_heartbeat@, coalesce(@schema@.next_free_1(h, now) - now, @queue_heartbeat@)));
end $$;
