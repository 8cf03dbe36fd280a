//! The findings of `doctor` on real servers. It creates nothing.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::operation::LARGEST_FENCE;
use holdline_core::{Checkup, Finding, Health};
use holdline_postgres::tokio_postgres::IsolationLevel;
use holdline_postgres::{PostgresOptions, checkup};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{engine, request, sign_in, take};

pub(crate) async fn look(url: &str) -> Checkup {
    let options = PostgresOptions::from_url(url).expect("a good URL");
    checkup(&options, Arc::new(MachineClock)).await.expect("good options")
}

pub(crate) fn ill(checkup: &Checkup) -> Vec<&str> {
    let ill = checkup.findings().iter().filter(|finding| finding.health() != Health::Ok);
    ill.map(Finding::check).collect()
}

#[tokio::test]
async fn a_good_server_has_no_findings() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    take(&engine(&server).await, &request("made")).await;
    let found = look(&server.url()).await;
    let checks: Vec<&str> = found.findings().iter().map(Finding::check).collect();
    let all = [
        "reachable",
        "server",
        "durability",
        "replicas",
        "pooler",
        "idle",
        "messages",
        "wraparound",
        "clock",
        "schema",
        "sequence",
        "tokens",
        "audit",
        "names",
        "snapshots",
    ];
    assert_eq!(checks, all, "{found:?}");
    assert_eq!(ill(&found), [""; 0], "{found:?}");
}

#[tokio::test]
async fn weaknesses_are_reported_and_nothing_is_made() {
    let config = PostgresConfig::default().with_line("idle_session_timeout = 60000");
    let server = PostgresServer::start(config);
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["durability", "idle", "schema"], "{found:?}");
    assert_eq!(found.health(), Health::Error);
    let made = server.sql("select count(*) from pg_namespace where nspname = 'holdline'");
    assert_eq!(made, ["0"]);
    server.sql("create schema holdline; create table holdline.mine (a int)");
    let found = look(&server.url()).await;
    assert!(ill(&found).contains(&"schema"), "{found:?}");
}

#[tokio::test]
async fn pages_that_a_crash_may_tear_are_reported() {
    let config = PostgresConfig::default().with_fsync().with_line("full_page_writes = off");
    let server = PostgresServer::start(config);
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["durability", "schema"], "{found:?}");
}

#[tokio::test]
async fn a_cache_of_tokens_and_a_wrong_clock_are_reported() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync().with_clock());
    take(&engine(&server).await, &request("made")).await;
    server.sql("alter sequence holdline.fence cache 20");
    server.clock().step_forward(std::time::Duration::from_secs(100));
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["clock", "sequence"], "{found:?}");
}

#[tokio::test]
async fn a_sequence_that_a_crash_treats_otherwise_is_reported() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    take(&engine(&server).await, &request("made")).await;
    for (change, says) in [
        ("alter sequence holdline.fence cache 20", "a cache of 20"),
        ("alter sequence holdline.fence cache 1", "no cache"),
        ("alter sequence holdline.fence set unlogged", "unlogged"),
    ] {
        server.sql(change);
        let found = look(&server.url()).await;
        let mut findings = found.findings().iter();
        let sequence = findings.find(|one| one.check() == "sequence").expect("checked");
        assert!(sequence.found().contains(says), "{change}: {sequence:?}");
    }
}

#[tokio::test]
async fn tokens_near_their_end_are_reported() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    take(&engine(&server).await, &request("made")).await;
    server.sql("create role app login; grant usage on schema holdline to app");
    for (last, health) in
        [(1, Health::Ok), (LARGEST_FENCE, Health::Warning), (9_007_199_254_740_990, Health::Error)]
    {
        server.sql(&format!("select setval('holdline.fence', {last})"));
        let found = look(&server.url_of("app", "postgres")).await;
        let finding = found.findings().iter().find(|one| one.check() == "tokens");
        assert_eq!(finding.expect("checked").health(), health, "{found:?}");
    }
}

#[tokio::test]
async fn transaction_ids_that_run_out_are_reported_before_locks_stop() {
    let config = PostgresConfig::default()
        .with_fsync()
        .with_line("autovacuum_freeze_max_age = 2000000000")
        .with_line("autovacuum = off");
    let server = PostgresServer::start(config);
    take(&engine(&server).await, &request("made")).await;
    for (next, health) in [(900_000_000, Health::Ok), (1_100_000_000, Health::Warning)] {
        server.skip_transactions(next);
        let found = look(&server.url()).await;
        let finding = found.findings().iter().find(|one| one.check() == "wraparound");
        let finding = finding.expect("checked");
        assert_eq!(finding.health(), health, "{found:?}");
    }
}

#[tokio::test]
async fn an_old_transaction_is_reported() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync().with_clock());
    take(&engine(&server).await, &request("made")).await;
    let mut dump = sign_in(server.address(), "postgres").await;
    let level = IsolationLevel::RepeatableRead;
    let reads = dump.build_transaction().isolation_level(level).start().await.expect("begun");
    reads.query("select from holdline.names", &[]).await.expect("a snapshot");
    server.clock().step_forward(std::time::Duration::from_secs(1_000));
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["clock", "snapshots"], "{found:?}");
    // Another role does not learn the age of it, and says so.
    server.sql("create role app login; grant usage on schema holdline to app");
    let found = look(&server.url_of("app", "postgres")).await;
    let finding = found.findings().iter().find(|finding| finding.check() == "snapshots");
    let says = finding.expect("looked at").found();
    assert!(says.contains("the age of 1 transactions of other roles is not shown"), "{says}");
    drop(reads);
}

/// The statements are those of `docs/postgres.md`.
#[tokio::test]
async fn a_role_without_the_audit_trail_is_reported() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    take(&engine(&server).await, &request("made")).await;
    server.sql(
        "create role app login; create role operators; create role ann login in role operators; \
         grant usage on schema holdline to app, operators",
    );
    let audit = async |role: &str| {
        let found = look(&server.url_of(role, "postgres")).await;
        let finding = found.findings().iter().find(|finding| finding.check() == "audit");
        finding.cloned().unwrap_or_else(|| panic!("not looked at: {found:?}"))
    };
    assert_eq!(audit("app").await.health(), Health::Ok);
    let functions = "holdline.audit_append_1, holdline.audit_read_1";
    server.sql(&format!("revoke execute on function {functions} from public"));
    server.sql(&format!("grant execute on function {functions} to operators"));
    assert_eq!(audit("ann").await.health(), Health::Ok);
    let found = audit("app").await;
    assert_eq!(found.health(), Health::Warning, "{found:?}");
    assert!(found.found().contains("audit_append_1") && found.fix().is_some(), "{found:?}");
}

#[tokio::test]
async fn an_unreachable_server_is_a_finding() {
    let found = look("postgres://ann@127.0.0.1:1/x?connect_timeout_ms=200").await;
    assert_eq!(ill(&found), ["reachable"]);
}

#[tokio::test]
async fn a_standby_is_an_error_with_the_way_out() {
    let server = PostgresServer::start(PostgresConfig::default());
    std::fs::write(server.directory().join("data/standby.signal"), "").expect("written");
    server.restart();
    let found = look(&server.url()).await;
    assert_eq!(ill(&found), ["reachable"]);
    assert!(found.findings()[0].found().contains("name the primary"), "{found:?}");
}

/// To the server, a client of the replication stream is a standby.
#[tokio::test]
async fn a_standby_that_no_commit_waits_for_is_reported() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let stream = server.stream_changes();
    let found = look(&server.url()).await;
    assert!(ill(&found).contains(&"replicas"), "{found:?}");
    drop(stream);
}
