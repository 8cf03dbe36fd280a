//! The fast path: a free name is granted, and released, by one statement each. Every other command
//! finds its holder, and it answers as the rules do.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::table_engine::TableEngine;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Engine, Mode, Operation, OperationReply, Purpose,
    ReleaseReply, RenewReply,
};
use holdline_mysql::MysqlEngine;
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{HOLD, ending, engine, eventually, let_go, name, queue, renew, request, take};

/// Holders of the fast path.
const FAST: &str = "select count(*) from holdline_heads where lease_id is not null";

/// A name that has a row, and is free.
async fn used(engine: &MysqlEngine, name: &str) {
    let first = request(name);
    take(engine, &first).await;
    let_go(engine, &first).await;
}

fn calls(server: &MariaDbServer) -> Vec<String> {
    server.sql("show global status like 'Com_call_procedure'")
}

#[tokio::test]
async fn a_free_name_is_granted_and_released_without_a_call() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    used(&engine, "a").await;
    let before = calls(&server);
    let mut last = None;
    for _ in 0..10 {
        let held = request("a");
        let token = take(&engine, &held).await;
        assert!(Some(token) > last, "{token:?} after {last:?}");
        last = Some(token);
        assert_eq!(server.sql(FAST), ["1"]);
        let reply = engine.release(&ending(&held, false)).await;
        let is_released = matches!(reply, Ok(ReleaseReply::Released { held_for: Some(_) }));
        assert!(is_released, "{reply:?}");
        assert_eq!(server.sql(FAST), ["0"]);
    }
    assert_eq!(calls(&server), before);
}

/// The tokens of both paths, and the floor, are one sequence.
#[tokio::test]
async fn tokens_grow_over_both_paths() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    used(&engine, "a").await;
    let (fast, shared) = (request("a"), AcquireRequest { mode: Mode::Shared, ..request("a") });
    let first = take(&engine, &fast).await;
    let_go(&engine, &fast).await;
    let second = take(&engine, &shared).await;
    let_go(&engine, &shared).await;
    let to = "100".parse().expect("a token");
    engine.operate(&Operation::RaiseFence { to }).await.expect("raised");
    let next = request("a");
    let third = take(&engine, &next).await;
    assert!(first < second && second < third && third > to, "{first} {second} {third}");
}

/// Each command, from another client, finds the holder of the fast path.
#[tokio::test]
async fn every_command_finds_the_holder() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (engine, other) = (engine(&server).await, self::engine(&server).await);
    for command in ["again", "busy", "shared", "wait", "renew", "revoke", "freeze", "release"] {
        used(&engine, command).await;
        let held = request(command);
        let token = take(&engine, &held).await;
        assert_eq!(server.sql(FAST), ["1"], "{command}");
        let shown = other.inspect(&held.name).await.expect("shown");
        assert_eq!((shown.holder_count, shown.holders[0].summary.token), (1, Some(token)));
        assert_eq!(shown.holders[0].summary.lease_id, held.lease_id.short(), "{command}");
        assert_eq!(server.sql(FAST), ["1"], "{command}: looking moves nothing");
        let next = request(command);
        match command {
            "again" => assert_eq!(take(&other, &held).await, token),
            "busy" | "shared" => {
                let mode = if command == "busy" { Mode::Exclusive } else { Mode::Shared };
                let asked = AcquireRequest { queue: false, mode, ..next.clone() };
                let reply = other.try_acquire(&asked).await.expect("a reply");
                let AcquireReply::Busy { holder: Some(holder), .. } = reply else {
                    panic!("{command}: {reply:?}")
                };
                assert_eq!(holder.token, Some(token), "{command}");
            }
            "wait" => {
                queue(&other, &next).await;
                let_go(&engine, &held).await;
                assert!(take(&other, &next).await > token);
                let_go(&other, &next).await;
                continue;
            }
            "renew" => {
                let reply = renew(&other, &held, Purpose::Keep(HOLD)).await;
                assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
            }
            "revoke" => {
                let reason = "moving".to_owned();
                let revoke =
                    Operation::Revoke { name: held.name.clone(), token, reason, now: false };
                let reply = other.operate(&revoke).await;
                assert!(matches!(reply, Ok(OperationReply::Notified { .. })), "{reply:?}");
                let reply = renew(&engine, &held, Purpose::Keep(HOLD)).await;
                assert!(matches!(reply, Ok(RenewReply::Revoked { .. })), "{reply:?}");
            }
            "freeze" => {
                let duration = std::time::Duration::from_secs(600);
                let (name, reason) = (held.name.clone(), "a pause".to_owned());
                let freeze = Operation::Freeze { name: name.clone(), duration, reason };
                other.operate(&freeze).await.expect("frozen");
                let_go(&engine, &held).await;
                let asked = AcquireRequest { queue: false, ..next.clone() };
                let reply = engine.try_acquire(&asked).await;
                assert!(matches!(reply, Ok(AcquireReply::Busy { .. })), "{reply:?}");
                other.operate(&Operation::Unfreeze { name }).await.expect("unfrozen");
                continue;
            }
            _ => {
                let_go(&other, &held).await;
                continue;
            }
        }
        let_go(&engine, &held).await;
    }
}

