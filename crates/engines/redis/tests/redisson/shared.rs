//! The keys after each step, as a Redisson client expects them, and what is not ours under a name.

use std::future::poll_fn;
use std::time::{Duration, Instant};

use holdline_conformance::asking;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, ErrorKind, FencingToken, Hint, Hints, Hold, LockKind,
    Mode, Operation, OperationReply, Purpose, ReleaseReply, RenewReply,
};
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::support::{PATIENCE, behind, calls, ending, engine, name, request, take};

fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

fn texts(reply: &Reply) -> Vec<String> {
    reply.items().expect("a list").iter().filter_map(Reply::text).collect()
}

/// Returns the keys, but for the master term.
fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys = texts(&behind(server, &["KEYS", "*"]));
    keys.retain(|key| key != "holdline:reign:1");
    keys.sort();
    keys
}

#[tokio::test]
async fn a_mutex_is_a_fenced_lock() {
    let server = server();
    let engine = engine(&server, "").await;
    let held = request("a");
    let token = take(&engine, &held).await;
    assert_eq!(token, FencingToken::MIN);
    assert_eq!(keys(&server), ["a", "redisson_lock_token:{a}"]);
    let fields = texts(&behind(&server, &["HKEYS", "a"]));
    let owner = fields.iter().find(|field| *field != "holdline").expect("an owner");
    let count = behind(&server, &["HGET", "a", owner]).text();
    assert_eq!(count.as_deref(), Some("1"));
    let left = behind(&server, &["PTTL", "a"]).integer().expect("a number");
    assert!((1..=30_000).contains(&left), "{left}");
    // What Redisson draws comes between ours.
    behind(&server, &["INCR", "redisson_lock_token:{a}"]);
    let released = engine.release(&ending(&held, false)).await.expect("released");
    assert!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
    assert_eq!(keys(&server), ["redisson_lock_token:{a}"]);
    assert_eq!(take(&engine, &request("a")).await.get(), 3);
}

/// Redisson's own read/write lock takes this for a free one.
#[tokio::test]
async fn what_is_not_of_the_requested_kind_is_foreign_and_stays_as_it_is() {
    const OWNER: &str = "b983c153-7421-469a-addb-44fb92259a1b:47";
    let server = server();
    let engine = engine(&server, "").await;
    let writer = format!("{OWNER}:write");
    let plants: [(&[&str], &str, bool, bool); 14] = [
        (&["HSET", "a", OWNER, "1"], "a lock without readers", false, true),
        (&["HSET", "a", "mode", "read", OWNER, "1"], "a read/write lock", true, false),
        (&["HSET", "a", "mode", "write", &writer, "1"], "a read/write lock", true, false),
        (&["HSET", "a", "mode", "neither", OWNER, "1"], "the mode 'neither'", true, true),
        (&["HSET", "a", OWNER, "-1"], "a hold count of '-1'", true, true),
        (&["HSET", "a", OWNER, "one"], "a hold count of 'one'", true, true),
        (&["HSET", "a", "mine", "1"], "a hash with the field 'mine'", true, true),
        (&["HSET", "a", &writer, "1"], ":write'", true, true),
        (
            &["HSET", "a", OWNER, "1", "b983c153-7421-469a-addb-44fb92259a1c:1", "1"],
            "2",
            true,
            true,
        ),
        (&["SET", "a", "3"], "a number", true, true),
        (&["SET", "a", "text"], "a string", true, true),
        (&["RPUSH", "a", OWNER], "a list", true, true),
        (&["ZADD", "a", "1", OWNER], "a zset", true, true),
        (&["SADD", "a", OWNER], "a set", true, true),
    ];
    for (plant, found, for_mutex, for_readers) in plants {
        behind(&server, plant);
        let before = behind(&server, &["DUMP", "a"]);
        for (mode, kind, is_foreign) in [
            (Mode::Exclusive, LockKind::Mutex, for_mutex),
            (Mode::Exclusive, LockKind::ReadWrite, for_readers),
            (Mode::Shared, LockKind::ReadWrite, for_readers),
        ] {
            let mut attempt = request("a");
            (attempt.mode, attempt.kind) = (mode, kind);
            let reply = engine.try_acquire(&attempt).await;
            let seen = match &reply {
                Err(error) => match error.kind() {
                    ErrorKind::Foreign { found } => Some(found.clone()),
                    _ => None,
                },
                Ok(_) => None,
            };
            let is_found = seen.as_ref().is_some_and(|seen| seen.contains(found));
            assert_eq!(is_found, is_foreign, "{plant:?} {mode:?} {kind:?}: {reply:?}");
            if is_foreign {
                assert_eq!(behind(&server, &["DUMP", "a"]), before, "{plant:?}");
            }
        }
        behind(&server, &["DEL", "a"]);
        assert!(!engine.inspect(&name("a")).await.expect("free").is_held());
    }
}

