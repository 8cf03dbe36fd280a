//! The audit trail as accounts see it: one with rights on the other tables appends to it and reads
//! it, and changes nothing.

use holdline_core::audit::MAX_RECORDS;
use holdline_core::{AuditPage, AuditRecord, AuditRequest, Engine, Operator};
use holdline_mysql::MysqlEngine;
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{connect, engine, request, take};

async fn append(engine: &MysqlEngine, who: &str) {
    let operator = Operator { who: who.into(), from: "here".into() };
    let record = AuditRecord::new("freeze", &operator);
    engine.append_audit(0, &record).await.expect("appended");
}

async fn read(engine: &MysqlEngine) -> AuditPage {
    engine.read_audit(&AuditRequest::default()).await.expect("read")
}

/// The rights of `docs/mysql.md` for an account that must not change the trail.
const DOCUMENT: &str = include_str!("../../../../../docs/mysql.md");

#[tokio::test]
async fn an_account_with_rights_table_by_table_appends_and_changes_nothing() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let owner = engine(&server).await;
    assert_eq!(read(&owner).await, AuditPage::default(), "no tables, no records");
    append(&owner, "ann").await;
    server.sql("create user locker identified by 'secret'");
    let (_, rest) = DOCUMENT.split_once("<!-- append-only -->").expect("the document's rights");
    let grants = rest.split("```").nth(1).expect("a block").trim_start_matches("sql");
    server.sql(&grants.replace("orders.", "locks.").replace("TO app", "TO locker"));
    let url =
        server.url().replace(&format!("holdline:{}", MariaDbServer::PASSWORD), "locker:secret");
    let locker = connect(&url).await.expect("let in");
    take(&locker, &request("a")).await;
    append(&locker, "bob").await;
    let page = read(&locker).await;
    let who: Vec<&str> = page.entries.iter().map(|entry| entry.record.who.as_str()).collect();
    assert_eq!(who, ["bob", "ann"]);
    assert!(page.entries[1].id.at_ms > 1_700_000_000_000, "the server's time: {page:?}");
    use holdline_mysql::mysql_async::prelude::Queryable;
    use holdline_mysql::mysql_async::{Conn, OptsBuilder};
    let options = OptsBuilder::default()
        .ip_or_hostname(server.address().ip().to_string())
        .tcp_port(server.address().port())
        .user(Some("locker"))
        .pass(Some("secret"))
        .db_name(Some("locks"))
        .prefer_socket(false);
    let mut session = Conn::new(options).await.expect("let in");
    for statement in [
        "delete from holdline_audit",
        "update holdline_audit set at = 0",
        "insert into holdline_audit (at, record) values (0, '')",
        "truncate holdline_audit",
        "drop table holdline_audit",
    ] {
        let error = session.query_drop(statement).await.expect_err(statement).to_string();
        assert!(error.contains("denied"), "{statement}: {error}");
    }
    assert_eq!(read(&owner).await.entries.len(), 2);
}

#[tokio::test]
async fn only_the_newest_records_are_kept() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let owner = engine(&server).await;
    append(&owner, "first").await;
    server.sql(&format!(
        "insert into holdline_audit (id, at, record) select seq, 0, '' from seq_2_to_{}; commit",
        MAX_RECORDS + 1
    ));
    append(&owner, "last").await;
    let count = server.sql("select count(*) from holdline_audit");
    assert_eq!(count, [MAX_RECORDS.to_string()]);
    assert_eq!(read(&owner).await.entries[0].record.who, "last");
}
