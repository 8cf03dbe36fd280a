-- For holders whose lock is not a row of ours. It stands last: a schema that has it has all.

-- Draws a fencing token. A sequence writes to the log only each 32nd time, and who writes nothing
-- flushes nothing: others may have reserved this number in a commit that is not flushed yet, and a
-- crash would give it out again. So a message is written, which flushes all that came before it.
create or replace function @schema@.draw_1()
returns bigint language plpgsql volatile security definer set search_path = @schema@, pg_temp as $$
begin
    perform pg_catalog.pg_logical_emit_message(true, 'holdline'::text, ''::text);
    return nextval('@schema@.fence');
end
$$;

-- Who finds another number, or none, brings all functions up to date.
comment on function @schema@.draw_1() is 'Holdline: revision @revision@';

-- So does who finds the same number and another digest of the text of these files. It does not stand
-- beside the number, which older versions read.
comment on function @schema@.now_1() is 'Holdline: text @text@';

-- What has no search path of its own runs only below a function that has.
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