/// Returns the next hint for a lease id.
pub(crate) async fn next(hints: &mut Hints) -> Hint {
    let hint = poll_fn(|context| hints.as_mut().poll_next(context));
    tokio::time::timeout(PATIENCE, hint).await.expect("a hint comes").expect("the watch is open")
}

fn attempt(mode: Mode, kind: LockKind) -> AcquireRequest {
    AcquireRequest { mode, kind, ..request("a") }
}

const PERMIT: Mode = Mode::Permits { count: 1, of: 1 };

#[tokio::test]
async fn a_full_release_wakes_those_that_wait_and_a_partial_one_does_not() {
    use LockKind::{Mutex, ReadWrite};
    use Mode::{Exclusive, Shared};
    let server = server();
    let (one, other) = (engine(&server, "").await, engine(&server, "").await);
    for (number, (held, waits)) in [
        ((Exclusive, Mutex), (Exclusive, Mutex)),
        ((Exclusive, ReadWrite), (Shared, ReadWrite)),
        ((Shared, ReadWrite), (Exclusive, ReadWrite)),
        ((PERMIT, Mutex), (PERMIT, Mutex)),
    ]
    .into_iter()
    .enumerate()
    {
        let attempt = |mode, kind| AcquireRequest { mode, kind, ..request(&number.to_string()) };
        let holder = attempt(held.0, held.1);
        take(&one, &holder).await;
        if held.0 == Shared {
            let second = attempt(Shared, ReadWrite);
            take(&other, &second).await;
            let published = calls(&server, "publish");
            other.release(&ending(&second, false)).await.expect("released");
            assert_eq!(calls(&server, "publish"), published, "another still reads");
        }
        let waiter = attempt(waits.0, waits.1);
        let reply = other.try_acquire(&waiter).await.expect("answered");
        assert!(matches!(reply, AcquireReply::Busy { holder: Some(_), .. }), "{reply:?}");
        let mut hints = other.watch(&waiter.name, waiter.lease_id);
        assert_eq!(next(&mut hints).await, Hint::LookAgain, "it is subscribed now");
        one.release(&ending(&holder, false)).await.expect("released");
        assert_eq!(next(&mut hints).await, Hint::LookAgain);
        let again = attempt(waits.0, waits.1);
        take(&other, &again).await;
        other.release(&ending(&again, false)).await.expect("released");
    }
}

#[tokio::test]
async fn a_holder_learns_at_once_that_a_redisson_client_has_forced_the_lock_open() {
    let server = server();
    let engine = engine(&server, "").await;
    let held = request("a");
    take(&engine, &held).await;
    let mut hints = engine.watch(&held.name, held.lease_id);
    assert_eq!(next(&mut hints).await, Hint::CheckLease, "it is subscribed now");
    behind(&server, &["DEL", "a"]);
    behind(&server, &["PUBLISH", "redisson_lock__channel:{a}", "0"]);
    assert_eq!(next(&mut hints).await, Hint::CheckLease);
    let reply = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
    assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
}

