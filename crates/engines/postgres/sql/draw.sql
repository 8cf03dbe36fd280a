-- Fencing tokens for advisory locks. `draw_1` is created last: if it exists, the schema is complete.
--
-- Usually a client calls neither function: the statement that takes the lock draws the token from
-- `fence_next`, and tests that it is in the latest block. It calls `draw_block_1` if the test fails. On a
-- server without unlogged sequences it calls `draw_1`.

-- A sequence writes to the WAL at every 32nd number, and that number may be issued only after a flush.
-- So numbers are reserved in blocks from the sequence `fence`, and issued one by one by an unlogged
-- sequence, `fence_next`. A crash or a failover resets `fence_next` to its start, which is in no block.
-- A server before 15 has no unlogged sequences; there the table stays empty.
create table if not exists @schema@.fence_block (
    only_row boolean primary key default true check (only_row),
    -- The block is `(below, last]`. One transaction reserves the numbers and stores the block.
    below bigint not null,
    last bigint not null
);
do $$ begin
    if pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 150000 then
        execute 'create unlogged sequence if not exists @schema@.fence_next cache 1
            minvalue -9007199254740991 maxvalue 9007199254740991 start -9007199254740991';
        insert into @schema@.fence_block (below, last) values (0, 0) on conflict do nothing;
        -- The statement that takes a lock draws from the block by itself. It calls `draw_block_1` when
        -- the block is used up.
        grant usage on sequence @schema@.fence_next to public;
        grant select on @schema@.fence_block to public;
    end if;
end $$;

-- Draws a fencing token, larger than all earlier ones, also those of the lock table. A client calls it if
-- `fence_next` works, and reserves a new block by that if the latest one is used up.
create or replace function @schema@.draw_block_1()
returns bigint language plpgsql volatile security definer set search_path = @schema@, pg_temp as $$
declare
    block_size constant bigint := 4096;
    token bigint;
    b @schema@.fence_block;
begin
    if pg_catalog.current_setting('synchronous_standby_names') <> '' then
        return @schema@.draw_1();
    end if;
    -- While this call waited for the row lock, another session may have reserved a block and set
    -- `fence_next` back. So the number is drawn after the row lock is acquired.
    select t.* into strict b from @schema@.fence_block t for update;
    token := nextval('@schema@.fence_next');
    -- The block is the latest one only if nobody has drawn from `fence` since: this is read last.
    if token > b.below and token <= b.last
        and pg_catalog.pg_sequence_last_value('@schema@.fence') = b.last
    then
        return token;
    end if;
    if pg_catalog.current_setting('synchronous_commit') = 'off' then
        perform pg_catalog.set_config('synchronous_commit', 'on', true);
    end if;
    -- Reserve a block only if no other session has drawn from `fence` since the last one.
    token := nextval('@schema@.fence');
    if token = b.last + 1 then
        select max(drawn.number) into b.last from (
            select nextval('@schema@.fence') as number
            from pg_catalog.generate_series(2, block_size)
        ) drawn;
        if b.last = token + block_size - 1 then
            -- The others see the block after the commit, and use no number of it before.
            b.below := token;
            perform setval('@schema@.fence_next', token);
        else
            token := b.last;
            b.below := b.last;
        end if;
    else
        b.below := token;
        b.last := token;
    end if;
    update @schema@.fence_block t set below = b.below, last = b.last;
    return token;
end
$$;

-- Draws a token without blocks. If WAL is not flushed yet, `pg_logical_emit_message` makes this
-- transaction's commit flush it and wait for the standby. While commits wait for a standby, it is always
-- called, because the standby may be behind our disk. The WAL position is read after the number is drawn.
create or replace function @schema@.draw_1()
returns bigint language plpgsql volatile security definer set search_path = @schema@, pg_temp as $$
declare
    token bigint := nextval('@schema@.fence');
begin
    if pg_catalog.pg_current_wal_insert_lsn() > pg_catalog.pg_current_wal_flush_lsn()
        or pg_catalog.current_setting('synchronous_standby_names') <> ''
    then
        perform pg_catalog.pg_logical_emit_message(true, 'holdline'::text, ''::text);
    end if;
    return token;
end
$$;

-- `draw_block_1` and `doctor` look at it.
grant select on sequence @schema@.fence to public;

-- A role that may raise the fence can take nearly all tokens away from all names. So a role that may
-- lock needs a grant for it.
revoke execute on function @schema@.raise_1(bigint) from public;

-- A client that finds an older number, or none, replaces all functions.
comment on function @schema@.draw_1() is 'Holdline: revision @revision@';

-- So does a client that finds the same number and another digest of these files. The digest has a
-- comment of its own, because older versions read the other one.
comment on function @schema@.now_1() is 'Holdline: text @text@';

-- A function that does not set the search path may only be called by one that does.
do $$
declare
    f pg_catalog.regprocedure;
begin
    for f in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace = '@schema@'::pg_catalog.regnamespace and not p.prosecdef
    loop
        execute pg_catalog.format('revoke all on function %s from public', f);
    end loop;
end $$;
