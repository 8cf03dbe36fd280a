//! The rights that the page lists, and what `doctor` finds.

use std::sync::Arc;

use holdline_conformance::asking;
use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, Health, LockKind, Mode, Operation, OperationReply,
    Purpose, RenewReply,
};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{RedisConfig, RedisServer};

use crate::shared::next;
use crate::support::{behind, connect, ending, engine, name, request, take};

const DOCUMENT: &str = include_str!("../../../../../docs/redisson.md");
/// The further rights that `doctor` needs.
const TO_LOOK: &str = "+info +config|get +acl|whoami +acl|dryrun +acl|getuser +scan";
const TEMPLATE: &str = "key_template=app:{name}";

/// Starts a server with the user of the page, and further rights.
fn server(more: &str) -> (RedisServer, String) {
    let line = DOCUMENT.lines().find_map(|line| line.strip_prefix("user shared "));
    let rule = format!("shared {} {more}", line.expect("the document's line"));
    let server = RedisServer::start(RedisConfig::default().with_user(&rule));
    let url = format!("redis://shared:PASSWORD@{}", server.address());
    (server, url)
}

#[tokio::test]
async fn the_rights_of_the_page_are_enough() {
    let (_server, url) = server("");
    let engine = connect(&url, TEMPLATE).await.expect("connected");
    for (mode, kind) in [
        (Mode::Exclusive, LockKind::Mutex),
        (Mode::Exclusive, LockKind::ReadWrite),
        (Mode::Shared, LockKind::ReadWrite),
        (Mode::Permits { count: 1, of: 1 }, LockKind::Mutex),
    ] {
        let text = format!("{mode}-{kind:?}").replace([' ', '/'], "-");
        let held = AcquireRequest { mode, kind, ..request(&text) };
        let token = take(&engine, &held).await;
        let reply = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
        assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
        let mode = if mode == Mode::Shared { Mode::Exclusive } else { mode };
        let waits = AcquireRequest { mode, kind, ..request(&text) };
        let reply = engine.try_acquire(&waits).await.expect("answered");
        assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
        next(&mut engine.watch(&waits.name, waits.lease_id)).await;
        assert_eq!(engine.inspect(&held.name).await.expect("shown").holder_count, 1);
        let revoke =
            Operation::Revoke { name: held.name.clone(), token, reason: "why".into(), now: true };
        let reply = Engine::operate(&engine, &revoke).await.expect("answered");
        assert_eq!(reply, OperationReply::Done);
        let second = AcquireRequest { mode, kind, ..request(&text) };
        take(&engine, &second).await;
        engine.release(&ending(&second, true)).await.expect("released");
    }
}

/// Returns a finding of doctor.
async fn finding(url: &str, parameters: &str, check: &str) -> (Health, String) {
    let url = format!("{url}?dialect=redisson&{parameters}");
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let found = checkup(&options, Arc::new(MachineClock)).await.expect("good options");
    let finding = found.findings().iter().find(|finding| finding.check() == check);
    let finding = finding.unwrap_or_else(|| panic!("it looks at {check}"));
    (finding.health(), finding.found().to_owned())
}

#[tokio::test]
async fn doctor_checks_the_rights_of_this_dialect() {
    let (_server, url) = server(TO_LOOK);
    let (health, found) = finding(&url, TEMPLATE, "rights").await;
    assert_eq!(health, Health::Ok, "{found}");
    let (_server, url) = server(&format!("{TO_LOOK} -incr -publish"));
    let (health, found) = finding(&url, TEMPLATE, "rights").await;
    assert!(health == Health::Error && found.contains("INCR C, PUBLISH I text"), "{found}");
    let (health, found) = finding(&url, &format!("fencing=off&{TEMPLATE}"), "rights").await;
    assert!(health == Health::Error && !found.contains("INCR C"), "{found}");
    let (health, found) = finding(&url, TEMPLATE, "notifications").await;
    assert!(health == Health::Ok && found.contains("not needed"), "{found}");
}

#[tokio::test]
async fn doctor_reports_a_token_counter_that_was_deleted() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    let held = request("a");
    take(&engine, &held).await;
    take(&engine, &request("b")).await;
    let (health, found) = finding(&server.url(), "", "counters").await;
    assert_eq!((health, found.as_str()), (Health::Ok, "2 locks of ours: 0 with a lost counter"));
    behind(&server, &["DEL", "redisson_lock_token:{a}"]);
    let (health, found) = finding(&server.url(), "", "counters").await;
    assert_eq!(
        (health, found.as_str()),
        (Health::Warning, "2 locks of ours: 1 with a lost counter")
    );
    let (health, found) = finding(&server.url(), "fencing=off", "counters").await;
    assert!(health == Health::Ok && found.contains("not used"), "{found}");
}

/// With fencing, the holder of an `RFencedLock` is the one that drew the last token.
#[tokio::test]
async fn a_redisson_holder_is_revoked_by_the_last_token_only() {
    const OWNER: &str = "b983c153-7421-469a-addb-44fb92259a1b:47";
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    behind(&server, &["HSET", "a", OWNER, "2"]);
    behind(&server, &["PEXPIRE", "a", "600000"]);
    let revoke = |token| {
        let token = holdline_core::FencingToken::new(token).expect("a token");
        Operation::Revoke { name: name("a"), token, reason: "why".into(), now: true }
    };
    let none = Engine::operate(&engine, &revoke(7)).await.expect("answered");
    assert_eq!(none, OperationReply::NothingThere, "an RLock has no token");
    behind(&server, &["SET", "redisson_lock_token:{a}", "7"]);
    let shown = engine.inspect(&name("a")).await.expect("shown");
    assert_eq!(shown.holders[0].summary.token.map(|token| token.get()), Some(7));
    let other = Engine::operate(&engine, &revoke(6)).await.expect("answered");
    assert_eq!(other, OperationReply::NothingThere);
    let done = Engine::operate(&engine, &revoke(7)).await.expect("answered");
    assert_eq!(done, OperationReply::Done);
    assert_eq!(crate::support::calls(&server, "publish"), 1);
    take(&engine, &request("a")).await;
}
