-- The stored data: one row for each contender in a queue, the sequence of fencing tokens, and the types
-- of the other tables (`names.sql`). Moments and durations are whole microseconds, moments since 1970.
-- `@schema@` is replaced by the schema's name; in the functions, `@queue_silence@` and the like by the
-- times of the contract, in microseconds.
--
-- No table of locks has checks: the server parses each of them again for each update, which cost more
-- than the update. Only the functions write.

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

grant select on @schema@.about to public;
