-- The stored data: one row for each name, one for each holder, one for each contender in a queue,
-- and one for each tombstone and revoked lease id. Moments and durations are whole microseconds,
-- moments since 1970.
--
-- `@p@` is replaced by the prefix of the tables, `@r@` by the revision of the procedures. In the
-- procedures, `@queue_silence@` and the like are replaced by the times of the contract, in
-- microseconds. A line with two dollars ends a statement. `about` is created last: if it exists, all
-- tables exist.
--
-- Letters: `mode` is `x` (exclusive), `s` (shared) or `p` (permits). `kind` of a lease is `l` (leased) or
-- `d` (detached); in a batch of renewals, `w` is the heartbeat of a queue entry.

-- A name: all of its state but holders, queue entries and marks, as `Head` in `crates/core/src/table`.
create table if not exists @p@heads (
    name varbinary(512) not null primary key,
    -- The last fencing token of this name.
    fence bigint not null default 0,
    held int not null default 0,
    -- How many permits the name has in total, if it is in use as a semaphore; otherwise null.
    permits_of int,
    queued int not null default 0,
    -- No entry of the queue stands before this place.
    first_place bigint not null default 0,
    next_place bigint not null default 0,
    -- No entry of the queue had its last heartbeat before this moment.
    heard_since bigint not null default 0,
    -- The earliest deadline of a grant, or an earlier moment; no grant ends before it. 0 without holders.
    ends bigint not null default 0,
    freeze_until bigint,
    freeze_reason varbinary(512),
    freeze_token bigint,
    -- How many rows of `marks` this name has.
    marks int not null default 0,
    -- When the row was last written: `sweep` removes rows that are not used.
    used bigint not null,
    -- The exclusive holder, if it took the free name by the one statement of `fast.sql`: `fence` is its
    -- token, and `ends` its deadline. `settle` moves it to `holders`.
    lease_id binary(16),
    client binary(8),
    inbox binary(8),
    kind binary(1),
    lease bigint,
    since bigint,
    metadata varbinary(1024),
    -- 2^53 - 1, `FencingToken::MAX`: the largest token that all clients can represent.
    constraint no_fencing_token_is_left check (fence <= 9007199254740991)
) engine = InnoDB row_format = dynamic comment = 'Holdline: the names of locks'
$$

-- When a grant ends, its row stays with an empty lease id, and the next holder reuses it. Deleted
-- rows would be scanned until the server has cleaned up. An exclusive holder is always in slot 0.
create table if not exists @p@holders (
    name varbinary(512) not null,
    slot int not null,
    lease_id binary(16),
    client binary(8) not null,
    inbox binary(8) not null,
    mode binary(1) not null,
    permits int not null,
    total int not null,
    -- The terms of the first request, which each later request with the lease id must repeat.
    asked_kind binary(1) not null,
    asked bigint not null,
    -- The terms of the last renewal.
    kind binary(1) not null,
    lease bigint not null,
    token bigint not null,
    since bigint not null,
    deadline bigint not null,
    -- What the process of the holder is woken for, which finds these rows by the index `by_news`: 0 for
    -- nothing, 2 for a revocation. For a hand-off that it has not asked about since: 1 if it must ask, 3 if
    -- the row is the grant once nobody holds the server's lock `holdline_` and the lease id.
    news tinyint not null,
    revoked varbinary(512),
    metadata varbinary(1024) not null,
    primary key (name, slot),
    key by_news (inbox, news)
) engine = InnoDB row_format = dynamic comment = 'Holdline: the holders of locks'
$$

create table if not exists @p@waiters (
    name varbinary(512) not null,
    place bigint not null,
    lease_id binary(16) not null,
    client binary(8) not null,
    inbox binary(8) not null,
    mode binary(1) not null,
    permits int not null,
    total int not null,
    kind binary(1) not null,
    lease bigint not null,
    -- The lease with which a hand-off begins.
    hand_off_lease bigint not null,
    queued_at bigint not null,
    -- The last heartbeat.
    heard bigint not null,
    metadata varbinary(1024) not null,
    primary key (name, place),
    unique key by_id (name, lease_id)
) engine = InnoDB row_format = dynamic comment = 'Holdline: the queues of locks'
$$

-- `kind` is `t` for a tombstone, `r` for a grant that was revoked. One row without a name, of the kind `s`,
-- has the place where the next sweep continues.
create table if not exists @p@marks (
    name varbinary(512) not null,
    kind binary(1) not null,
    lease_id binary(16) not null,
    until bigint not null,
    reason varbinary(512) not null,
    inbox binary(8) not null,
    primary key (name, kind, lease_id),
    key by_inbox (inbox)
) engine = InnoDB row_format = dynamic comment = 'Holdline: lease ids that are over'
$$

-- Metadata of the schema. `floor` is no smaller than the last token of any name whose row was removed.
create table if not exists @p@about (
    only_row tinyint not null primary key check (only_row = 1),
    format int not null,
    floor bigint not null
) engine = InnoDB row_format = dynamic
comment = 'Holdline: the locks of these tables. Do not change by hand.'
$$

insert ignore into @p@about values (1, @format@, 0)
