-- Functions, aggregates and operators that a stranger could plant in `public`. Each does what the
-- server's own of that name does, and notes its name if it was called by a session of Holdline.
create table public.ran (what pg_catalog.text);
grant all on public.ran to public;

create function public.note_ran(what pg_catalog.text) returns void
language plpgsql set search_path = pg_catalog as $trap$
begin
    if current_setting('application_name') = 'holdline' then
        insert into public.ran values (what);
    end if;
end $trap$;

do $plant$
declare
    f record;
begin
    -- The server's own operators, with the same types of operands.
    for f in
        select o.oid, o.oprname, l.typname as l, r.typname as r, t.typname as result,
            p.proname
        from pg_catalog.pg_operator o
        join pg_catalog.pg_type l on l.oid = o.oprleft
        join pg_catalog.pg_type r on r.oid = o.oprright
        join pg_catalog.pg_type t on t.oid = o.oprresult
        join pg_catalog.pg_proc p on p.oid = o.oprcode
        where o.oprnamespace = 'pg_catalog'::pg_catalog.regnamespace
            and o.oprname = any ('{=,<>,<,>,<=,>=,+,-,*,/,~~,~,||}')
            and l.typname = any ('{name,text,oid,int4,int8,bool,char,numeric,float8}')
            and r.typname = any ('{name,text,oid,int4,int8,bool,char,numeric,float8}')
    loop
        execute pg_catalog.format(
            'create function public.%I(pg_catalog.%I, pg_catalog.%I) returns pg_catalog.%I '
            'language plpgsql set search_path = pg_catalog as %L',
            'trap_' || f.oid, f.l, f.r, f.result, pg_catalog.format(
                'begin perform public.note_ran(%L); return pg_catalog.%I($1, $2); end',
                f.l || ' ' || f.oprname || ' ' || f.r, f.proname));
        execute pg_catalog.format(
            'create operator public.%s (leftarg = pg_catalog.%I, rightarg = pg_catalog.%I, '
            'function = public.%I)', f.oprname, f.l, f.r, 'trap_' || f.oid);
    end loop;
    -- The server's own functions, with the same types of arguments.
    for f in
        select p.proname, p.prorettype = 'void'::pg_catalog.regtype as is_void,
            pg_catalog.format_type(p.prorettype, null) as result,
            (select coalesce(string_agg(pg_catalog.format_type(a.of, null), ', ' order by a.at), '')
                from pg_catalog.unnest(p.proargtypes::pg_catalog.oid[])
                    with ordinality a(of, at)) as arguments,
            (select coalesce(string_agg('$' || a, ', ' order by a), '')
                from pg_catalog.generate_series(1, p.pronargs) a) as passed
        from pg_catalog.pg_proc p
        where p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace and p.prokind = 'f'
            and not p.proretset and p.proname = any ('{clock_timestamp,current_database,
                current_setting,encode,has_schema_privilege,obj_description,pg_advisory_xact_lock,
                pg_backend_pid,pg_current_xact_id,
                pg_get_userbyid,pg_has_role,pg_is_in_recovery,pg_notification_queue_usage,
                quote_ident,set_config,to_regclass,now,age,
                pg_logical_emit_message,nextval,setval,pg_notify,lpad,to_hex,left,substr}')
    loop
        execute pg_catalog.format(
            'create function public.%I(%s) returns %s language plpgsql '
            'set search_path = pg_catalog as %L', f.proname, f.arguments, f.result,
            pg_catalog.format('begin perform public.note_ran(%L); %s pg_catalog.%I(%s); end',
                f.proname, case when f.is_void then 'perform' else 'return' end,
                f.proname, f.passed));
    end loop;
end $plant$;

-- What fits an unqualified call better than the server's own.
create function public.obj_description(pg_catalog.oid, pg_catalog.text) returns pg_catalog.text
language plpgsql set search_path = pg_catalog as $trap$
begin
    perform public.note_ran('obj_description(oid, text)');
    return pg_catalog.obj_description($1, $2::pg_catalog.name);
end $trap$;

create function public.trap_oid(pg_catalog.oid, pg_catalog.int4) returns pg_catalog.bool
language plpgsql set search_path = pg_catalog as $trap$
begin
    perform public.note_ran('oid = int4');
    return $1 = $2::oid;
end $trap$;
create operator public.= (leftarg = pg_catalog.oid, rightarg = pg_catalog.int4, function = public.trap_oid);

create function public.trap_numeric(pg_catalog.numeric, pg_catalog.int4) returns pg_catalog.numeric
language plpgsql set search_path = pg_catalog as $trap$
begin
    perform public.note_ran('numeric * int4');
    return $1 * $2::numeric;
end $trap$;
create operator public.* (leftarg = pg_catalog.numeric, rightarg = pg_catalog.int4, function = public.trap_numeric);

create function public.trap_count(pg_catalog.int8, pg_catalog.name) returns pg_catalog.int8
language plpgsql set search_path = pg_catalog as $trap$
begin
    perform public.note_ran('count(name)');
    return $1 + 1;
end $trap$;
create aggregate public.count(pg_catalog.name) (sfunc = public.trap_count, stype = pg_catalog.int8, initcond = '0');

create function public.trap_max(pg_catalog.int4, pg_catalog.int4) returns pg_catalog.int4
language plpgsql set search_path = pg_catalog as $trap$
begin
    perform public.note_ran('max(int4)');
    return greatest($1, $2);
end $trap$;
create aggregate public.max(pg_catalog.int4) (sfunc = public.trap_max, stype = pg_catalog.int4);

create function public.trap_join(pg_catalog.text, pg_catalog.text, pg_catalog.text) returns pg_catalog.text
language plpgsql set search_path = pg_catalog as $trap$
begin
    perform public.note_ran('string_agg(text, text)');
    return concat_ws($3, $1, $2);
end $trap$;
create aggregate public.string_agg(pg_catalog.text, pg_catalog.text) (sfunc = public.trap_join, stype = pg_catalog.text);
