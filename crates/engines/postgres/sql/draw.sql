-- For locks that are not rows of these tables. It is the last function: a schema that has it is
-- complete.

-- Draws a fencing token. A sequence writes to the log only every 32nd time, and a transaction that
-- writes nothing flushes nothing. So another session may have reserved this number in a commit that is
-- not flushed yet, and after a crash the number would be issued again. Therefore everything that was
-- written before is flushed first. If it has been, by somebody's commit, nothing is written. A
-- standby that commits wait for may be behind our own disk: then a message is always written, whose
-- commit waits for both. The position is read after the number is drawn: the reservation lies before it.
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