#[tokio::test]
async fn a_channel_is_unsubscribed_when_nobody_waits_any_more() {
    let server = server();
    let engine = engine(&server, "").await;
    take(&engine, &request("a")).await;
    let waiter = request("a");
    assert!(matches!(engine.try_acquire(&waiter).await, Ok(AcquireReply::Busy { .. })));
    let mut hints = engine.watch(&waiter.name, waiter.lease_id);
    next(&mut hints).await;
    let channels = || texts(&behind(&server, &["PUBSUB", "CHANNELS"]));
    assert_eq!(channels(), ["redisson_lock__channel:{a}"]);
    drop(hints);
    let end = Instant::now() + PATIENCE;
    while !channels().is_empty() {
        assert!(Instant::now() < end, "still {:?}", channels());
        tokio::time::sleep(Duration::from_millis(50)).await; // event: the channel is gone
    }
}

#[tokio::test]
async fn readers_and_writers_have_the_fields_and_holds_of_redisson() {
    let server = server();
    let engine = engine(&server, "").await;
    let (one, two) =
        (attempt(Mode::Shared, LockKind::ReadWrite), attempt(Mode::Shared, LockKind::ReadWrite));
    take(&engine, &one).await;
    let longer = AcquireRequest { hold: Hold::Leased(Duration::from_secs(20)), ..two };
    take(&engine, &longer).await;
    assert_eq!(behind(&server, &["HGET", "a", "mode"]).text().as_deref(), Some("read"));
    assert_eq!(behind(&server, &["HLEN", "a"]).integer(), Some(3));
    let fields = texts(&behind(&server, &["HKEYS", "a"]));
    for owner in fields.iter().filter(|field| *field != "mode") {
        let hold = format!("{{a}}:{owner}:rwlock_timeout:1");
        assert_eq!(behind(&server, &["GET", &hold]).text().as_deref(), Some("1"), "{hold}");
        assert!(behind(&server, &["PTTL", &hold]).integer().is_some_and(|left| left > 0));
    }
    // The reader that is left has 20 s.
    engine.release(&ending(&one, false)).await.expect("released");
    let left = behind(&server, &["PTTL", "a"]).integer().expect("a number");
    assert!((1..=20_000).contains(&left), "{left}");
    engine.release(&ending(&longer, false)).await.expect("released");
    assert_eq!(keys(&server), ["redisson_lock_token:{a}"]);
    let writer = attempt(Mode::Exclusive, LockKind::ReadWrite);
    take(&engine, &writer).await;
    assert_eq!(behind(&server, &["HGET", "a", "mode"]).text().as_deref(), Some("write"));
    let fields = texts(&behind(&server, &["HKEYS", "a"]));
    assert!(fields.iter().any(|field| field.ends_with(":write")), "{fields:?}");
    engine.release(&ending(&writer, false)).await.expect("released");
    assert_eq!(keys(&server), ["redisson_lock_token:{a}"]);
}

#[tokio::test]
async fn permits_are_those_of_an_expirable_semaphore() {
    let server = server();
    let engine = engine(&server, "").await;
    let three_of_five = attempt(Mode::Permits { count: 3, of: 5 }, LockKind::Mutex);
    take(&engine, &three_of_five).await;
    assert_eq!(behind(&server, &["GET", "a"]).text().as_deref(), Some("2"));
    assert_eq!(behind(&server, &["ZCARD", "{a}:timeout"]).integer(), Some(3));
    let snapshot = engine.inspect(&name("a")).await.expect("shown");
    assert_eq!((snapshot.holder_count, snapshot.permits_of), (1, Some(5)));
    assert_eq!(snapshot.holders[0].summary.mode, Mode::Permits { count: 3, of: 5 });
    // A permit of a Redisson client, without a lease.
    behind(&server, &["DECR", "a"]);
    behind(&server, &["ZADD", "{a}:timeout", "922337203685477", "0123456789abcdef"]);
    let busy =
        engine.try_acquire(&attempt(Mode::Permits { count: 2, of: 5 }, LockKind::Mutex)).await;
    assert!(matches!(busy, Ok(AcquireReply::Busy { at_most: None, .. })), "{busy:?}");
    let snapshot = engine.inspect(&name("a")).await.expect("shown");
    let lefts: Vec<_> = snapshot.holders.iter().map(|one| one.summary.left.is_some()).collect();
    assert_eq!((snapshot.holder_count, lefts), (2, vec![true, false]));
    engine.release(&ending(&three_of_five, false)).await.expect("released");
    assert_eq!(behind(&server, &["GET", "a"]).text().as_deref(), Some("4"));
    let other =
        engine.try_acquire(&attempt(Mode::Permits { count: 1, of: 4 }, LockKind::Mutex)).await;
    assert!(other.is_err_and(|error| matches!(error.kind(), ErrorKind::Invalid { .. })));
    // One that has expired is free again.
    behind(&server, &["ZADD", "{a}:timeout", "1", "0123456789abcdef"]);
    take(&engine, &attempt(Mode::Permits { count: 5, of: 5 }, LockKind::Mutex)).await;
}

