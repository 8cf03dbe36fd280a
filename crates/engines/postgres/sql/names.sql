-- The names and their holders: one row for each name, which has its exclusive holder too, and one for
-- each shared holder and each holder of permits. So what a command on one of thousands of readers costs
-- does not grow with their number.

-- Half of each page is left free: an update then stays on its page and changes no index.
-- Arrays are never empty, they are null instead.
create table if not exists @schema@.names (
    name bytea primary key,
    -- The exclusive holder. It has a field that may be null: whether there is one, its token says.
    holder @schema@.holder,
    -- Of the rows of this name in `shared_holders`: their number and their permits together, and a moment
    -- and a token that no deadline and no token comes before.
    shared int not null default 0,
    permits_used int not null default 0,
    ends bigint not null default 0,
    first_token bigint not null default 0,
    permits_of int,
    queued int not null default 0,
    next_place bigint not null default 0,
    heard_since bigint not null default 0,
    freeze_until bigint,
    freeze_reason bytea,
    freeze_token bigint,
    tombstones @schema@.mark[],
    revoked @schema@.mark[],
    -- When the last exclusive holder got the name, and when the row was last used.
    since bigint not null default 0,
    used bigint not null default 0,
    -- To how many contenders the running command has handed the name; 0 in every stored row.
    handed int not null default 0,
    -- No entry of the queue has a smaller place. Scans of the queue begin here: removed entries stay in
    -- the index before it until the server cleans up.
    first_place bigint not null default 0
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- Read and written only under a lock of the name's row. After `name` the columns are those of the type
-- `holder`, in its order.
create table if not exists @schema@.shared_holders (
    name bytea not null,
    lease_id bytea not null,
    client bigint not null,
    inbox bigint not null,
    mode text not null,
    permits int not null,
    total int not null,
    asked_kind text not null,
    asked bigint not null,
    kind text not null,
    lease bigint not null,
    token bigint not null,
    since bigint not null,
    deadline bigint not null,
    revoked bytea,
    metadata bytea not null,
    primary key (name, lease_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 200);

-- By age. An index on the name itself would serve a search for a lease id too: on a table that was small
-- when it was last counted, the server may prefer it, and then reads all holders of the name.
create unique index if not exists shared_holders_by_age
    on @schema@.shared_holders ((name || ''::bytea), token);

-- Moves the rows of revision 12 and older, whose table `heads` had all holders of a name in one array. A
-- command of the older functions that comes meanwhile fails, because its table is gone; it is not applied.
do $$
begin
    if to_regclass('@schema@.heads') is not null then
        -- Commands wait behind this one: it does not wait for a dump.
        set local lock_timeout = 500;
        lock table @schema@.heads in access exclusive mode;
        insert into @schema@.names (
            name, holder, shared, permits_used, permits_of, queued, next_place, heard_since,
            freeze_until, freeze_reason, freeze_token, tombstones, revoked, since, used, first_place
        )
        select t.name, case when t.holders[1].mode = 'x' then t.holders[1] end, 0, 0, t.permits_of, t.queued, t.next_place, t.heard_since, t.freeze_until,
            t.freeze_reason, t.freeze_token, t.tombstones, t.revoked, t.since, t.used, t.first_place
        from @schema@.heads t;
        insert into @schema@.shared_holders
        select t.name, x.* from @schema@.heads t, unnest(t.holders) x
        where x.mode <> 'x';
        -- No deadline and no token comes before 0: the next command counts them.
        update @schema@.names t set shared = s.many, permits_used = s.permits
        from (
            select x.name, count(*)::int, sum(x.permits)::int
            from @schema@.shared_holders x group by x.name
        ) s(name, many, permits)
        where t.name = s.name;
        -- And the functions that have these types in their arguments.
        drop table @schema@.heads cascade;
        drop type @schema@.step cascade;
        drop function if exists @schema@.admits_1(@schema@.holder[], text, int, int),
            @schema@.holder_at_1(@schema@.holder[], bytea), @schema@.without_1(@schema@.holder[], int);
    end if;
    if to_regtype('@schema@.step') is null then
        -- The state of a name while a command works on it, and the reply so far.
        create type @schema@.step as (h @schema@.names, a @schema@.answer);
    end if;
end $$;
