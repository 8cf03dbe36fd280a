-- Rights, and the marks by which clients recognise the functions. It runs last.

-- `doctor` reads it.
grant select on sequence @schema@.fence to public;

-- A role that may raise the fence can take nearly all tokens away from all names. So a role that may
-- lock needs a grant for it.
revoke execute on function @schema@.raise_1(bigint) from public;

-- A client that finds an older number, or none, replaces all functions.
comment on function @schema@.audit_read_1(bigint, bigint, int) is 'Holdline: revision @revision@';

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