#[tokio::test]
async fn a_redisson_holder_is_shown_with_its_client_thread_and_holds() {
    const UUID: &str = "b983c153-7421-469a-addb-44fb92259a1b";
    let server = server();
    let engine = engine(&server, "").await;
    behind(&server, &["HSET", "a", &format!("{UUID}:47"), "2"]);
    behind(&server, &["PEXPIRE", "a", "20000"]);
    let snapshot = engine.inspect(&name("a")).await.expect("shown");
    let summary = &snapshot.holders[0].summary;
    let fields = summary.metadata.fields();
    assert_eq!(fields.program, "a Redisson client");
    let labels = ["client", "thread", "holds"].map(|key| fields.labels[key].as_str());
    assert_eq!(labels, [UUID, "47", "2"]);
    assert_eq!((summary.lease_id.to_string().as_str(), summary.token), ("b983c153", None));
    assert!(summary.left.is_some_and(|left| left <= Duration::from_secs(20)));
    // Nobody gives it an expiry but its holder.
    behind(&server, &["PERSIST", "a"]);
    let busy = engine.try_acquire(&request("a")).await;
    assert!(matches!(busy, Ok(AcquireReply::Busy { at_most: None, .. })), "{busy:?}");
    assert_eq!(behind(&server, &["PTTL", "a"]).integer(), Some(-1));
}

#[tokio::test]
async fn a_lock_of_ours_without_an_expiry_gets_one() {
    let server = server();
    let engine = engine(&server, "").await;
    let held = request("a");
    take(&engine, &held).await;
    let left = || behind(&server, &["PTTL", "a"]).integer().expect("a number");
    behind(&server, &["PERSIST", "a"]);
    let reply = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })) && left() > 0, "{reply:?}");
    behind(&server, &["PERSIST", "a"]);
    let busy = engine.try_acquire(&request("a")).await;
    assert!(matches!(busy, Ok(AcquireReply::Busy { .. })) && left() > 0, "{busy:?}");
}

#[tokio::test]
async fn a_read_hold_without_an_expiry_is_a_living_reader() {
    const OWNER: &str = "b983c153-7421-469a-addb-44fb92259a1b:47";
    let server = server();
    let engine = engine(&server, "").await;
    behind(&server, &["HSET", "a", "mode", "read", OWNER, "1"]);
    behind(&server, &["SET", &format!("{{a}}:{OWNER}:rwlock_timeout:1"), "1"]);
    let busy = engine.try_acquire(&attempt(Mode::Exclusive, LockKind::ReadWrite)).await;
    assert!(matches!(busy, Ok(AcquireReply::Busy { at_most: None, .. })), "{busy:?}");
    let reader = attempt(Mode::Shared, LockKind::ReadWrite);
    take(&engine, &reader).await;
    engine.release(&ending(&reader, false)).await.expect("released");
    assert_eq!(behind(&server, &["HGET", "a", OWNER]).text().as_deref(), Some("1"));
    assert_eq!(behind(&server, &["PTTL", "a"]).integer(), Some(-1));
    let shown = engine.inspect(&name("a")).await.expect("shown");
    assert_eq!((shown.holder_count, shown.holders[0].summary.left), (1, None));
    // A hold that has ended holds nothing.
    behind(&server, &["DEL", &format!("{{a}}:{OWNER}:rwlock_timeout:1")]);
    take(&engine, &attempt(Mode::Exclusive, LockKind::ReadWrite)).await;
}

