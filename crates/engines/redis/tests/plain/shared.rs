//! The specifics of this dialect: plain commands, the server's own compare-and-delete, foreign
//! holders, undos behind a request, and the required rights.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::asking;
use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Engine, ErrorKind, FencingToken, Health, Operation,
    OperationReply, Purpose, ReleaseReply, RenewReply, RenewRequest,
};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{Flavour, RedisConfig, RedisServer, Reply};

use crate::support::{at, behind, calls, ending, engine, name, request, take};

const DOCUMENT: &str = include_str!("../../../../../docs/interop.md");

fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

/// All keys but the master term.
fn keys(server: &RedisServer) -> Vec<String> {
    let reply = behind(server, "KEYS *");
    let mut keys: Vec<_> = reply.items().expect("a list").iter().filter_map(Reply::text).collect();
    keys.retain(|key| key != "holdline:reign:1");
    keys.sort();
    keys
}

#[tokio::test]
async fn without_tokens_acquire_and_release_are_one_command_each() {
    let server = server();
    let engine = engine(&server, "fencing=off").await;
    let attempt = request("a");
    assert_eq!(take(&engine, &attempt).await, FencingToken::MIN);
    assert_eq!((calls(&server, "set"), calls(&server, "evalsha")), (1, 0));
    assert_eq!(keys(&server), ["lock:a"]);
    let value = behind(&server, "GET lock:a").text();
    assert_eq!(value, Some(attempt.lease_id.to_hex()));
    engine.release(&ending(&attempt, false)).await.expect("released");
    assert_eq!((calls(&server, "set"), calls(&server, "del")), (1, 1));
    assert_eq!(keys(&server), Vec::<String>::new());
}

#[tokio::test]
async fn with_tokens_nothing_but_the_counter_outlives_its_use() {
    let server = server();
    let engine = engine(&server, "").await;
    for number in 0..100 {
        let attempt = request(&number.to_string());
        take(&engine, &attempt).await;
        engine.release(&ending(&attempt, false)).await.expect("released");
    }
    assert_eq!(keys(&server), ["holdline:fence"]);
}

/// The server's own compare-and-delete, and its limits.
async fn deletes_by(flavour: Flavour, command: &str) {
    let server = RedisServer::start(RedisConfig::default().with_flavour(flavour));
    let engine = engine(&server, "fencing=off").await;
    let (holder, stranger) = (request("a"), request("a"));
    take(&engine, &holder).await;
    let nothing = engine.release(&ending(&stranger, false)).await.expect("answered");
    assert_eq!(nothing, ReleaseReply::NotHeld { revoked: None });
    let scripts = calls(&server, "evalsha") + calls(&server, "eval");
    let released = engine.release(&ending(&holder, false)).await.expect("answered");
    assert_eq!(released, ReleaseReply::Released { held_for: None });
    assert_eq!(calls(&server, command), 2);
    assert_eq!(calls(&server, "evalsha") + calls(&server, "eval"), scripts, "no script");
    assert_eq!(keys(&server), Vec::<String>::new());
    // An undone id must not come back, which only a script could record elsewhere.
    take(&engine, &stranger).await;
    engine.release(&ending(&stranger, true)).await.expect("answered");
    assert_eq!(calls(&server, command), 2);
}

#[tokio::test]
async fn valkey_deletes_with_its_own_command() {
    deletes_by(Flavour::Valkey, "delifeq").await;
}

#[tokio::test]
async fn a_foreign_holder_without_an_expiry_is_never_changed() {
    let server = server();
    let engine = engine(&server, "").await;
    behind(&server, "SET lock:a theirs");
    match engine.try_acquire(&request("a")).await {
        Ok(AcquireReply::Busy { holder: Some(holder), at_most: None, next_look }) => {
            assert_eq!((holder.left, holder.token), (None, None));
            assert!(!next_look.is_zero());
        }
        other => panic!("somebody holds it without an end, and we got {other:?}"),
    }
    let snapshot = engine.inspect(&name("a")).await.expect("shown");
    assert_eq!((snapshot.holder_count, snapshot.holders[0].summary.left), (1, None));
    assert_eq!(behind(&server, "GET lock:a").text().as_deref(), Some("theirs"));
}

