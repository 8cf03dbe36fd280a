//! The scripts, by their keys: what they leave, what they rely on, what they reject.

use std::time::Duration;

use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{
    AcquireReply, Certainty, Engine, ErrorKind, FencingToken, Mode, Operation, OperationReply,
    Purpose, ReleaseReply, RenewReply,
};
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::support::{HOLD, ending, engine, keys, let_go, name, queue, raw, renew, request, take};

const COUNTER: &str = "holdline:fence";
/// The polling interval for events without a notification.
const LOOK: Duration = Duration::from_millis(5);

#[tokio::test]
async fn tokens_grow_whatever_data_the_server_loses() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let mut last = take(&engine, &request("a")).await;
    let mut grown = |token: FencingToken, what: &str| {
        assert!(token > last, "{what}: {last}, then {token}");
        last = token;
    };
    raw(&server, &["FLUSHALL"]);
    grown(take(&engine, &request("a")).await, "flushed");
    raw(&server, &["DEL", "holdline:{a}", COUNTER]);
    grown(take(&engine, &request("a")).await, "deleted");
    server.kill();
    server.restart();
    let again = crate::support::engine(&server).await;
    grown(take(&again, &request("a")).await, "restarted without persistence");
}

#[tokio::test]
async fn a_counter_ahead_of_the_clock_is_incremented() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let ahead = FencingToken::new(9_000_000_000_000_000 - (1 << 41)).expect("in range");
    engine.operate(&Operation::RaiseFence { to: ahead }).await.expect("raised");
    for (text, more) in [("a", 1), ("b", 2), ("c", 3)] {
        assert_eq!(take(&engine, &request(text)).await.get(), ahead.get() + more);
    }
    // All digits are kept, and a lower fence changes nothing.
    let lower = FencingToken::new(5).expect("in range");
    engine.operate(&Operation::RaiseFence { to: lower }).await.expect("left as it is");
    assert_eq!(take(&engine, &request("d")).await.get(), ahead.get() + 4);
}

#[tokio::test]
async fn a_foreign_counter_is_reported_and_kept() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for (plant, look) in [(&["SET", COUNTER, "hello"][..], &["GET", COUNTER][..])] {
        raw(&server, &["DEL", COUNTER]);
        raw(&server, plant);
        let reported = engine.try_acquire(&request("a")).await.expect_err("foreign");
        assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{reported:?}");
        assert_eq!(raw(&server, look).text().as_deref(), Some("hello"));
        assert_eq!(keys(&server), [COUNTER]);
    }
}

#[tokio::test]
async fn nothing_but_the_counter_outlives_its_use() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for part in 0..100 {
        let requests: Vec<_> = (0..100).map(|n| request(&format!("{part}/{n}"))).collect();
        for request in &requests {
            take(&engine, request).await;
        }
        for request in &requests {
            let_go(&engine, request).await;
        }
    }
    assert_eq!(keys(&server), [COUNTER]);
    // The same after waiting, sharing, permits and a freeze, except for keys that are kept on
    // purpose.
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: 1, of: 2 }] {
        let mut held: Vec<_> = (0..4).map(|_| request("n")).collect();
        held.iter_mut().for_each(|request| request.mode = mode);
        for request in &held {
            engine.try_acquire(request).await.expect("granted or queued");
        }
        let freeze = Operation::Freeze {
            name: name("n"),
            duration: Duration::from_secs(60),
            reason: "x".into(),
        };
        assert_eq!(engine.operate(&freeze).await.expect("frozen"), OperationReply::Done);
        for request in &held {
            engine.release(&ending(request, false)).await.expect("ended");
        }
        assert_eq!(keys(&server), [COUNTER, "holdline:{n}", "holdline:{n}:1d"]);
        let unfreeze = Operation::Unfreeze { name: name("n") };
        assert_eq!(engine.operate(&unfreeze).await.expect("over"), OperationReply::Done);
        assert_eq!(keys(&server), [COUNTER], "{mode}");
    }
}

