-- What a role with USAGE of the schema may call, also where default privileges keep new functions from
-- PUBLIC. Only when the schema is made: later an operator may have withdrawn some of it.
do $$
declare
    f pg_catalog.regprocedure;
begin
    for f in
        select p.oid from pg_catalog.pg_proc p
        where p.pronamespace = '@schema@'::pg_catalog.regnamespace and p.prosecdef
            and p.proname <> 'raise_1'
    loop
        execute pg_catalog.format('grant execute on function %s to public', f);
    end loop;
end $$;
