//! The users of `docs/redis.md` have exactly the rights that they need.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AuditRecord, AuditRequest, Engine, ErrorKind, Finding, Health, LatchCommand,
    ListRequest, Operation, Operator, Purpose, RenewRequest,
};
use holdline_redis::{RedisEngine, RedisOptions, checkup};
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{ending, name, request, take};

const DOCUMENT: &str = include_str!("../../../../../docs/redis.md");

/// A server with both users of the document.
fn server() -> RedisServer {
    let rule = |user: &str| {
        let line = DOCUMENT.lines().find_map(|line| line.strip_prefix(&format!("user {user} ")));
        format!("{user} {}", line.expect("the document's line"))
    };
    let config = RedisConfig::default().with_user(&rule("locker")).with_user(&rule("operator"));
    RedisServer::start(config)
}

fn options(server: &RedisServer, user: &str) -> RedisOptions {
    let url = format!("redis://{user}:PASSWORD@{}", server.address());
    RedisOptions::from_url(&url).expect("a good URL")
}

async fn engine(server: &RedisServer, user: &str) -> RedisEngine {
    let clock = Arc::new(MachineClock);
    RedisEngine::connect(&options(server, user), clock).await.expect("connected")
}

#[tokio::test]
async fn the_locker_has_all_rights_that_a_lock_needs() {
    let server = server();
    let engine = engine(&server, "locker").await;
    let (first, second) = (request("a"), request("a"));
    take(&engine, &first).await;
    let queued = engine.try_acquire(&second).await.expect("queued");
    assert!(matches!(queued, AcquireReply::Queued { .. }), "{queued:?}");
    let line = |request: &holdline_core::AcquireRequest, purpose| RenewRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        client: request.client,
        purpose,
    };
    for reply in
        engine.renew(&[line(&first, Purpose::Keep(first.hold)), line(&second, Purpose::Wait)]).await
    {
        reply.expect("renewed, or still queued");
    }
    assert!(engine.inspect(&name("a")).await.expect("a reply").is_held());
    engine.release(&ending(&first, false)).await.expect("handed over");
    let again = holdline_core::AcquireRequest { known: true, ..second.clone() };
    let token = take(&engine, &again).await;
    let (reason, now) = ("enough".to_owned(), false);
    let revoke = Operation::Revoke { name: name("a"), token, reason: reason.clone(), now };
    engine.operate(&revoke).await.expect("a reply");
    engine.release(&ending(&second, true)).await.expect("released");
    let duration = Duration::from_secs(1);
    engine.operate(&Operation::Freeze { name: name("a"), duration, reason }).await.expect("frozen");
    engine.operate(&Operation::Unfreeze { name: name("a") }).await.expect("free");
    for command in [LatchCommand::Set(2), LatchCommand::CountDown(1), LatchCommand::CountDown(1)] {
        Engine::latch(&engine, &name("a"), command).await.expect("counted");
    }
    let list = ListRequest { prefix: String::new(), after: None, limit: 10 };
    assert!(engine.list(&list).await.is_err(), "that is the operator's");
}

/// Who may lock may not touch the trail, and who may append to it may not change it otherwise.
#[tokio::test]
async fn nobody_but_the_operator_appends_to_the_audit_trail_and_nobody_changes_it() {
    let server = server();
    let (locker, operator) = (engine(&server, "locker").await, engine(&server, "operator").await);
    let record = AuditRecord::new("freeze", &Operator::default());
    let error = Engine::append_audit(&locker, 0, &record).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    Engine::append_audit(&operator, 0, &record).await.expect("appended");
    let trail = "holdline-audit:{holdline:}";
    for user in ["locker", "operator"] {
        let mut session = server.raw();
        assert!(session.send(&["AUTH", user, "PASSWORD"]).expect("a reply").error().is_none());
        for line in [
            &["DEL", trail][..],
            &["SET", trail, "x"],
            &["PEXPIRE", trail, "1"],
            &["XTRIM", trail, "MAXLEN", "0"],
            &["XDEL", trail, "0-1"],
            &["EVAL", "return redis.call('DEL', KEYS[1])", "1", trail],
            &["EVAL", "return redis.call('DEL', 'holdline-audit:{holdline:}')", "0"],
        ] {
            let reply = session.send(line).expect("a reply");
            assert!(reply.error().is_some(), "{user}: {line:?}: {reply:?}");
        }
    }
    let read = AuditRequest::default();
    let page = Engine::read_audit(&operator, &read).await.expect("read");
    assert_eq!(page.entries.len(), 1, "{page:?}");
}

#[tokio::test]
async fn only_about_the_newest_records_are_kept() {
    let server = RedisServer::start(RedisConfig::default());
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let engine = RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected");
    let fill = "for n = 1, 11000 do redis.call('XADD', KEYS[1], '*', 'x', '') end";
    server.raw().send(&["EVAL", fill, "1", "holdline-audit:{holdline:}"]).expect("filled");
    let record = AuditRecord::new("freeze", &Operator::default());
    Engine::append_audit(&engine, 0, &record).await.expect("appended");
    let length = server.raw().send(&["XLEN", "holdline-audit:{holdline:}"]).expect("a number");
    assert!((10_000..=10_200).contains(&length.integer().expect("a number")), "{length:?}");
    let read = AuditRequest { limit: 2, ..Default::default() };
    let page = Engine::read_audit(&engine, &read).await.expect("read");
    let actions: Vec<&str> =
        page.entries.iter().map(|entry| entry.record.action.as_str()).collect();
    assert_eq!(actions, ["freeze", "unreadable"], "what others have added is shown");
}

#[tokio::test]
async fn the_operator_can_list_and_run_doctor() {
    let server = server();
    let engine = engine(&server, "operator").await;
    take(&engine, &request("a")).await;
    let list = ListRequest { prefix: String::new(), after: None, limit: 10 };
    assert_eq!(engine.list(&list).await.expect("listed").names.len(), 1);
    let found = checkup(&options(&server, "operator"), Arc::new(MachineClock)).await;
    let found = found.expect("good options");
    let refused: Vec<&Finding> = found
        .findings()
        .iter()
        .filter(|finding| finding.found().contains("may not") || finding.health() == Health::Error)
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
}