/// A renewal took "no end" for the whole lease, so a dead holder kept the name forever.
#[tokio::test]
async fn a_lock_without_an_expiry_gets_one() {
    let server = server();
    for parameters in ["", "fencing=off"] {
        let engine = engine(&server, parameters).await;
        let (holder, other) = (request("a"), request("a"));
        take(&engine, &holder).await;
        let ends = || behind(&server, "PTTL lock:a").integer().expect("a number");
        behind(&server, "PERSIST lock:a");
        let reply = asking::renew(&engine, &holder, Purpose::Keep(holder.hold)).await;
        assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
        assert!(ends() > 0, "by its holder: {}", ends());
        // A dead holder does not renew. With tokens, other clients recognise it as ours, too.
        behind(&server, "PERSIST lock:a");
        let busy = engine.try_acquire(&other).await.expect("answered");
        assert!(matches!(busy, AcquireReply::Busy { .. }), "{busy:?}");
        assert_eq!(ends() > 0, parameters.is_empty(), "by who asks: {}", ends());
        engine.release(&ending(&holder, false)).await.expect("released");
    }
}

#[tokio::test]
async fn a_value_that_begins_like_our_lease_is_foreign() {
    let server = server();
    for parameters in ["", "fencing=off"] {
        let engine = engine(&server, parameters).await;
        let attempt = request("a");
        for end in ["x", "0", " "] {
            let value = format!("{}{end}", attempt.lease_id.to_hex());
            server.raw().send(&["SET", "lock:a", &value]).expect("the server answers");
            let nothing = engine.release(&ending(&attempt, false)).await.expect("answered");
            assert_eq!(nothing, ReleaseReply::NotHeld { revoked: None });
            let left = behind(&server, "GET lock:a").text();
            assert_eq!(left, Some(value), "it was left");
        }
    }
}

#[tokio::test]
async fn an_empty_value_is_a_holder_too() {
    let server = server();
    behind(&server, "EVAL return(redis.call('SET','lock:a','')) 0");
    for parameters in ["", "fencing=off"] {
        let engine = engine(&server, parameters).await;
        let reply = engine.try_acquire(&request("a")).await.expect("answered");
        assert!(matches!(reply, AcquireReply::Busy { holder: Some(_), .. }), "{reply:?}");
    }
}

#[tokio::test]
async fn a_foreign_holder_is_never_revoked() {
    let server = server();
    let engine = engine(&server, "").await;
    behind(&server, "SET lock:a 0000000000000007 PX 30000");
    let revoke = |now| Operation::Revoke {
        name: name("a"),
        token: FencingToken::new(7).expect("a token"),
        reason: "why".into(),
        now,
    };
    let reply = engine.operate(&revoke(true)).await.expect("answered");
    assert_eq!(reply, OperationReply::NothingThere);
    let error = engine.operate(&revoke(false)).await.expect_err("it cannot be notified");
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    assert_eq!(behind(&server, "EXISTS lock:a").integer(), Some(1));
}

/// A hanging request of the holder may arrive after its lease.
#[tokio::test]
async fn a_revoked_lease_id_is_remembered_longer_than_a_short_lease() {
    let server = server();
    let engine = engine(&server, "").await;
    let hold = holdline_core::Hold::Leased(Duration::from_secs(5));
    let taken = AcquireRequest { hold, ..request("a") };
    let token = take(&engine, &taken).await;
    let revoke = Operation::Revoke { name: name("a"), token, reason: "why".into(), now: true };
    assert_eq!(engine.operate(&revoke).await.expect("answered"), OperationReply::Done);
    let mark = format!("holdline:1m:{}:lock:a", taken.lease_id.to_hex());
    let left = behind(&server, &format!("PTTL {mark}")).integer().expect("a number");
    assert!(left > 10_000, "{left} ms");
}

