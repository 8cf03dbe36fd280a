-- For holders whose lock is not a row of ours. It stands last: a schema that has it has all.

-- Draws a fencing token.
create or replace function @schema@.draw_1()
returns bigint language sql volatile security definer set search_path = @schema@, pg_temp as $$
    select nextval('@schema@.fence')
$$;
