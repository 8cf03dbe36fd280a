//! Connections that break, servers that freeze, crash and come back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Engine, ErrorKind, Hint, Hold, Purpose, RenewReply,
};
use holdline_services::{FaultProxy, PostgresConfig, PostgresServer};

use crate::support::{HOLD, PATIENCE, connect, engine, let_go, queue, renew, request, take};

const OURS: &str = "from pg_stat_activity where application_name = 'holdline'";

/// Waits for the next hint; the suite's clock is the machine's.
async fn next(hints: &mut holdline_core::Hints) -> Hint {
    let hint = hints.next();
    tokio::time::timeout(PATIENCE, hint).await.expect("in time").expect("a watch does not end")
}

#[tokio::test]
async fn a_backend_that_is_terminated_costs_no_lease() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    let token = take(&engine, &held).await;
    server.sql(&format!("select pg_terminate_backend(pid) {OURS}"));
    // What meets the end of its connection is unknown; what comes after finds a new one.
    let renewed = loop {
        match renew(&engine, &held, Purpose::Keep(HOLD)).await {
            Err(error) => assert_eq!(error.certainty(), Certainty::Unknown, "{error}"),
            Ok(reply) => break reply,
        }
    };
    assert!(matches!(renewed, RenewReply::Renewed { .. }), "{renewed:?}");
    assert_eq!(take(&engine, &held).await, token);
    let_go(&engine, &held).await;
}

#[tokio::test]
async fn a_watch_continues_on_a_new_connection() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (one, other) = (engine(&server).await, engine(&server).await);
    let (held, waits) = (request("a"), request("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    let mut hints = other.watch(&waits.name, waits.lease_id);
    server.sql(&format!("select pg_terminate_backend(pid) {OURS}"));
    // First that something may have been missed: the connection was lost.
    next(&mut hints).await;
    while renew(&other, &waits, Purpose::Wait).await.is_err() {}
    while renew(&one, &held, Purpose::Keep(HOLD)).await.is_err() {}
    // What else came meanwhile is taken first.
    while let Some(Some(_)) = hints.next().now_or_never() {}
    let_go(&one, &held).await;
    assert!(matches!(next(&mut hints).await, Hint::Granted { .. }));
    take(&other, &waits).await;
}

#[tokio::test]
async fn a_killed_worker_restarts_the_server_and_the_lease_stands() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let engine = engine(&server).await;
    let held = request("a");
    let token = take(&engine, &held).await;
    let pid = server.sql(&format!("select pid {OURS}"))[0].parse().expect("a number");
    server.kill_worker(pid);
    let renewed = loop {
        if let Ok(reply) = renew(&engine, &held, Purpose::Keep(HOLD)).await {
            break reply;
        }
    };
    assert!(matches!(renewed, RenewReply::Renewed { .. }), "{renewed:?}");
    let_go(&engine, &held).await;
    assert!(take(&engine, &request("a")).await > token);
}

#[tokio::test]
async fn a_crash_takes_no_token_back() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let engine = engine(&server).await;
    let mut last = None;
    for _ in 0..3 {
        for _ in 0..40 {
            let asked = request("a");
            let token = take(&engine, &asked).await;
            assert!(Some(token) > last, "{token} after {last:?}");
            last = Some(token);
            let_go(&engine, &asked).await;
        }
        server.crash();
        server.restart();
        while engine.inspect(&request("a").name).await.is_err() {}
    }
}

#[tokio::test]
async fn a_crash_right_after_a_hand_off_takes_neither_the_grant_nor_its_token_back() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let engine = engine(&server).await;
    let mut last = None;
    for round in 0..8 {
        let (first, mut second) = (request(&round.to_string()), request(&round.to_string()));
        let token = take(&engine, &first).await;
        queue(&engine, &second).await;
        let mut hints = engine.watch(&second.name, second.lease_id);
        // The place does not wait for the disk; the hand-off does, for both.
        let_go(&engine, &first).await;
        let handed = loop {
            if let Hint::Granted { token } = next(&mut hints).await {
                break token;
            }
        };
        assert!(Some(token) > last && handed > token, "{last:?}, {token}, {handed}");
        server.crash();
        server.restart();
        while engine.inspect(&second.name).await.is_err() {}
        second.known = true;
        match engine.try_acquire(&second).await {
            Ok(AcquireReply::Granted { token, .. }) => assert_eq!(token, handed),
            // The restart took longer than the lease of the hand-off.
            Ok(AcquireReply::Unknown) => {}
            other => panic!("{other:?}"),
        }
        last = Some(take(&engine, &request("other")).await);
        assert!(last > Some(handed), "{last:?} after {handed}");
        server.sql("delete from holdline.names where name = 'other'");
    }
}