/// The request waits in a stopped server; its undo goes behind it.
#[tokio::test]
async fn an_attempt_undone_on_a_stopped_server_leaves_no_keys() {
    // How many of the two requests are scripts.
    for (parameters, scripts) in
        [("command_timeout_ms=100", 2), ("command_timeout_ms=100&fencing=off", 1)]
    {
        let server = server();
        let engine = engine(&server, parameters).await;
        // The scripts are loaded: the text of an unknown one is sent only while a client waits for
        // its answer.
        let first = request("a");
        take(&engine, &first).await;
        engine.release(&ending(&first, true)).await.expect("released");
        let (before, attempt) = (calls(&server, "evalsha"), request("a"));
        server.stop();
        let error = engine.try_acquire(&attempt).await.expect_err("no answer");
        assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
        let error = engine.release(&ending(&attempt, true)).await.expect_err("no answer");
        assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
        server.cont();
        // The undo came last: once it has run, both have.
        let deadline = Instant::now() + Duration::from_secs(10);
        while calls(&server, "evalsha") < before + scripts {
            assert!(Instant::now() < deadline, "the undo was not carried out");
        }
        assert_eq!(behind(&server, "EXISTS lock:a").integer(), Some(0), "{parameters}");
        let again = loop {
            match engine.try_acquire(&attempt).await {
                Err(error) if matches!(error.kind(), ErrorKind::Unavailable { .. }) => {}
                other => break other,
            }
        };
        let error = again.expect_err("the id is dead");
        assert_eq!(*error.kind(), ErrorKind::Cancelled, "{parameters}");
    }
}

#[tokio::test]
async fn a_release_pushes_one_element_that_expires_after_a_second() {
    let server = server();
    for parameters in ["", "fencing=off&"] {
        let list = format!("{parameters}signal_template=lock-signal:{{name}}");
        let engine = engine(&server, &list).await;
        let attempt = request("a");
        take(&engine, &attempt).await;
        assert_eq!(behind(&server, "EXISTS lock-signal:a").integer(), Some(0));
        engine.release(&ending(&attempt, false)).await.expect("released");
        assert_eq!(behind(&server, "LLEN lock-signal:a").integer(), Some(1));
        let left = behind(&server, "PTTL lock-signal:a").integer().expect("a number");
        assert!((1..=1_000).contains(&left), "{left}");
        behind(&server, "DEL lock-signal:a");
    }
}

/// An exclusive lock of the native dialect excludes ours on the same key, and is left as it is.
#[tokio::test]
async fn the_native_dialect_is_a_foreign_holder_on_the_same_key() {
    let server = server();
    let native = RedisOptions::from_url(&server.url()).expect("a good URL");
    let clock = Arc::new(MachineClock);
    let native = holdline_redis::connect(&native, clock.clone()).await.expect("connected");
    let url = format!("{}?dialect=plain&key_template=holdline:{{{{name}}}}", server.url());
    let plain = RedisOptions::from_url(&url).expect("a good URL");
    let plain = holdline_redis::connect(&plain, clock).await.expect("connected");
    let holder = request("a");
    let token = take(&*native, &holder).await;
    let reply = plain.try_acquire(&request("a")).await.expect("answered");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
    native.release(&ending(&holder, false)).await.expect("released");
    let ours = request("a");
    assert!(take(&*plain, &ours).await > token, "one counter for both dialects");
    let error = native.try_acquire(&request("a")).await.expect_err("foreign to it");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
    let renewal = RenewRequest {
        name: ours.name.clone(),
        lease_id: ours.lease_id,
        client: ours.client,
        purpose: Purpose::Keep(ours.hold),
    };
    let reply = plain.renew(&[renewal]).await.pop().expect("a line").expect("answered");
    assert!(matches!(reply, RenewReply::Renewed { .. }), "{reply:?}");
}