#[tokio::test]
async fn every_key_but_the_counter_has_an_end() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let holder = request("n");
    let token = take(&engine, &holder).await;
    queue(&engine, &request("n")).await;
    engine.release(&ending(&request("n"), true)).await.expect("given up");
    let mut shared = request("s");
    shared.mode = Mode::Shared;
    take(&engine, &shared).await;
    let (duration, reason) = (Duration::from_secs(60), String::new());
    for operation in [
        Operation::Freeze { name: name("f"), duration, reason: reason.clone() },
        Operation::Freeze { name: name("s"), duration, reason: reason.clone() },
        Operation::Revoke { name: name("n"), token, reason, now: true },
    ] {
        engine.operate(&operation).await.expect("done");
    }
    let keys = keys(&server);
    assert!(keys.len() > 7, "{keys:?}");
    for key in keys.iter().filter(|key| *key != COUNTER) {
        let left = raw(&server, &["PTTL", key]).integer().expect("a number");
        assert!((1..=80_000).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn a_plain_client_on_the_key_is_excluded_and_reported() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let ours = request("a");
    take(&engine, &ours).await;
    let plain = ["SET", "holdline:{a}", "mine", "NX", "PX", "60000"];
    assert_eq!(raw(&server, &plain), Reply::Nil);
    let_go(&engine, &ours).await;
    assert_ne!(raw(&server, &plain), Reply::Nil);
    let reported = engine.try_acquire(&request("a")).await.expect_err("foreign");
    assert_eq!(reported.certainty(), Certainty::NotApplied);
    assert!(reported.to_string().contains("a string of 4 bytes"), "{reported}");
    // A frozen name excludes them as well.
    raw(&server, &["DEL", "holdline:{a}"]);
    let (duration, reason) = (Duration::from_secs(60), String::new());
    let freeze = Operation::Freeze { name: name("a"), duration, reason };
    engine.operate(&freeze).await.expect("frozen");
    assert_eq!(raw(&server, &plain), Reply::Nil);
}

#[tokio::test]
async fn foreign_data_under_the_key_is_reported_and_left() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for plant in [
        &["SET", "holdline:{a}", ""][..],
        &["SET", "holdline:{a}", "0123456789abcdef0123456789abcdefg-"],
        &["HSET", "holdline:{a}", "f", "v"],
        &["SADD", "holdline:{a}", "v"],
        &["RPUSH", "holdline:{a}", "v"],
        &["ZADD", "holdline:{a}", "1", "v"],
        &["XADD", "holdline:{a}", "*", "f", "v"],
    ] {
        raw(&server, &["DEL", "holdline:{a}"]);
        raw(&server, plant);
        let before = raw(&server, &["DUMP", "holdline:{a}"]);
        let asked = request("a");
        let foreign = |reported: &Result<(), holdline_core::LockError>| {
            reported.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::Foreign { .. }))
        };
        let unfreeze = Operation::Unfreeze { name: name("a") };
        for reported in [
            engine.try_acquire(&asked).await.map(drop),
            renew(&engine, &asked, Purpose::Keep(HOLD)).await.map(drop),
            renew(&engine, &asked, Purpose::Wait).await.map(drop),
            engine.release(&ending(&asked, true)).await.map(drop),
            engine.inspect(&asked.name).await.map(drop),
            engine.operate(&unfreeze).await.map(drop),
        ] {
            assert!(foreign(&reported), "{plant:?}: {reported:?}");
        }
        assert_eq!(raw(&server, &["DUMP", "holdline:{a}"]), before);
        assert_eq!(keys(&server), ["holdline:{a}"]);
    }
}

#[tokio::test]
async fn a_waiter_without_a_subscription_is_skipped_at_once() {
    let server = RedisServer::start(RedisConfig::default());
    let (alive, gone) = (engine(&server).await, engine(&server).await);
    let (holder, dead, next) = (request("a"), request("a"), request("a"));
    take(&alive, &holder).await;
    queue(&gone, &dead).await;
    queue(&alive, &next).await;
    drop(gone);
    inboxes_with_subscribers(&server, 1).await;
    let_go(&alive, &holder).await;
    let reply = renew(&alive, &next, Purpose::Wait).await.expect("a reply");
    assert!(matches!(reply, RenewReply::Held { .. }), "{reply:?}");
}

/// Waits until this many inboxes have a subscriber.
async fn inboxes_with_subscribers(server: &RedisServer, wanted: usize) {
    for _ in 0..1_000 {
        let channels = raw(server, &["PUBSUB", "CHANNELS"]);
        if channels.items().is_some_and(|channels| channels.len() == wanted) {
            return;
        }
        tokio::time::sleep(LOOK).await; // event: a subscription, of which nobody is notified
    }
    panic!("not {wanted} inboxes: {:?}", raw(server, &["PUBSUB", "CHANNELS"]));
}

#[tokio::test]
async fn a_polling_waiter_gets_the_hand_off_without_a_subscription() {
    let server = RedisServer::start(RedisConfig::default());
    // No right to publish, and an inbox without a subscriber: heartbeats alone must suffice.
    raw(&server, &["ACL", "SETUSER", "default", "resetchannels"]);
    let engine = engine(&server).await;
    let (holder, next) = (request("a"), request("a"));
    take(&engine, &holder).await;
    queue(&engine, &next).await;
    let_go(&engine, &holder).await;
    let reply = renew(&engine, &next, Purpose::Wait).await.expect("a reply");
    assert!(matches!(reply, RenewReply::Held { .. }), "{reply:?}");
}

