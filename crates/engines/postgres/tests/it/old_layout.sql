-- Puts the rows into the table of revision 12 and older, whose rows have all holders in an array.
alter table holdline.names rename to heads;
alter table holdline.heads add column holders holdline.holder[];
update holdline.heads t set holders =
    case when (t.holder).token is not null then array[t.holder] else nullif(array(
        select (s.lease_id, s.client, s.inbox, s.mode, s.permits, s.total, s.asked_kind, s.asked,
            s.kind, s.lease, s.token, s.since, s.deadline, s.revoked, s.metadata)::holdline.holder
        from holdline.shared_holders s where s.name = t.name order by s.token
    ), '{}') end;
alter table holdline.heads drop column holder, drop column shared, drop column permits_used,
    drop column ends, drop column first_token;
drop table holdline.shared_holders cascade;
comment on function holdline.audit_read_1 is 'Holdline: revision 12';
