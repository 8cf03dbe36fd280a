-- The audit trail: what operators did. Records are only appended: no procedure changes one, and an
-- append removes all but the newest @records@. These procedures run with the rights of the account that
-- made them, so that others need no right to the table.

create table if not exists @p@audit (
    id bigint not null auto_increment primary key,
    at bigint not null,
    record varbinary(@record_bytes@) not null
) engine = InnoDB row_format = dynamic comment = 'Holdline: what operators did'
$$

-- Appends a record, with the server's time in microseconds.
create procedure @p@audit_append_@r@(in body varbinary(@record_bytes@))
modifies sql data sql security definer comment 'Holdline: revision @r@'
begin
    declare place bigint;
    declare exit handler for sqlexception begin rollback; resignal; end;
    rollback;
    start transaction;
    insert into @p@audit (at, record)
    values (timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), body);
    set place = last_insert_id();
    delete from @p@audit where id <= place - @records@;
    commit;
end
$$

-- Returns records of `since` or later and before the number `before_id`, the newest first.
create procedure @p@audit_read_@r@(in since bigint, in before_id bigint, in page_size int)
reads sql data sql security definer comment 'Holdline: revision @r@'
begin
    select a.id as id, floor(a.at / 1000) as at_ms, a.record as record from @p@audit a
    where a.at >= since and a.id < before_id order by a.id desc limit page_size;
end