/// A user of the document can do everything that a lock needs, and handle a foreign holder.
async fn has_the_rights(user: &str, parameters: &str) {
    let line = DOCUMENT.lines().find_map(|line| line.strip_prefix(&format!("user {user} ")));
    let rule = format!("{user} {}", line.expect("the document's line"));
    let server = RedisServer::start(RedisConfig::default().with_user(&rule));
    let url = format!("redis://{user}:PASSWORD@{}", server.address());
    let engine = at(&url, parameters).await;
    let (holder, second) = (request("a"), request("a"));
    let token = take(&engine, &holder).await;
    let reply = engine.try_acquire(&second).await.expect("answered");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
    let renewal = RenewRequest {
        name: holder.name.clone(),
        lease_id: holder.lease_id,
        client: holder.client,
        purpose: Purpose::Keep(holdline_core::Hold::Leased(Duration::from_secs(60))),
    };
    let reply = engine.renew(&[renewal]).await.pop().expect("a line").expect("answered");
    assert!(matches!(reply, RenewReply::Renewed { .. }), "{reply:?}");
    assert_eq!(engine.inspect(&name("a")).await.expect("shown").holder_count, 1);
    if engine.capabilities().revoke {
        let revoke = Operation::Revoke { name: name("a"), token, reason: "why".into(), now: true };
        assert_eq!(engine.operate(&revoke).await.expect("answered"), OperationReply::Done);
        take(&engine, &second).await;
        engine.release(&ending(&second, true)).await.expect("released");
    } else {
        engine.release(&ending(&holder, true)).await.expect("released");
    }
    behind(&server, "HSET lock:b f v");
    let error = engine.try_acquire(&request("b")).await.expect_err("a hash stands there");
    assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
}

/// The further rights that `doctor` needs.
const TO_LOOK: &str = "+info +config|get +acl|whoami +acl|dryrun +acl|getuser";

/// The findings of doctor about a user of the document, with rights added or removed.
async fn rights_of(user: &str, more: &str, parameters: &str) -> (Health, String) {
    let line = DOCUMENT.lines().find_map(|line| line.strip_prefix(&format!("user {user} ")));
    let rule = format!("{user} {} {TO_LOOK} {more}", line.expect("the document's line"));
    let server = RedisServer::start(RedisConfig::default().with_user(&rule));
    let parameters = format!("dialect=plain&key_template=lock:{{name}}&{parameters}");
    let url = format!("redis://{user}:PASSWORD@{}?{parameters}", server.address());
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let found = checkup(&options, Arc::new(MachineClock)).await.expect("good options");
    let rights = found.findings().iter().find(|finding| finding.check() == "rights");
    let rights = rights.expect("it looks at the rights");
    (rights.health(), rights.found().to_owned())
}

#[tokio::test]
async fn doctor_checks_the_rights_of_this_dialect() {
    let signal = "signal_template=lock-signal:{name}";
    let (health, found) = rights_of("shared", "", signal).await;
    assert_eq!(health, Health::Ok, "{found}");
    let (health, found) = rights_of("shared", "-getset -lpush", signal).await;
    assert!(health == Health::Error && found.contains("GETSET C 1, LPUSH S 1"), "{found}");
    let bare = format!("fencing=off&{signal}");
    let (health, found) = rights_of("bare", "", &bare).await;
    assert_eq!(health, Health::Ok, "{found}");
    let (health, found) = rights_of("bare", "-getrange", &bare).await;
    assert!(health == Health::Error && found.contains("GETRANGE"), "{found}");
}

#[tokio::test]
async fn the_user_with_tokens_has_exactly_the_rights_that_a_lock_needs() {
    has_the_rights("shared", "signal_template=lock-signal:{name}").await;
}

#[tokio::test]
async fn the_user_without_tokens_has_exactly_the_rights_that_a_lock_needs() {
    has_the_rights("bare", "fencing=off&signal_template=lock-signal:{name}").await;
}
