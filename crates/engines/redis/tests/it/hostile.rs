//! Foreign data in our keys: it is reported, left as it is, and affects no other name.

use std::time::Duration;

use holdline_core::{
    Certainty, Engine, ErrorKind, Hold, LatchCommand, LatchReply, ListRequest, LockError, Mode,
    Operation, Purpose, RenewReply, RenewRequest,
};
use holdline_redis::RedisEngine;
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{HOLD, ending, engine, keys, let_go, name, queue, raw, renew, request, take};

const COUNTER: &str = "holdline:fence";
const LINE: &str = "holdline:{a}:1q";
const DATA: &str = "holdline:{a}:1d";

/// Calls every verb that reads the name `a`.
async fn ask_with_all(engine: &RedisEngine) -> Vec<Result<(), LockError>> {
    let asked = request("a");
    vec![
        engine.try_acquire(&asked).await.map(drop),
        renew(engine, &asked, Purpose::Keep(HOLD)).await.map(drop),
        renew(engine, &asked, Purpose::Wait).await.map(drop),
        engine.release(&ending(&asked, true)).await.map(drop),
        engine.inspect(&asked.name).await.map(drop),
        engine.operate(&Operation::Unfreeze { name: name("a") }).await.map(drop),
    ]
}

async fn names_listed(engine: &RedisEngine) -> Vec<String> {
    let asked = ListRequest { prefix: String::new(), after: None, limit: 100 };
    let page = engine.list(&asked).await.expect("listed");
    page.names.into_iter().map(|shown| shown.name.to_string()).collect()
}

#[tokio::test]
async fn foreign_data_in_place_of_queue_or_data_is_reported_and_left() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for plant in [
        &["SET", LINE, "x"][..],
        &["HSET", LINE, "f", "v"],
        &["ZADD", LINE, "5", "x"],
        &["SET", DATA, "x"],
        &["ZADD", DATA, "5", "x"],
        &["HSET", DATA, "f", "x"],
        &["HSET", DATA, "n", "x"],
        &["HSET", DATA, "u", "-7"],
    ] {
        raw(&server, &["FLUSHALL"]);
        take(&engine, &request("b")).await;
        raw(&server, plant);
        let before = raw(&server, &["DUMP", plant[1]]);
        for reported in ask_with_all(&engine).await {
            let reported = reported.expect_err("not ours");
            assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {reported}");
            assert_eq!(reported.certainty(), Certainty::NotApplied, "{plant:?}: {reported}");
        }
        assert_eq!(raw(&server, &["DUMP", plant[1]]), before);
        // A fault of one name does not hide the others.
        assert_eq!(names_listed(&engine).await, ["b"], "{plant:?}");
    }
}

#[tokio::test]
async fn a_script_reports_foreign_data_with_a_clear_error() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (holder, waiter) = (request("a"), request("a"));
    take(&engine, &holder).await;
    queue(&engine, &waiter).await;
    raw(&server, &["HSET", DATA, "r", "junk", &waiter.lease_id.to_hex(), "x"]);
    let mut stumbled = 0;
    let release = engine.release(&ending(&holder, false)).await.map(drop);
    for reported in ask_with_all(&engine).await.into_iter().chain([release]) {
        let Err(reported) = reported else { continue };
        stumbled += 1;
        let foreign =
            matches!(reported.kind(), ErrorKind::Foreign { .. } | ErrorKind::Protocol { .. });
        assert!(foreign && !reported.to_string().contains("script"), "{reported}");
    }
    assert!(stumbled > 2);
    assert!(names_listed(&engine).await.len() <= 1);
}

#[tokio::test]
async fn foreign_data_under_one_name_affects_no_other_item_of_a_batch() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (bad, mut good) = (request("a"), request("b"));
    good.mode = Mode::Shared;
    take(&engine, &good).await;
    let batch = [&bad, &good].map(|asked| RenewRequest {
        name: asked.name.clone(),
        lease_id: asked.lease_id,
        client: asked.client,
        purpose: Purpose::Keep(HOLD),
    });
    for plant in [&["SET", DATA, "x"][..], &["HSET", DATA, "r", "junk"]] {
        raw(&server, &["DEL", "holdline:{a}", LINE, DATA]);
        let waiter = request("a");
        take(&engine, &request("a")).await;
        queue(&engine, &waiter).await;
        raw(&server, &["DEL", DATA]);
        raw(&server, plant);
        let replies = engine.renew(&batch).await;
        let reported = replies[0].as_ref().expect_err("not ours");
        assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {reported}");
        assert!(matches!(replies[1], Ok(RenewReply::Renewed { .. })), "{plant:?}: {replies:?}");
    }
}