/// A holder of the fast path whose lease is over has nothing left to release.
#[tokio::test]
async fn a_lease_of_the_fast_path_ends_by_the_clock_of_the_server() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let (engine, other) = (engine(&server).await, self::engine(&server).await);
    used(&engine, "a").await;
    for has_gone in [true, false] {
        let (held, next) = (request("a"), request("a"));
        let token = take(&engine, &held).await;
        server.sql("update holdline_heads set ends = 1");
        if has_gone {
            assert!(take(&other, &next).await > token);
            let_go(&other, &next).await;
        }
        let reply = engine.release(&ending(&held, false)).await;
        assert!(matches!(reply, Ok(ReleaseReply::NotHeld { revoked: None })), "{reply:?}");
        assert_eq!(server.sql(FAST), ["0"]);
    }
}

/// A call that is killed leaves its transaction open. What a statement behind it does may be undone
/// with it: then its success must not be believed.
#[tokio::test]
async fn a_grant_behind_a_command_that_was_killed_is_believed_only_if_it_is_committed() {
    let server = Arc::new(MariaDbServer::start(MariaDbConfig::default()));
    let engine = engine(&server).await;
    used(&engine, "b").await;
    let held = request("a");
    take(&engine, &held).await;
    let keeper = server.clone();
    let thread = std::thread::spawn(move || {
        keeper.try_sql(
            "begin; select 1 from holdline_holders where name = 'a' for update; select sleep(600)",
        )
    });
    let sleeps = "select id from information_schema.processlist where info = 'select sleep(600)'";
    eventually("the row is kept", || server.sql(sleeps).len() == 1).await;
    let waits = "select id from information_schema.processlist \
        where user = 'holdline' and info like 'update holdline_holders%'";
    let next = AcquireRequest { queue: false, ..request("b") };
    let given_up = ending(&held, true);
    let behind = async {
        eventually("it waits", || !server.sql(waits).is_empty()).await;
        let killed = async {
            // The statement is behind the release on the connection by then.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            for id in server.sql(waits) {
                server.sql(&format!("kill query {id}"));
            }
        };
        tokio::join!(engine.try_acquire(&next), killed).0
    };
    let (released, granted) = tokio::join!(engine.release(&given_up), behind);
    assert_eq!(released.expect_err("stopped").certainty(), Certainty::Unknown);
    for id in server.sql(sleeps) {
        server.sql(&format!("kill {id}"));
    }
    let _ = thread.join().expect("no panic");
    let shown = engine.inspect(&next.name).await.expect("shown");
    assert!(granted.is_err() || shown.holder_count == 1, "{granted:?}, {shown:?}");
    take(&engine, &next).await;
}

