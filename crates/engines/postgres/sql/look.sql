-- Returns the state of the schema `$1`. This runs before the schema is trusted, with the rights of the
-- role that connects and under any search path. So each function, operator, type and table is
-- qualified; `in` and `case ... when`, which look an operator up by its name, are not used.
--
-- A role trusts itself, the roles that it is a member of, the owner of the database, and superusers.
with recursive mine(oid) as (
    select r.oid from pg_catalog.pg_roles r where r.rolname operator(pg_catalog.=) current_user
    union select m.roleid from pg_catalog.pg_auth_members m
        join mine on m.member operator(pg_catalog.=) mine.oid
), trusted(oid) as (
    select oid from mine
    union select r.oid from pg_catalog.pg_roles r
        where r.rolsuper or r.rolname operator(pg_catalog.=) 'pg_database_owner'::pg_catalog.name
    union select d.datdba from pg_catalog.pg_database d
        where d.datname operator(pg_catalog.=) pg_catalog.current_database()
)
select
    n.oid is not null,
    pg_catalog.has_schema_privilege(n.oid, 'usage'::pg_catalog.text),
    exists (select from pg_catalog.pg_class c
            where c.relnamespace operator(pg_catalog.=) n.oid)
        or exists (select from pg_catalog.pg_proc p
            where p.pronamespace operator(pg_catalog.=) n.oid),
    coalesce(pg_catalog.obj_description(about.oid, 'pg_class'::pg_catalog.name)
        operator(pg_catalog.~~) 'Holdline: %'::pg_catalog.text, false),
    (select pg_catalog.count(distinct p.proname) operator(pg_catalog.=) 15::pg_catalog.int8
        from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=) n.oid
            and p.proname operator(pg_catalog.=) any (array['acquire_1', 'grant_free_1', 'renew_1',
                'release_1', 'release_alone_1', 'inspect_1', 'list_1', 'revoke_1', 'freeze_1',
                'unfreeze_1', 'remove_waiter_1', 'raise_1', 'sweep_1', 'audit_append_1',
                'audit_read_1']::pg_catalog.name[])),
    pg_catalog.pg_has_role(coalesce(about.relowner, n.nspowner), 'member'::pg_catalog.text),
    pg_catalog.pg_get_userbyid(coalesce(about.relowner, n.nspowner)),
    (select pg_catalog.max(pg_catalog.substring(
            pg_catalog.obj_description(p.oid, 'pg_proc'::pg_catalog.name),
            '^Holdline: revision ([0-9]{1,9})$'::pg_catalog.text)::pg_catalog.int4)
        from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=) n.oid
            and p.proname operator(pg_catalog.=) 'audit_read_1'::pg_catalog.name),
    (select pg_catalog.string_agg(distinct
            case when o.oid operator(pg_catalog.=) 0::pg_catalog.oid then 'PUBLIC'::pg_catalog.text
            else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(o.oid)::pg_catalog.text) end,
            ', '::pg_catalog.text)
        from (select n.nspowner
            union select c.relowner from pg_catalog.pg_class c
                where c.relnamespace operator(pg_catalog.=) n.oid
            union select p.proowner from pg_catalog.pg_proc p
                where p.pronamespace operator(pg_catalog.=) n.oid
            union select a.grantee from pg_catalog.aclexplode(n.nspacl) a
                where a.privilege_type operator(pg_catalog.=) 'CREATE'::pg_catalog.text) o(oid)
        where n.oid is not null and not exists (
            select from trusted t where t.oid operator(pg_catalog.=) o.oid)),
    (select pg_catalog.max(pg_catalog.substring(
            pg_catalog.obj_description(p.oid, 'pg_proc'::pg_catalog.name),
            '^Holdline: text ([0-9a-f]{16})$'::pg_catalog.text))
        from pg_catalog.pg_proc p where p.pronamespace operator(pg_catalog.=) n.oid
            and p.proname operator(pg_catalog.=) 'now_1'::pg_catalog.name)
from (values (1)) one
    left join pg_catalog.pg_namespace n
        on n.nspname operator(pg_catalog.=) $1::pg_catalog.name
    left join pg_catalog.pg_class about
        on about.relnamespace operator(pg_catalog.=) n.oid
            and about.relname operator(pg_catalog.=) 'about'::pg_catalog.name
            and about.relkind operator(pg_catalog.=) 'r'::pg_catalog."char"
