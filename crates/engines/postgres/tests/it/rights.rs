//! The privileges that a role needs at least.

use holdline_core::{Engine, ErrorKind, ListRequest, Operation, OperationReply};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{connect, ending, engine, let_go, queue, renew, request, take};

#[tokio::test]
async fn a_role_with_usage_alone_locks_and_sees_no_lease_id() {
    let server = PostgresServer::start(PostgresConfig::default());
    let owner = engine(&server).await;
    take(&owner, &request("made")).await;
    server.sql("create role locker login; grant usage on schema holdline to locker");
    let url = server.url_of("locker", "postgres");
    let engine = connect(&url).await.expect("let in");
    let (held, waits, theirs) = (request("a"), request("a"), request("b"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    let keep = holdline_core::Purpose::Keep(held.hold);
    renew(&engine, &held, keep).await.expect("renewed");
    engine.inspect(&held.name).await.expect("shown");
    let all = ListRequest { limit: 10, ..ListRequest::default() };
    assert_eq!(engine.list(&all).await.expect("listed").names.len(), 2);
    engine.release(&ending(&waits, true)).await.expect("given up");
    let (name, reason) = (held.name.clone(), "because".to_owned());
    let revoke = Operation::Revoke { name, token, reason, now: false };
    let reply = engine.operate(&revoke).await.expect("a reply");
    assert!(matches!(reply, OperationReply::Notified { .. }), "{reply:?}");
    engine.operate(&Operation::RaiseFence { to: token }).await.expect("raised");
    let_go(&engine, &held).await;
    take(&owner, &theirs).await;
    for table in ["heads", "waiters"] {
        let reply = server.try_sql("postgres", &format!("set role locker; table holdline.{table}"));
        assert!(reply.as_ref().is_err_and(|says| says.contains("permission denied")), "{reply:?}");
    }
}

#[tokio::test]
async fn a_role_without_usage_learns_what_it_lacks() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&engine(&server).await, &request("made")).await;
    server.sql("create role stranger login");
    let error = connect(&server.url_of("stranger", "postgres")).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("GRANT USAGE ON SCHEMA \"holdline\""), "{error}");
}

#[tokio::test]
async fn a_read_only_role_is_reported() {
    let server = PostgresServer::start(PostgresConfig::default());
    take(&engine(&server).await, &request("made")).await;
    server.sql(
        "create role reader login; grant usage on schema holdline to reader; \
         alter role reader set default_transaction_read_only = on",
    );
    let engine = connect(&server.url_of("reader", "postgres")).await.expect("let in");
    let error = engine.try_acquire(&request("a")).await.expect_err("refused");
    assert!(error.to_string().contains("takes no writes"), "{error}");
}

#[tokio::test]
async fn settings_of_a_role_that_would_break_a_command_are_overruled() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql(
        "alter role postgres set default_transaction_isolation = 'serializable'; \
         alter role postgres set synchronous_commit = off; \
         alter role postgres set search_path = pg_temp; \
         alter role postgres set bytea_output = 'escape'",
    );
    let (one, other) = (engine(&server).await, engine(&server).await);
    for _ in 0..20 {
        let (first, second) = (request("a"), request("a"));
        take(&one, &first).await;
        queue(&other, &second).await;
        let_go(&one, &first).await;
        take(&other, &second).await;
        let_go(&other, &second).await;
    }
    let settings = "select count(*) from pg_stat_activity where application_name = 'holdline'";
    assert_eq!(server.sql(settings), ["2"]);
}