/// Each hand-off skipped it, as long as another waiter was subscribed.
#[tokio::test]
async fn a_waiter_that_lost_its_subscription_is_served_in_its_turn() {
    let server = RedisServer::start(RedisConfig::default());
    let (first, second) = (engine(&server).await, engine(&server).await);
    let (holder, next, last) = (request("a"), request("a"), request("a"));
    take(&first, &holder).await;
    queue(&first, &next).await;
    inboxes_with_subscribers(&server, 1).await;
    let subscriber = raw(&server, &["CLIENT", "LIST", "TYPE", "pubsub"]).text().expect("text");
    let subscriber = subscriber.split_whitespace().find_map(|field| field.strip_prefix("id="));
    queue(&second, &last).await;
    inboxes_with_subscribers(&server, 2).await;
    raw(&server, &["ACL", "SETUSER", "default", "-subscribe"]);
    let killed = raw(&server, &["CLIENT", "KILL", "ID", subscriber.expect("an id")]);
    assert_eq!(killed.integer(), Some(1));
    inboxes_with_subscribers(&server, 1).await;
    let inbox = || {
        let id = next.lease_id.to_hex();
        let record = raw(&server, &["HGET", "holdline:{a}:1d", &id]).text().expect("a record");
        record[51..67].to_owned()
    };
    // The heartbeats report it as soon as the client knows.
    for look in 0.. {
        let beat = renew(&first, &next, Purpose::Wait).await;
        if beat.is_ok() && inbox() == "0".repeat(16) {
            break;
        }
        assert!(look < 2_000, "the inbox that nobody listens to is kept: {}", inbox());
        tokio::time::sleep(LOOK).await; // event: the client notices the end of its connection
    }
    let_go(&first, &holder).await;
    let handed = raw(&server, &["GET", "holdline:{a}"]).text().expect("handed over");
    assert!(handed.starts_with(&next.lease_id.to_hex()), "{handed}");
}

#[tokio::test]
async fn a_hand_off_publishes_once_however_many_wait() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let mut holder = request("a");
    take(&engine, &holder).await;
    let mut waiting: Vec<_> = (0..50).map(|_| request("a")).collect();
    for request in &waiting {
        queue(&engine, request).await;
    }
    let published = |server: &RedisServer| -> u64 {
        let info = raw(server, &["INFO", "commandstats"]).text().expect("text");
        let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
        line.map_or(0, |rest| rest.split(',').next().expect("a number").parse().expect("a number"))
    };
    for (turn, next) in waiting.iter_mut().take(5).enumerate() {
        let_go(&engine, &holder).await;
        next.known = true;
        take(&engine, next).await;
        assert_eq!(published(&server), turn as u64 + 1);
        holder = next.clone();
    }
    // Nothing is published without waiters.
    let alone = request("b");
    take(&engine, &alone).await;
    let_go(&engine, &alone).await;
    assert_eq!(published(&server), 5);
}

#[tokio::test]
async fn many_dead_entries_are_removed_a_few_at_a_time() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("a")).await;
    for _ in 0..200 {
        queue(&engine, &request("a")).await;
    }
    // As if all had sent no heartbeat for long.
    let members = raw(&server, &["ZRANGE", "holdline:{a}:1q", "0", "-1"]);
    let members: Vec<String> =
        members.items().expect("a list").iter().filter_map(Reply::text).collect();
    for member in members.iter().filter(|member| member.starts_with('t')) {
        raw(&server, &["ZADD", "holdline:{a}:1q", "1000000000000001", member]);
    }
    for left in [136, 72, 8, 0] {
        assert_eq!(engine.inspect(&name("a")).await.expect("shown").queue_length, left);
    }
    assert_eq!(keys(&server), [COUNTER, "holdline:{a}"]);
}

#[tokio::test]
async fn readers_whose_set_was_deleted_lose_their_locks() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let mut reader = request("a");
    reader.mode = Mode::Shared;
    take(&engine, &reader).await;
    raw(&server, &["DEL", "holdline:{a}"]);
    let reply = renew(&engine, &reader, Purpose::Keep(HOLD)).await.expect("answered");
    assert_eq!(reply, RenewReply::Unknown);
    let writer = request("a");
    take(&engine, &writer).await;
    let_go(&engine, &writer).await;
    assert_eq!(keys(&server), [COUNTER]);
}

#[tokio::test]
async fn a_grant_that_was_deleted_is_unknown_and_not_resurrected() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let mut holder = request("a");
    take(&engine, &holder).await;
    raw(&server, &["FLUSHALL"]);
    let reply = renew(&engine, &holder, Purpose::Keep(HOLD)).await.expect("answered");
    assert_eq!(reply, RenewReply::Unknown);
    holder.known = true;
    let reply = engine.try_acquire(&holder).await;
    assert!(matches!(reply, Ok(AcquireReply::Unknown)), "{reply:?}");
    let reply = engine.release(&ending(&holder, false)).await.expect("answered");
    assert_eq!(reply, ReleaseReply::NotHeld { revoked: None });
    assert_eq!(keys(&server), [""; 0]);
}

