-- The stored data: one row for each name, one for each contender in a queue, and the sequence of
-- fencing tokens. Moments and durations are whole microseconds, moments since 1970. `@schema@` is
-- replaced by the schema's name; in the functions, `@queue_silence@` and the like by the times of the
-- contract, in microseconds.

create table @schema@.about (
    only_row boolean primary key default true check (only_row),
    format int not null
);
comment on table @schema@.about is 'Holdline: the locks of this schema. Do not change by hand.';
insert into @schema@.about (format) values (@format@);

-- Without a cache: a cached sequence gives an earlier session larger numbers.
create sequence @schema@.fence maxvalue 9007199254740991 cache 1;

create type @schema@.holder as (
    lease_id bytea,
    client bigint,
    inbox bigint,
    mode text,
    permits int,
    total int,
    asked_kind text,
    asked bigint,
    kind text,
    lease bigint,
    token bigint,
    since bigint,
    deadline bigint,
    revoked bytea,
    metadata bytea
);

create type @schema@.mark as (
    lease_id bytea,
    until bigint,
    reason bytea
);

-- The request of a contender.
create type @schema@.request as (
    name bytea,
    lease_id bytea,
    client bigint,
    inbox bigint,
    mode text,
    permits int,
    total int,
    kind text,
    lease bigint,
    hand_off_lease bigint,
    metadata bytea
);

-- The reply; the fields `by_...` describe the holder or the freeze that blocks the name.
create type @schema@.answer as (
    outcome text,
    token bigint,
    rest bigint,
    place int,
    look bigint,
    note bytea,
    by_id bytea,
    by_token bigint,
    by_mode text,
    by_permits int,
    by_total int,
    by_held bigint,
    by_rest bigint,
    by_metadata bytea
);

-- Half of each page is left free: an update then stays on its page and changes no index. There are
-- no checks: the server parses each of them again for each update, which cost more than the update.
-- Arrays are never empty, they are null instead; only the functions write.
create table @schema@.heads (
    name bytea primary key,
    holders @schema@.holder[],
    permits_of int,
    queued int not null default 0,
    next_place bigint not null default 0,
    heard_since bigint not null default 0,
    freeze_until bigint,
    freeze_reason bytea,
    freeze_token bigint,
    tombstones @schema@.mark[],
    revoked @schema@.mark[],
    -- When the last single holder got the name, and when the row was last used.
    since bigint not null default 0,
    used bigint not null default 0,
    -- To how many contenders the running command has handed the name; 0 in every stored row.
    handed int not null default 0,
    -- No entry of the queue has a smaller place. Scans of the queue begin here: removed entries stay in
    -- the index before it until the server cleans up.
    first_place bigint not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

create table @schema@.waiters (
    name bytea not null,
    place bigint not null,
    lease_id bytea not null,
    client bigint not null,
    inbox bigint not null,
    mode text not null,
    permits int not null,
    total int not null,
    kind text not null,
    lease bigint not null,
    hand_off_lease bigint not null,
    queued_at bigint not null,
    heard bigint not null,
    metadata bytea not null,
    primary key (name, place),
    unique (name, lease_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- The state of a name while a command works on it, and the reply so far.
create type @schema@.step as (
    h @schema@.heads,
    a @schema@.answer
);

grant select on @schema@.about to public;