#[tokio::test]
async fn a_counter_that_cannot_be_incremented_costs_no_waiter_its_position() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for (value, wanted) in
        [("9007199254740991", "no fencing token is left"), ("x", "no number"), ("5.5", "no number")]
    {
        let (holder, waiter) = (request("a"), request("a"));
        take(&engine, &holder).await;
        queue(&engine, &waiter).await;
        raw(&server, &["SET", COUNTER, value]);
        for reported in [
            engine.release(&ending(&holder, false)).await.map(drop),
            renew(&engine, &waiter, Purpose::Wait).await.map(drop),
            engine.try_acquire(&request("c")).await.map(drop),
        ] {
            let reported = reported.expect_err("no token").to_string();
            assert!(reported.contains(wanted) && !reported.contains("script"), "{reported}");
        }
        assert_eq!(raw(&server, &["GET", COUNTER]).text().as_deref(), Some(value));
        raw(&server, &["DEL", COUNTER]);
        let reply = renew(&engine, &waiter, Purpose::Wait).await;
        assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
        let_go(&engine, &waiter).await;
    }
}

#[tokio::test]
async fn a_counter_of_another_type_costs_no_waiter_its_position() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let (holder, waiter) = (request("a"), request("a"));
    take(&engine, &holder).await;
    queue(&engine, &waiter).await;
    raw(&server, &["DEL", COUNTER]);
    raw(&server, &["RPUSH", COUNTER, "x"]);
    for reported in [
        engine.release(&ending(&holder, false)).await.map(drop),
        renew(&engine, &waiter, Purpose::Wait).await.map(drop),
    ] {
        let reported = reported.expect_err("no token");
        assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{reported}");
        for key in raw(&server, &["KEYS", "holdline:{a}*"]).items().expect("a list") {
            let key = key.text().expect("a key");
            let left = raw(&server, &["PTTL", &key]).integer();
            assert!(left.is_some_and(|left| left > 0), "{key} lasts for {left:?}");
        }
    }
    raw(&server, &["DEL", COUNTER]);
    let reply = renew(&engine, &waiter, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
}

#[tokio::test]
async fn a_permit_deleted_from_the_set_is_lost_and_free_for_others() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let permit = || {
        let mut asked = request("a");
        asked.mode = Mode::Permits { count: 1, of: 2 };
        asked
    };
    let (stays, gone, next) = (permit(), permit(), permit());
    take(&engine, &stays).await;
    take(&engine, &gone).await;
    queue(&engine, &next).await;
    raw(&server, &["ZREM", "holdline:{a}", &gone.lease_id.to_hex()]);
    let reply = renew(&engine, &gone, Purpose::Keep(HOLD)).await;
    assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
    let reply = renew(&engine, &next, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    for held in [&stays, &next] {
        let_go(&engine, held).await;
    }
    assert_eq!(keys(&server), [COUNTER]);
}

/// Its time left is unknown: at most the longest lease. A live holder continues, and the name of a
/// dead one becomes free.
#[tokio::test]
async fn a_lock_without_an_expiry_gets_one_longer_than_any_lease() {
    const DAY: i64 = 86_400_000;
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let lock = "holdline:{a}";
    let (holder, next) = (request("a"), request("a"));
    take(&engine, &holder).await;
    raw(&server, &["PERSIST", lock]);
    let reply = renew(&engine, &holder, Purpose::Keep(HOLD)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    let mended = raw(&server, &["PTTL", lock]).integer();
    assert!(mended.is_some_and(|left| left > 0 && left <= 30_000), "by its holder: {mended:?}");
    // A dead holder does nothing; requests and inspections of others repair it.
    for look in [true, false] {
        raw(&server, &["PERSIST", lock]);
        if look {
            let shown = engine.inspect(&holder.name).await.expect("shown");
            let left = shown.holders[0].summary.left.expect("a reply");
            assert!(left.as_secs() > 86_000, "{left:?}");
        } else {
            queue(&engine, &next).await;
        }
        let left = raw(&server, &["PTTL", lock]).integer();
        assert!(left.is_some_and(|left| left > DAY - 60_000 && left <= DAY), "{left:?}");
    }
    let revoke = Operation::Revoke {
        name: name("a"),
        token: engine.inspect(&holder.name).await.expect("shown").holders[0]
            .summary
            .token
            .expect("a token"),
        reason: String::new(),
        now: true,
    };
    engine.operate(&revoke).await.expect("revoked");
    let reply = renew(&engine, &next, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
}

#[tokio::test]
async fn a_permit_without_a_record_is_free_when_its_lease_expires() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let permits = |count: u32, lease: u64| {
        let mut asked = request("a");
        asked.mode = Mode::Permits { count, of: 4 };
        asked.hold = Hold::Leased(Duration::from_millis(lease));
        asked
    };
    let (stays, gone, next) = (permits(1, 30_000), permits(3, 30_000), permits(3, 30_000));
    take(&engine, &stays).await;
    take(&engine, &gone).await;
    queue(&engine, &next).await;
    raw(&server, &["HDEL", DATA, &gone.lease_id.to_hex()]);
    let reply = renew(&engine, &gone, Purpose::Keep(HOLD)).await;
    assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
    let reply = renew(&engine, &next, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Queued { .. })), "it may believe yet: {reply:?}");
    // Its lease has expired.
    raw(&server, &["ZADD", "holdline:{a}", "1", &gone.lease_id.to_hex()]);
    let reply = renew(&engine, &next, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    for held in [&stays, &next] {
        let_go(&engine, held).await;
    }
    assert_eq!(keys(&server), [COUNTER]);
    // The only permit.
    let alone = permits(2, 30_000);
    take(&engine, &alone).await;
    raw(&server, &["HDEL", DATA, &alone.lease_id.to_hex()]);
    raw(&server, &["ZADD", "holdline:{a}", "1", &alone.lease_id.to_hex()]);
    let all = permits(4, 30_000);
    take(&engine, &all).await;
    let_go(&engine, &all).await;
    assert_eq!(keys(&server), [COUNTER]);
}

