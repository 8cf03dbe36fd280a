-- The audit trail: what operators did. Records are only appended: no function changes one, and an
-- append removes what is older than the newest @records@. A role with USAGE on the schema has no right
-- to the table itself.

create table if not exists @schema@.audit (
    id bigint generated always as identity primary key,
    at_ms bigint not null,
    record bytea not null check (octet_length(record) <= @record_bytes@)
);

-- Appends a record, with the server's time.
create or replace function @schema@.audit_append_1(text bytea)
returns boolean language plpgsql volatile security definer set search_path = @schema@, pg_temp as $$
declare
    place bigint;
begin
    insert into @schema@.audit (at_ms, record) values (@schema@.now_1() / 1000, text)
    returning id into place;
    delete from @schema@.audit t where t.id <= place - @records@;
    return true;
end $$;

-- Returns records of `since` or later and before the number `before`, the newest first.
create or replace function @schema@.audit_read_1(since bigint, before bigint, most int)
returns table (id bigint, at_ms bigint, record bytea)
language sql stable security definer set search_path = @schema@, pg_temp as $$
    select t.id, t.at_ms, t.record from @schema@.audit t
    where t.at_ms >= since and t.id < before order by t.id desc limit most
$$;