/// Random histories, beside the lock table of the suite: the replies are the same.
#[tokio::test]
async fn the_fast_path_answers_as_the_lock_table() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let table = TableEngine::new(Arc::new(MachineClock));
    let mut fast = 0;
    for seed in 0..18_u64 {
        // New ones take no name for busy.
        let engines = [engine(&server).await, engine(&server).await];
        let lock = format!("history/{seed}");
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut known: Vec<AcquireRequest> = Vec::new();
        for step in 0..60 {
            let engine = &engines[usize::try_from(draw(2)).expect("small")];
            let at = usize::try_from(draw(known.len().max(1) as u64)).expect("small");
            let asked = known.get(at).cloned();
            let place = format!("seed {seed}, step {step}");
            match (draw(10), asked) {
                (0..=3, _) | (_, None) => {
                    let mode = if draw(8) == 0 { Mode::Shared } else { Mode::Exclusive };
                    let asked = AcquireRequest { queue: draw(8) == 0, mode, ..request(&lock) };
                    let ours = acquired(engine, &asked).await;
                    assert_eq!(ours, acquired(&table, &asked).await, "{place}: {asked:?}");
                    fast += usize::from(server.sql(FAST) != ["0"]);
                    known.push(asked);
                }
                (4..=6, Some(asked)) => {
                    let end = ending(&asked, draw(40) == 0);
                    let ours = released(engine, &end).await;
                    assert_eq!(ours, released(&table, &end).await, "{place}: {end:?}");
                    known.remove(at);
                }
                (7, Some(asked)) => {
                    let ours = acquired(engine, &asked).await;
                    assert_eq!(ours, acquired(&table, &asked).await, "{place}: {asked:?}");
                }
                (8, Some(asked)) => {
                    let ours = renewed(engine, &asked).await;
                    assert_eq!(ours, renewed(&table, &asked).await, "{place}: {asked:?}");
                }
                _ => {
                    let name = name(&lock);
                    let (ours, theirs) = (engine.inspect(&name).await, table.inspect(&name).await);
                    let of = |shown: Result<holdline_core::Snapshot, _>| {
                        let shown = shown.expect("shown");
                        let ids: Vec<_> =
                            shown.holders.iter().map(|one| one.summary.lease_id).collect();
                        (shown.holder_count, shown.queue_length, ids)
                    };
                    assert_eq!(of(ours), of(theirs), "{place}");
                }
            }
        }
    }
    assert!(fast > 10, "the fast path was taken {fast} times");
}

/// What a reply says, without times and tokens.
async fn acquired(engine: &dyn Engine, request: &AcquireRequest) -> String {
    match engine.try_acquire(request).await {
        Ok(AcquireReply::Granted { .. }) => "granted".to_owned(),
        Ok(AcquireReply::Queued { position, .. }) => format!("queued {position:?}"),
        Ok(AcquireReply::Busy { .. }) => "busy".to_owned(),
        Ok(reply) => format!("{reply:?}"),
        Err(error) => format!("{:?}", std::mem::discriminant(error.kind())),
    }
}

async fn released(engine: &dyn Engine, request: &holdline_core::ReleaseRequest) -> String {
    match engine.release(request).await {
        Ok(ReleaseReply::Released { .. }) => "released".to_owned(),
        reply => format!("{reply:?}"),
    }
}

async fn renewed(engine: &dyn Engine, request: &AcquireRequest) -> String {
    match renew(engine, request, Purpose::Keep(HOLD)).await {
        Ok(RenewReply::Renewed { .. }) => "renewed".to_owned(),
        Ok(RenewReply::Held { .. }) => "held".to_owned(),
        Ok(RenewReply::Queued { position, .. }) => format!("queued {position:?}"),
        reply => format!("{reply:?}"),
    }
}

/// The limit counts the statements of all clients of the server.
#[tokio::test]
async fn a_server_without_room_for_prepared_statements_keeps_locks() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    used(&engine(&server).await, "a").await;
    server.sql("set global max_prepared_stmt_count = 0");
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    take(&engine, &held).await;
    queue(&engine, &waits).await;
    renew(&engine, &held, Purpose::Keep(HOLD)).await.expect("renewed");
    let_go(&engine, &held).await;
    take(&engine, &waits).await;
    let_go(&engine, &waits).await;
}
