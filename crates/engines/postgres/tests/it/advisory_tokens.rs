//! Fencing tokens of advisory locks are flushed before they are given out, and not more often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdline_core::{ErrorKind, FencingToken, Operation, Verbs};
use holdline_postgres::AdvisoryLock;
use holdline_services::{PostgresConfig, PostgresServer};
use tokio::task::JoinSet;

use crate::advisory::{LONG, await_nothing, lock, lock_at, waiting_renewals};
use crate::checkup::look;
use crate::support::{engine, eventually, request, sign_in, take};

/// What a lock calls when a block ends.
const DRAW: &str = "select holdline.draw_block_1()";

/// Locks and releases; returns the token.
async fn draw(lock: &AdvisoryLock) -> u64 {
    let held = lock.lock(LONG).await.expect("free");
    let token = held.fencing_token().get();
    held.release().await.expect("released");
    token
}

/// Counts the draws of 64 that write nothing to the log.
async fn quiet_draws(server: &PostgresServer, lock: &AdvisoryLock) -> u32 {
    let position = || server.sql("select pg_current_wal_insert_lsn()");
    let mut quiet = 0;
    for _ in 0..64 {
        let before = position();
        draw(lock).await;
        quiet += u32::from(position() == before);
    }
    quiet
}

#[tokio::test]
async fn a_token_of_a_reserved_block_writes_nothing() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let lock = lock(&server, 1);
    draw(&lock).await;
    let quiet = quiet_draws(&server, &lock).await;
    // The server itself writes now and then.
    assert!(quiet > 58, "{quiet} of 64 wrote nothing");
}

/// As on a server before 15: its sequences write every 32nd time.
#[tokio::test]
async fn without_blocks_tokens_grow_and_most_write_nothing() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let lock = lock(&server, 1);
    let before = draw(&lock).await;
    server.sql("delete from holdline.fence_block; drop sequence holdline.fence_next");
    assert!(draw(&lock).await > before);
    let quiet = quiet_draws(&server, &lock).await;
    assert!((32..64).contains(&quiet), "{quiet} of 64 wrote nothing");
}

/// Draws over several blocks, beside grants of the lock table, which end blocks early.
#[tokio::test]
async fn a_token_is_larger_than_each_that_was_drawn_before_it_began() {
    let server = PostgresServer::start(PostgresConfig::default());
    draw(&lock(&server, 1)).await;
    let largest = Arc::new(AtomicU64::new(0));
    let mut sessions = JoinSet::new();
    for session in 0..8 {
        let (lock, largest) = (lock(&server, session), largest.clone());
        let client = sign_in(server.address(), "postgres").await;
        sessions.spawn(async move {
            let row = client.prepare("select nextval('holdline.fence')").await.expect("prepared");
            let mut drawn = Vec::new();
            for round in 0..1_500 {
                let before = largest.load(Ordering::SeqCst);
                let token = if session == 0 && round % 500 == 499 {
                    let token: i64 = client.query_one(&row, &[]).await.expect("drawn").get(0);
                    u64::try_from(token).expect("positive")
                } else {
                    draw(&lock).await
                };
                assert!(token > before, "{token} after {before}");
                largest.fetch_max(token, Ordering::SeqCst);
                drawn.push(token);
            }
            drawn
        });
    }
    let mut all: Vec<u64> = sessions.join_all().await.concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a token came twice");
}

/// As in a standby that was promoted before it had written the sequence to its disk.
#[tokio::test]
async fn with_a_damaged_counter_tokens_grow_and_doctor_says_so() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, 1);
    let before = draw(&lock).await;
    let path = server.sql(
        "select setting || '/' || pg_relation_filepath('holdline.fence_next') \
        from pg_settings where name = 'data_directory'",
    );
    server.shutdown();
    std::fs::write(&path[0], [0; 8_192]).expect("overwritten");
    server.restart();
    assert!(draw(&lock).await > before);
    let found = look(&server.url()).await;
    let sequence = found.findings().iter().find(|one| one.check() == "sequence").expect("checked");
    assert!(sequence.found().contains("bad magic number"), "{sequence:?}");
    // The remedy.
    let fix =
        sequence.fix().and_then(|fix| fix.split_once("tokens. ")).expect("a fix").1.to_owned();
    server.sql(&fix);
    let again = lock_at(&waiting_renewals(&server.url()), 1);
    assert!(draw(&again).await > before);
    assert!(quiet_draws(&server, &again).await > 58, "blocks again");
}

#[tokio::test]
async fn a_reservation_that_is_rolled_back_gives_no_token_to_others() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, 1);
    let before = draw(&lock).await;
    // A grant of the table ends the block, so that the next draws reserve.
    let engine = engine(&server).await;
    take(&engine, &request("between")).await;
    let undoes = sign_in(server.address(), "postgres").await;
    for name in ["one", "two", "three"] {
        undoes.batch_execute("begin").await.expect("begun");
        let undone: i64 = undoes.query_one(DRAW, &[]).await.expect("drawn").get(0);
        let waiting = "select count(*) from pg_locks where not granted";
        let (token, ()) = tokio::join!(draw(&lock), async {
            eventually("it waits", || server.sql(waiting) == ["1"]).await;
            undoes.batch_execute("rollback").await.expect("undone");
        });
        let undone = u64::try_from(undone).expect("positive");
        assert!(token > undone && undone > before, "{before}, then {undone}, then {token}");
        take(&engine, &request(name)).await;
    }
}

/// Also to a number inside the block.
#[tokio::test]
async fn tokens_of_a_block_are_larger_than_a_raised_fence() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (lock, engine) = (lock(&server, 1), engine(&server).await);
    for floor in [1, 2_000, 2_001, 100_000] {
        let before = draw(&lock).await;
        let to = FencingToken::new(floor).expect("a token");
        engine.operate(&Operation::RaiseFence { to }).await.expect("raised");
        let token = draw(&lock).await;
        assert!(token > floor.max(before), "{token} after {before}, raised to {floor}");
    }
}

#[tokio::test]
async fn a_crash_takes_no_token_back() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let lock = lock_at(&waiting_renewals(&server.url()), 1);
    let mut last = 0;
    for round in 0..4 {
        // Nobody flushes by the way.
        server.sql("alter system set wal_writer_delay = '10s'");
        server.sql("select pg_reload_conf()");
        for number in 0..40 {
            if number == 10 * round {
                // The next token is reserved again behind it.
                server.sql("checkpoint");
            }
            let token = draw(&lock).await;
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        server.crash();
        server.restart();
    }
    assert!(draw(&lock).await > last);
}

/// It may have less than our disk: a failover to it would issue the token again.
#[tokio::test]
async fn a_token_waits_for_the_standby_that_commits_wait_for() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=1000&connect_timeout_ms=60000", server.url());
    draw(&lock_at(&url, 1)).await;
    server.sql("alter system set synchronous_standby_names = 'nobody'");
    server.sql("select pg_reload_conf()");
    // The server's processes learn of it one by one.
    let deadline = Instant::now() + Duration::from_secs(60);
    while lock_at(&url, 1).try_lock().await.is_ok() {
        assert!(Instant::now() < deadline, "no commit waits for the standby");
    }
    // Each token does from now on, not only those for which the sequence itself writes.
    for key in 2..5 {
        let error = lock_at(&url, key).try_lock().await.expect_err("no standby");
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    }
    server.sql("alter system reset synchronous_standby_names");
    server.sql("select pg_reload_conf()");
    await_nothing(&server).await;
}
