//! The effect of requests on the stored data, read directly from the server.

use futures_util::StreamExt;
use holdline_core::{AcquireRequest, Certainty, Engine, ErrorKind, FencingToken, Operation};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::checkup::{ill, look};
use crate::support::{connect, engine, let_go, name, queue, request, take};

#[tokio::test]
async fn a_busy_name_costs_no_token_and_a_free_one_is_one_update() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = request("a");
    let token = take(&engine, &held).await;
    for _ in 0..10 {
        let refused = holdline_core::AcquireRequest { queue: false, ..request("a") };
        engine.try_acquire(&refused).await.expect("busy");
    }
    let_go(&engine, &held).await;
    let next = request("a");
    assert_eq!(take(&engine, &next).await.get(), token.get() + 1);
    let_go(&engine, &next).await;
}

#[tokio::test]
async fn notifications_are_sent_only_to_waiters() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    take(&engine, &held).await;
    queue(&engine, &waits).await;
    let inbox = server.sql("select inbox <> 0 from holdline.waiters");
    assert_eq!(inbox, ["t"]);
    let mut hints = engine.watch(&waits.name, waits.lease_id);
    let_go(&engine, &held).await;
    let hint = hints.next().await;
    let token = take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    assert_eq!(hint, Some(holdline_core::Hint::Granted { token }));
}

#[tokio::test]
async fn a_raised_fence_never_falls() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let to = |number| FencingToken::new(number).expect("a token");
    for (raise, least) in [(1_000, 1_000), (10, 1_001)] {
        engine.operate(&Operation::RaiseFence { to: to(raise) }).await.expect("raised");
        let asked = request("a");
        assert!(take(&engine, &asked).await > to(least));
        let_go(&engine, &asked).await;
    }
}

/// The sequence stands at 1 and has not given it: `raise` to 1 must not be taken for done.
#[tokio::test]
async fn a_fence_that_is_raised_before_its_first_token_gives_a_larger_one() {
    let to = |number| FencingToken::new(number).expect("a token");
    for (raise, next) in [(1, 2), (2, 3), (7, 8)] {
        let server = PostgresServer::start(PostgresConfig::default());
        let engine = engine(&server).await;
        engine.operate(&Operation::RaiseFence { to: to(raise) }).await.expect("raised");
        assert_eq!(take(&engine, &request("a")).await, to(next));
    }
}

/// A failover to a standby without the grant would issue its token again.
#[tokio::test]
async fn a_grant_waits_for_the_standby_that_commits_wait_for() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=1000&connect_timeout_ms=60000", server.url());
    let engine = connect(&url).await.expect("connected");
    take(&engine, &request("before")).await;
    server.sql("alter system set synchronous_standby_names = 'nobody'");
    server.sql("select pg_reload_conf()");
    // The server's processes learn of it one by one.
    let mut number = 0;
    let error = loop {
        number += 1;
        if let Err(error) = engine.try_acquire(&request(&format!("name {number}"))).await {
            break error;
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
}

#[tokio::test]
async fn after_a_restored_old_copy_the_operator_raises_the_fence() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let engine = engine(&server).await;
    let first = request("a");
    take(&engine, &first).await;
    let_go(&engine, &first).await;
    let data = server.directory().join("data");
    let copy = server.directory().join("copy");
    server.shutdown();
    let copied = std::process::Command::new("cp").arg("-a").arg(&data).arg(&copy).status();
    assert!(copied.expect("cp runs").success());
    server.restart();
    let mut last = FencingToken::new(1).expect("a token");
    for _ in 0..10 {
        let asked = request("a");
        while engine.inspect(&name("a")).await.is_err() {}
        last = take(&engine, &asked).await;
        let_go(&engine, &asked).await;
    }
    server.shutdown();
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::rename(&copy, &data).expect("put back");
    server.restart();
    while engine.inspect(&name("a")).await.is_err() {}
    assert_eq!(ill(&look(&server.url()).await), [""; 0], "nothing shows doctor that it is old");
    let fallen = request("a");
    assert!(take(&engine, &fallen).await <= last, "the copy knows nothing of the later tokens");
    let_go(&engine, &fallen).await;
    engine.operate(&Operation::RaiseFence { to: last }).await.expect("raised");
    assert!(take(&engine, &request("a")).await > last);
}

/// How often each verb's function was called.
fn calls(server: &PostgresServer, verb: &str) -> u64 {
    let ask = format!(
        "select pg_stat_force_next_flush(); \
         select coalesce(sum(calls), 0) from pg_stat_user_functions where funcname = '{verb}_1'"
    );
    server.sql(&ask).last().and_then(|calls| calls.parse().ok()).expect("a number")
}

/// A hand-off is two statements (queue, release), however many wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_costs_as_many_statements_among_sixty_four_as_among_two() {
    const ROUNDS: u64 = 4;
    const HELD: std::time::Duration = std::time::Duration::from_millis(5);
    let server =
        PostgresServer::start(PostgresConfig::default().with_line("track_functions = all"));
    for waiters in [2_u64, 64] {
        // On a paused machine a contender may not extend its lease in time, and queues once more.
        let mut asked_more = Vec::new();
        for _ in 0..5 {
            let all = || calls(&server, "release") + calls(&server, "release_alone");
            let before = all();
            let (acquires, releases) = (calls(&server, "acquire"), calls(&server, "release"));
            let client = holdline::Client::with_options(
                std::sync::Arc::new(engine(&server).await),
                holdline::ClientOptions::default(),
            );
            let client = client.expect("a client");
            let contenders = (0..waiters).map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    let lock = client.mutex(format!("among {waiters}")).expect("a lock");
                    for _ in 0..ROUNDS {
                        let guard = lock.lock().await.expect("granted");
                        tokio::time::sleep(HELD).await; // event: the one before has queued again
                        let _ = guard.release().await;
                    }
                })
            });
            for one in contenders.collect::<Vec<_>>() {
                one.await.expect("no panic");
            }
            drop(client);
            let grants = waiters * ROUNDS;
            // A session's counters are reported at its end at the latest.
            while all() < before + grants {}
            let released = calls(&server, "release") - releases;
            assert!(released <= grants, "{released} releases for {grants} grants");
            let asked = calls(&server, "acquire") - acquires;
            // One that reads its message late, on a busy machine, asks once more.
            let fair = grants..=grants + grants / 8;
            if released == grants && fair.contains(&asked) {
                asked_more.clear();
                break;
            }
            asked_more.push(asked);
        }
        assert!(asked_more.is_empty(), "{asked_more:?} for {} grants", waiters * ROUNDS);
    }
}
