-- Adds what the tables of an older version lack. Adding a column needs an exclusive lock on the table,
-- and while this transaction waits for it, all others wait too. So the lock is not requested while a
-- long transaction, such as a dump, has the table open; and otherwise only for a short time.
do $$
declare
    heads pg_catalog.oid := '@schema@.heads'::pg_catalog.regclass;
    before text[];
begin
    if exists (select from pg_catalog.pg_attribute a
        where a.attrelid = heads and a.attname = 'first_place' and not a.attisdropped)
    then
        return;
    end if;
    before := array(select l.virtualtransaction from pg_catalog.pg_locks l
        where l.relation = heads and l.pid <> pg_catalog.pg_backend_pid());
    perform pg_catalog.pg_sleep(0.1);
    if exists (select from pg_catalog.pg_locks l
        where l.relation = heads and l.virtualtransaction = any (before))
    then
        raise exception using errcode = 'lock_not_available',
            message = 'an open transaction uses the table heads, to which a column is to be added';
    end if;
    perform pg_catalog.set_config('lock_timeout', '200ms', true);
    alter table @schema@.heads add column first_place bigint not null default 0;
    perform pg_catalog.set_config('lock_timeout', '0', true);
end $$;
