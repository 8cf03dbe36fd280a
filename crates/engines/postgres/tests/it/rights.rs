//! The privileges that a role needs at least.

use std::time::Duration;

use holdline_core::operation::LARGEST_FENCE;
use holdline_core::{Engine, ErrorKind, ListRequest, Operation, OperationReply};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{connect, ending, engine, let_go, name, queue, renew, request, take};

/// No test takes so long.
const LONG: Duration = Duration::from_secs(600);

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
    let error = engine.operate(&Operation::RaiseFence { to: token }).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("GRANT EXECUTE ON FUNCTION"), "{error}");
    assert!(error.to_string().contains("raise_1"), "{error}");
    let_go(&engine, &held).await;
    take(&owner, &theirs).await;
    for table in ["names", "shared_holders", "waiters"] {
        let reply = server.try_sql("postgres", &format!("set role locker; table holdline.{table}"));
        assert!(reply.as_ref().is_err_and(|says| says.contains("permission denied")), "{reply:?}");
    }
}

/// As hardening guides advise. Then new functions are for their owner only.
#[tokio::test]
async fn a_role_with_usage_locks_where_new_functions_are_kept_from_all() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql("alter default privileges revoke execute on functions from public");
    let owner = engine(&server).await;
    take(&owner, &request("made")).await;
    server.sql("create role locker login; grant usage on schema holdline to locker");
    let engine = connect(&server.url_of("locker", "postgres")).await.expect("let in");
    let (held, waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    renew(&engine, &held, holdline_core::Purpose::Keep(held.hold)).await.expect("renewed");
    engine.inspect(&held.name).await.expect("shown");
    let_go(&engine, &held).await;
    take(&engine, &waits).await;
    let error = engine.operate(&Operation::RaiseFence { to: token }).await.expect_err("refused");
    assert!(error.to_string().contains("raise_1"), "{error}");
}

/// The statements are those of `docs/postgres.md`.
#[tokio::test]
async fn operators_have_rights_of_their_own() {
    let server = PostgresServer::start(PostgresConfig::default());
    let owner = engine(&server).await;
    take(&owner, &request("made")).await;
    server.sql(
        "create role app login; create role operators; create role ann login in role operators; \
         grant usage on schema holdline to app, operators; \
         grant execute on function holdline.raise_1 to operators",
    );
    let functions = "holdline.revoke_1, holdline.remove_waiter_1, holdline.freeze_1, \
                     holdline.unfreeze_1";
    server.sql(&format!("revoke execute on function {functions} from public"));
    server.sql(&format!("grant execute on function {functions} to operators"));
    let [app, ann] = ["app", "ann"].map(|role| server.url_of(role, "postgres"));
    let (app, ann) = (connect(&app).await.expect("let in"), connect(&ann).await.expect("let in"));
    let held = request("a");
    let token = take(&app, &held).await;
    let reason = "because".to_owned();
    for operation in [
        Operation::RaiseFence { to: token },
        Operation::Freeze { name: name("a"), duration: LONG, reason: reason.clone() },
        Operation::Unfreeze { name: name("a") },
        Operation::RemoveWaiter {
            name: name("a"),
            waiter: held.lease_id.short(),
            reason: reason.clone(),
        },
        Operation::Revoke { name: name("a"), token, reason, now: false },
    ] {
        let error = app.operate(&operation).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{operation:?}: {error}");
        ann.operate(&operation).await.unwrap_or_else(|error| panic!("{operation:?}: {error}"));
    }
    let_go(&app, &held).await;
    take(&app, &request("a")).await;
}

/// Limits hold for those who call the functions by hand, too.
#[tokio::test]
async fn no_role_can_end_locking_for_good() {
    let server = PostgresServer::start(PostgresConfig::default());
    let owner = engine(&server).await;
    take(&owner, &request("made")).await;
    server.sql("create role locker login; grant usage on schema holdline to locker");
    let by_hand = |role: &str, call: &str| {
        server.try_sql("postgres", &format!("set role {role}; select holdline.{call}"))
    };
    let largest = i64::try_from(LARGEST_FENCE).expect("fits");
    for (role, call, says) in [
        ("locker", "raise_1(7)".to_owned(), "permission denied for function raise_1"),
        ("postgres", "raise_1(9007199254740991)".to_owned(), "may be raised to 900609974311"),
        ("postgres", format!("raise_1({})", largest + 1), "may be raised to 900609974311"),
        ("locker", "freeze_1('b', 9000000000000000000, '')".to_owned(), "a freeze lasts at most"),
        ("locker", "freeze_1('b', -1, '')".to_owned(), "a freeze lasts at most"),
    ] {
        let reply = by_hand(role, &call);
        assert!(reply.as_ref().is_err_and(|error| error.contains(says)), "{call}: {reply:?}");
    }
    by_hand("postgres", &format!("raise_1({largest})")).expect("raised");
    let locker = connect(&server.url_of("locker", "postgres")).await.expect("let in");
    for turn in ["b", "b", "c"] {
        let held = request(turn);
        assert!(take(&locker, &held).await.get() > LARGEST_FENCE);
        let_go(&locker, &held).await;
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