#[tokio::test]
async fn a_full_server_rejects_grants_and_accepts_releases() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (plain, for_good, next) = (request("a"), request("b"), request("b"));
    take(&engine, &plain).await;
    take(&engine, &for_good).await;
    queue(&engine, &next).await;
    raw(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let reported = engine.try_acquire(&request("c")).await.expect_err("no room");
    assert!(matches!(reported.kind(), ErrorKind::Refused { .. }), "{reported:?}");
    assert_eq!(reported.certainty(), Certainty::NotApplied);
    let_go(&engine, &plain).await;
    let reply = engine.release(&ending(&for_good, true)).await.expect("answered");
    assert!(matches!(reply, ReleaseReply::Released { .. }), "{reply:?}");
    // The name was handed off, too.
    let shown = engine.inspect(&name("b")).await.expect("shown");
    assert_eq!((shown.holder_count, shown.queue_length), (1, 0));
}

#[tokio::test]
async fn a_deleted_queue_is_reported_to_its_waiters() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("a")).await;
    let (gone, stands) = (request("a"), request("a"));
    queue(&engine, &gone).await;
    raw(&server, &["DEL", "holdline:{a}:1q"]);
    queue(&engine, &stands).await;
    let reply = renew(&engine, &gone, Purpose::Wait).await.expect("answered");
    assert_eq!(reply, RenewReply::Unknown);
    let reply = renew(&engine, &stands, Purpose::Wait).await.expect("answered");
    assert!(matches!(reply, RenewReply::Queued { position: Some(0), .. }), "{reply:?}");
}

#[tokio::test]
async fn a_frozen_name_without_waiters_is_no_semaphore() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (duration, reason) = (Duration::from_secs(60), String::new());
    let freeze = Operation::Freeze { name: name("a"), duration, reason };
    engine.operate(&freeze).await.expect("frozen");
    let mut waiter = request("a");
    waiter.mode = Mode::Permits { count: 1, of: 3 };
    queue(&engine, &waiter).await;
    assert_eq!(engine.inspect(&waiter.name).await.expect("shown").permits_of, Some(3));
    let reply = engine.release(&ending(&waiter, false)).await.expect("answered");
    assert_eq!(reply, ReleaseReply::Withdrawn);
    assert_eq!(engine.inspect(&waiter.name).await.expect("shown").permits_of, None);
    queue(&engine, &request("a")).await;
}

#[tokio::test]
async fn a_waiter_that_queues_after_a_hand_off_to_its_client_counts_as_alive() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (holder, mut missing) = (request("a"), request("a"));
    missing.hand_off_lease = MIN_HAND_OFF_LEASE;
    take(&engine, &holder).await;
    queue(&engine, &missing).await;
    let_go(&engine, &holder).await;
    // Within the same millisecond, most likely.
    let mut later = request("a");
    later.client = missing.client;
    queue(&engine, &later).await;
    tokio::time::sleep(missing.hand_off_lease).await; // event: its end
    let reply = renew(&engine, &later, Purpose::Wait).await.expect("answered");
    assert!(matches!(reply, RenewReply::Held { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_release_after_the_server_clock_was_set_back_is_a_release() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let engine = engine(&server).await;
    let mut reader = request("a");
    reader.mode = Mode::Shared;
    take(&engine, &reader).await;
    server.clock().step_back(Duration::from_secs(3_600));
    server.await_clock();
    let reply = engine.release(&ending(&reader, false)).await.expect("released");
    assert_eq!(reply, ReleaseReply::Released { held_for: Some(Duration::ZERO) });
}

#[tokio::test]
async fn after_a_clock_step_back_a_new_waiter_queues_behind_the_others() {
    let server = RedisServer::start(RedisConfig::default().with_clock());
    let engine = engine(&server).await;
    let holder = request("a");
    take(&engine, &holder).await;
    let waiting = [request("a"), request("a"), request("a")];
    queue(&engine, &waiting[0]).await;
    server.clock().step_back(Duration::from_secs(3_600));
    server.await_clock();
    for (position, next) in waiting.iter().enumerate().skip(1) {
        let reply = engine.try_acquire(next).await.expect("queued");
        let AcquireReply::Queued { position: reported, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(reported, Some(position));
    }
    let mut before = holder;
    for mut next in waiting {
        let_go(&engine, &before).await;
        next.known = true;
        take(&engine, &next).await;
        before = next;
    }
}
