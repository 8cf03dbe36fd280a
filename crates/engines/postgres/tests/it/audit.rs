//! The audit trail as roles see it: they append to it and read it, and change nothing.

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{AuditPage, AuditRecord, AuditRequest, Engine, Operator};
use holdline_postgres::PostgresEngine;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{connect, engine};

async fn append(engine: &PostgresEngine, who: &str) {
    let operator = Operator { who: who.into(), from: "here".into() };
    let record = AuditRecord::new("freeze", &operator);
    engine.append_audit(0, &record).await.expect("appended");
}

async fn read(engine: &PostgresEngine) -> AuditPage {
    engine.read_audit(&AuditRequest::default()).await.expect("read")
}

#[tokio::test]
async fn a_role_with_usage_appends_and_can_neither_change_nor_remove_a_record() {
    let server = PostgresServer::start(PostgresConfig::default());
    let owner = engine(&server).await;
    assert_eq!(read(&owner).await, AuditPage::default(), "no schema, no records");
    append(&owner, "ann").await;
    server.sql("create role locker login; grant usage on schema holdline to locker");
    let locker = connect(&server.url_of("locker", "postgres")).await.expect("let in");
    append(&locker, "bob").await;
    for statement in [
        "delete from holdline.audit",
        "update holdline.audit set at_ms = 0",
        "insert into holdline.audit (at_ms, record) values (0, '')",
        "truncate holdline.audit",
        "table holdline.audit",
    ] {
        let reply = server.try_sql("postgres", &format!("set role locker; {statement}"));
        assert!(reply.as_ref().is_err_and(|says| says.contains("permission denied")), "{reply:?}");
    }
    let page = read(&locker).await;
    let who: Vec<&str> = page.entries.iter().map(|entry| entry.record.who.as_str()).collect();
    assert_eq!(who, ["bob", "ann"]);
    assert!(page.entries[1].id.at_ms > 1_700_000_000_000, "the server's time: {page:?}");
}

#[tokio::test]
async fn only_the_newest_records_are_kept() {
    let server = PostgresServer::start(PostgresConfig::default());
    let owner = engine(&server).await;
    append(&owner, "first").await;
    server.sql(&format!(
        "insert into holdline.audit (at_ms, record) \
         select 0, '' from generate_series(1, {MAX_RECORDS})"
    ));
    append(&owner, "last").await;
    let count = server.sql("select count(*), min(id) from holdline.audit");
    assert!(format!("{count:?}").contains(&MAX_RECORDS.to_string()), "{count:?}");
    assert_eq!(read(&owner).await.entries[0].record.who, "last");
}
