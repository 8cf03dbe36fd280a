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
    holders @schema@.holder[], wanted text, count int, of int
) returns boolean language plpgsql as $$
begin
    if holders is null then
        return true;
    elsif wanted = 's' then
        return not exists (select from unnest(holders) x where x.mode <> 's');
    elsif wanted = 'p' then
        return not exists (select from unnest(holders) x where x.mode <> 'p')
            and (select sum(x.permits::bigint) from unnest(holders) x) + count <= of;
    end if;
    return false;
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
create or replace function @schema@.hand_over_1(h @schema@.heads, now bigint)
returns @schema@.heads language plpgsql as $$
declare
    w @schema@.waiters;
    token bigint;
begin
    while h.freeze_until is null and h.queued > 0 and h.handed < 64 loop
        select * into w from @schema@.waiters
        where name = h.name and place >= h.first_place order by place limit 1;
        exit when not found;
        h.first_place := w.place;
        exit when not @schema@.admits_1(h.holders, w.mode, w.permits, w.total);
        delete from @schema@.waiters where name = h.name and place = w.place;
        h.first_place := w.place + 1;
        h.queued := h.queued - 1;
        h.handed := h.handed + 1;
        token := nextval('@schema@.fence');
        h.holders := array_append(h.holders, row(
            w.lease_id, w.client, w.inbox, w.mode, w.permits, w.total, w.kind, w.lease, w.kind,
            w.hand_off_lease, token, now, now + w.hand_off_lease, null, w.metadata
        )::@schema@.holder);
        perform @schema@.notify_1(w.inbox, @schema@.grant_1(w.lease_id, token));
    end loop;
    if h.holders is null then
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
    h @schema@.heads, x @schema@.holder, now bigint
) returns @schema@.heads language plpgsql as $$
declare
    ends bigint := least(x.deadline, now) + greatest(x.lease, @min_tombstone@);
begin
    if x.revoked is not null and ends > now then
        h.revoked := @schema@.remember_1(h.revoked, x.lease_id, ends, x.revoked);
    end if;
    return h;
end $$;

-- Counts a queue again after entries were removed.
create or replace function @schema@.recount_1(h @schema@.heads)
returns @schema@.heads language plpgsql as $$
begin
    select count(*), coalesce(min(heard), 0), coalesce(min(place), h.next_place)
    into h.queued, h.heard_since, h.first_place
    from @schema@.waiters where name = h.name and place >= h.first_place;
    return h;
end $$;

create or replace function @schema@.expire_1(h @schema@.heads, now bigint)
returns @schema@.heads language plpgsql as $$
declare
    x @schema@.holder;
    stand @schema@.holder[];
begin
    foreach x in array h.holders loop
        if x.deadline > now then
            stand := array_append(stand, x);
        end if;
    end loop;
    if stand is not distinct from h.holders then
        return h;
    end if;
    foreach x in array h.holders loop
        continue when x.deadline > now;
        h := @schema@.remember_revoked_1(h, x, now);
    end loop;
    h.holders := stand;
    return h;
end $$;

-- Settles a name: every command does this first.
create or replace function @schema@.settle_1(h @schema@.heads, now bigint)
returns @schema@.heads language plpgsql as $$
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
    if h.holders is not null then
        h := @schema@.expire_1(h, now);
    end if;
    if h.queued > 0 and h.heard_since + @queue_silence@ <= now then
        delete from @schema@.waiters
        where name = h.name and place >= h.first_place and heard <= now - @queue_silence@;
        h := @schema@.recount_1(h);
    end if;
    if h.queued > 0 or h.freeze_until is not null or h.holders is null then
        h := @schema@.hand_over_1(h, now);
    end if;
    return h;
end $$;