#[tokio::test]
async fn a_freeze_without_a_token_leaves_no_keys() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    let freeze = Operation::Freeze {
        name: name("a"),
        duration: Duration::from_secs(60),
        reason: "moving".to_owned(),
    };
    for value in ["9007199254740991", "x"] {
        raw(&server, &["SET", COUNTER, value]);
        engine.operate(&freeze).await.expect_err("no token");
        assert_eq!(keys(&server), [COUNTER], "{value}");
    }
    raw(&server, &["DEL", COUNTER]);
    engine.operate(&freeze).await.expect("frozen");
}

const LATCH: &str = "holdline:{a}:1c";

async fn latch(engine: &RedisEngine, command: LatchCommand) -> Result<LatchReply, LockError> {
    Engine::latch(engine, &name("a"), command).await
}

/// An application's own counter has the name of a latch.
#[tokio::test]
async fn a_latch_leaves_the_key_that_is_its_bare_name() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for plant in [&["SET", "a", "3"][..], &["RPUSH", "a", "x"]] {
        raw(&server, &["FLUSHALL"]);
        raw(&server, plant);
        let before = raw(&server, &["DUMP", "a"]);
        for (command, count) in [
            (LatchCommand::CountDown(3), 0),
            (LatchCommand::Set(1000), 1000),
            (LatchCommand::CountDown(1), 999),
        ] {
            assert_eq!(latch(&engine, command).await.expect("answered").count, count, "{plant:?}");
        }
        assert_eq!(keys(&server), ["a", LATCH]);
        latch(&engine, LatchCommand::CountDown(999)).await.expect("counted");
        assert_eq!(keys(&server), ["a"], "an open latch has no key");
        assert_eq!(raw(&server, &["DUMP", "a"]), before);
    }
}

#[tokio::test]
async fn foreign_data_in_place_of_a_latch_is_reported_and_left() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server).await;
    for plant in [
        &["SET", LATCH, "1000"][..],
        &["SET", LATCH, "latch:"],
        &["SET", LATCH, "latch:0"],
        &["SET", LATCH, "latch:07"],
        &["SET", LATCH, "latch:-7"],
        &["SET", LATCH, "latch:1.5"],
        &["SET", LATCH, "latch:1000000001"],
        &["SET", LATCH, "latch:18446744073709551616"],
        &["HSET", LATCH, "f", "v"],
        &["RPUSH", LATCH, "x"],
    ] {
        raw(&server, &["DEL", LATCH]);
        raw(&server, plant);
        let before = raw(&server, &["DUMP", LATCH]);
        for command in [LatchCommand::Count, LatchCommand::Set(2), LatchCommand::CountDown(2000)] {
            let reported = latch(&engine, command).await.expect_err("not ours");
            assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {reported}");
            assert_eq!(reported.certainty(), Certainty::NotApplied, "{plant:?}: {reported}");
            assert!(reported.to_string().contains(LATCH), "{reported}");
        }
        assert_eq!(raw(&server, &["DUMP", LATCH]), before, "{plant:?}");
    }
}

/// As in a switchover: the former master goes on under its address as a replica. The name of the
/// server may lead to the new master, so the connection is made anew.
#[tokio::test]
async fn a_master_that_becomes_a_replica_is_waited_for() {
    let server = RedisServer::start(RedisConfig::default());
    let before = engine(&server).await;
    take(&before, &request("made")).await;
    raw(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    let error = before.try_acquire(&request("a")).await.expect_err("no writes");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("a switchover is under way"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    // Who names a replica from the start waits for nothing.
    let other = engine(&server).await;
    let error = other.try_acquire(&request("a")).await.expect_err("no writes");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("name its master"), "{error}");
    // Another may have granted meanwhile.
    raw(&server, &["REPLICAOF", "NO", "ONE"]);
    let error = before.try_acquire(&request("a")).await.expect_err("no grant");
    assert!(matches!(error.kind(), ErrorKind::Quarantined { .. }), "{error}");
}