#[tokio::test]
async fn a_frozen_server_costs_a_timeout_and_the_outcome_is_unknown() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=2000&connect_timeout_ms=2000", server.url());
    take(&engine(&server).await, &request("made")).await;
    let engine = connect(&url).await.expect("connected");
    let asked = request("a");
    server.stop();
    let error = engine.try_acquire(&asked).await.expect_err("no answer");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    // The connection is given up, and another cannot be made.
    let error = engine.try_acquire(&request("b")).await.expect_err("no connection");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    server.cont();
    let given_up = crate::support::ending(&asked, true);
    while engine.release(&given_up).await.is_err() {}
    // Whenever the request is carried out, it is refused from then on, or was undone.
    let next = request("a");
    while engine.try_acquire(&next).await.is_err() {}
    let snapshot = engine.inspect(&asked.name).await.expect("shown");
    assert_eq!(snapshot.holder_count, 1, "{snapshot:?}");
    assert_eq!(snapshot.holders[0].summary.lease_id, next.lease_id.short());
}

#[tokio::test]
async fn a_locked_row_costs_a_timeout_and_nothing_is_done() {
    let server = Arc::new(PostgresServer::start(PostgresConfig::default()));
    let url = format!("{}?command_timeout_ms=2000", server.url());
    let held = request("a");
    take(&self::engine(&server).await, &held).await;
    let engine = connect(&url).await.expect("connected");
    let keeper = server.clone();
    let keeps = std::thread::spawn(move || {
        keeper.try_sql(
            "postgres",
            "begin; select 1 from holdline.names for update; select pg_sleep(600)",
        )
    });
    let locked =
        "from pg_stat_activity where query like '%pg_sleep(600)' and wait_event = 'PgSleep'";
    while server.sql(&format!("select count(*) {locked}")) != ["1"] {}
    let error = renew(&engine, &held, Purpose::Keep(HOLD)).await.expect_err("locked");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(error.to_string().contains("waited too long"), "{error}");
    server.sql(&format!("select pg_terminate_backend(pid) {locked}"));
    assert!(keeps.join().expect("no panic").is_err());
    let_go(&engine, &held).await;
}

#[tokio::test]
async fn a_holder_that_is_cut_off_loses_the_name_when_its_lease_ends_and_is_notified() {
    let server = PostgresServer::start(PostgresConfig::default());
    let proxy = FaultProxy::start(server.address());
    let url = format!("postgres://postgres@{}/postgres?command_timeout_ms=5000", proxy.address());
    let (cut_off, other) = (connect(&url).await.expect("connected"), engine(&server).await);
    let hold = Hold::Leased(Duration::from_secs(3));
    let held = AcquireRequest { hold, ..request("a") };
    let token = take(&cut_off, &held).await;
    proxy.refuse();
    proxy.reset();
    let error = renew(&cut_off, &held, Purpose::Keep(hold)).await.expect_err("cut off");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    // The rows are the truth: no end of a connection frees the name, only the lease's.
    let mut waits = request("a");
    let larger = loop {
        match other.try_acquire(&waits).await.expect("asked") {
            AcquireReply::Granted { token, .. } => break token,
            AcquireReply::Queued { next_look, .. } => {
                waits.known = true;
                tokio::time::sleep(next_look).await; // event: as long as the store has said
            }
            // It was silent for too long, on a machine that was paused.
            AcquireReply::Unknown => waits = request("a"),
            reply => panic!("{reply:?}"),
        }
    };
    assert!(larger > token);
    proxy.accept();
    let answer = loop {
        if let Ok(answer) = renew(&cut_off, &held, Purpose::Keep(hold)).await {
            break answer;
        }
    };
    assert_eq!(answer, RenewReply::Unknown);
}

/// Each request and each reply is cut off once: wherever it happens, giving up leaves nothing.
#[tokio::test]
async fn a_connection_can_be_cut_anywhere_and_giving_up_leaves_nothing() {
    let server = PostgresServer::start(PostgresConfig::default());
    let proxy = FaultProxy::start(server.address());
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let behind = connect(&url).await.expect("connected");
    let watcher = engine(&server).await;
    take(&watcher, &request("made")).await;
    for yields in 0..15 {
        let asked = AcquireRequest { queue: false, ..request("a") };
        let cut = async {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            proxy.reset();
        };
        let (reply, ()) = tokio::join!(behind.try_acquire(&asked), cut);
        if let Err(error) = &reply {
            assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        }
        let given_up = crate::support::ending(&asked, true);
        while behind.release(&given_up).await.is_err() {}
        let next = request("a");
        take(&watcher, &next).await;
        let_go(&watcher, &next).await;
    }
}