-- Returns whether a name is plain: one exclusive holder, maybe a queue, no marks, and nothing to settle.
-- For such a name the short ways in `verbs.sql` do what the rules would do.
create or replace function @schema@.is_plain_1(h @schema@.heads, now bigint)
returns boolean language plpgsql as $$
begin
    return cardinality(h.holders) = 1 and h.holders[1].mode = 'x' and h.holders[1].deadline > now
        and h.freeze_until is null and h.tombstones is null and h.revoked is null
        and (h.queued = 0 or h.heard_since + @queue_silence@ > now);
end $$;

create or replace function @schema@.save_1(h @schema@.heads, was @schema@.heads, now bigint)
returns void language plpgsql as $$
begin
    if h is not distinct from was then
        return;
    end if;
    update @schema@.heads set
        holders = h.holders, permits_of = h.permits_of, queued = h.queued,
        next_place = h.next_place, first_place = h.first_place,
        heard_since = h.heard_since, freeze_until = h.freeze_until,
        freeze_reason = h.freeze_reason, freeze_token = h.freeze_token,
        tombstones = h.tombstones, revoked = h.revoked,
        since = coalesce((h.holders[1]).since, h.since), used = now
    where name = h.name;
end $$;

-- Locks the row of a name for this command, and makes it if it is missing.
create or replace function @schema@.take_1(n bytea)
returns @schema@.heads language plpgsql as $$
declare
    h @schema@.heads;
begin
    loop
        select * into h from @schema@.heads where name = n for update;
        if found then
            return h;
        end if;
        insert into @schema@.heads (name) values (n) on conflict do nothing;
        if found then
            -- If somebody has removed the row by hand, the old queue is left; its places begin anew.
            delete from @schema@.waiters where name = n;
        end if;
    end loop;
end $$;

-- Locks the row of a name, if there is one, and waits at most `most` milliseconds for it. Returns a row
-- of nulls if it did not get the row.
create or replace function @schema@.take_within_1(n bytea, most int)
returns @schema@.heads language plpgsql as $$
declare
    h @schema@.heads;
    before text;
begin
    select * into h from @schema@.heads where name = n for update skip locked;
    if found or most = 0 or not exists (select from @schema@.heads where name = n) then
        return h;
    end if;
    -- In a block of its own, which is a subtransaction: most rows are not locked and need none.
    begin
        before := current_setting('lock_timeout');
        perform set_config('lock_timeout', most::text, true);
        select * into h from @schema@.heads where name = n for update;
        perform set_config('lock_timeout', before, true);
    exception when lock_not_available then
        null;
    end;
    return h;
end $$;

-- Returns the earliest end of a grant or of the freeze.
create or replace function @schema@.next_free_1(h @schema@.heads)
returns bigint language plpgsql as $$
declare
    x @schema@.holder;
    first bigint := h.freeze_until;
begin
    if h.holders is not null then
        foreach x in array h.holders loop
            first := least(first, x.deadline);
        end loop;
    end if;
    return first;
end $$;

-- Returns how many entries are before a place. Every heartbeat asks this for each waiter, so the whole
-- queue is not read: entries are counted among the first 64 places only. Farther back the result is
-- exact unless entries have left the middle of the queue; then it may be too large by their number.
create or replace function @schema@.ahead_1(h @schema@.heads, of bigint)
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
create or replace function @schema@.next_look_1(h @schema@.heads, place int, now bigint)
returns bigint language plpgsql as $$
begin
    if place > 0 then
        return @queue_heartbeat@;
    end if;
    return greatest(0, least(@queue_heartbeat@, coalesce(@schema@.next_free_1(h) - now, @queue_heartbeat@)));
end $$;

create or replace function @schema@.holder_at_1(holders @schema@.holder[], id bytea)
returns int language plpgsql as $$
begin
    for i in 1 .. coalesce(cardinality(holders), 0) loop
        if (holders[i]).lease_id = id then
            return i;
        end if;
    end loop;
    return null;
end $$;

create or replace function @schema@.without_1(holders @schema@.holder[], at int)
returns @schema@.holder[] language plpgsql as $$
begin
    if cardinality(holders) = 1 then
        return null;
    end if;
    return holders[:at - 1] || holders[at + 1:];
end $$;