#[tokio::test]
async fn a_broken_token_counter_grants_nothing() {
    let server = server();
    let engine = engine(&server, "").await;
    for value in ["text", "-7", "9007199254740991"] {
        behind(&server, &["SET", "redisson_lock_token:{a}", value]);
        for (mode, kind) in [
            (Mode::Exclusive, LockKind::Mutex),
            (Mode::Shared, LockKind::ReadWrite),
            (PERMIT, LockKind::Mutex),
        ] {
            let reply = engine.try_acquire(&attempt(mode, kind)).await;
            let foreign = reply.as_ref().is_err_and(|error| {
                let found = "token counter";
                matches!(error.kind(), ErrorKind::Foreign { found: seen } if seen.contains(found))
            });
            assert!(foreign, "{value} {mode:?}: {reply:?}");
            assert_eq!(keys(&server), ["redisson_lock_token:{a}"]);
            let counter = behind(&server, &["GET", "redisson_lock_token:{a}"]).text();
            assert_eq!(counter.as_deref(), Some(value));
        }
    }
}

#[tokio::test]
async fn a_grant_is_revoked_by_its_token_and_wakes_those_that_wait() {
    let server = server();
    let engine = engine(&server, "").await;
    let held = request("a");
    let token = take(&engine, &held).await;
    let revoke =
        |token| Operation::Revoke { name: name("a"), token, reason: "why".into(), now: true };
    let other = FencingToken::new(token.get() + 1).expect("a token");
    let reply = Engine::operate(&engine, &revoke(other)).await.expect("answered");
    assert_eq!(reply, OperationReply::NothingThere);
    assert_eq!(calls(&server, "publish"), 0);
    let reply = Engine::operate(&engine, &revoke(token)).await.expect("answered");
    assert_eq!((reply, calls(&server, "publish")), (OperationReply::Done, 1));
    let reply = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
    assert!(
        matches!(&reply, Ok(RenewReply::Revoked { reason, .. }) if reason == "why"),
        "{reply:?}"
    );
    take(&engine, &request("a")).await;
}

#[tokio::test]
async fn a_grant_without_a_token_is_revoked_by_the_id_of_its_holder() {
    const JAVA: &str = "4f1d2c3b-0000-4000-8000-00000000beef:31";
    let server = server();
    let revoke = |holder: &str| {
        let (name, holder) = (name("a"), holder.to_owned());
        Operation::RevokeHolder { name, holder, reason: "why".into() }
    };
    for parameters in ["", "fencing=off"] {
        let engine = engine(&server, parameters).await;
        behind(&server, &["HSET", "a", JAVA, "2"]);
        behind(&server, &["PEXPIRE", "a", "60000"]);
        for other in ["", "4f1d2c3b-0000-4000-8000-00000000beef:32", "4f1d2c3", "*"] {
            let reply = Engine::operate(&engine, &revoke(other)).await.expect("answered");
            assert_eq!(reply, OperationReply::NothingThere, "{other}");
        }
        let before = calls(&server, "publish");
        let reply = Engine::operate(&engine, &revoke(JAVA)).await.expect("answered");
        assert_eq!((reply, calls(&server, "publish") - before), (OperationReply::Done, 1));

        let held = request("a");
        take(&engine, &held).await;
        let shown = engine.inspect(&name("a")).await.expect("answered");
        let id = shown.holders[0].summary.lease_id.to_string();
        let reply = Engine::operate(&engine, &revoke(&id)).await.expect("answered");
        assert_eq!(reply, OperationReply::Done, "one of ours");
        let reply = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
        assert!(
            matches!(&reply, Ok(RenewReply::Revoked { reason, .. }) if reason == "why"),
            "{reply:?}"
        );
    }
    behind(&server, &["HSET", "a", "mode", "write", &format!("{JAVA}:write"), "1"]);
    let engine = engine(&server, "").await;
    let error = Engine::operate(&engine, &revoke(JAVA)).await.expect_err("no lock of this kind");
    assert!(error.to_string().contains("read/write"), "{error}");
    assert_eq!(behind(&server, &["HLEN", "a"]), Reply::Integer(2), "nothing was changed");
}
