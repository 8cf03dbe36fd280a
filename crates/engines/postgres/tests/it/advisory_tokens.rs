//! Fencing tokens of advisory locks are flushed before they are given out, and not more often.

use std::time::{Duration, Instant};

use holdline_core::ErrorKind;
use holdline_postgres::AdvisoryLock;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::advisory::{LONG, await_nothing, lock_at, waiting_renewals};

/// Locks and releases; returns the token.
async fn draw(lock: &AdvisoryLock) -> u64 {
    let held = lock.lock(LONG).await.expect("free");
    let token = held.fencing_token().get();
    held.release().await.expect("released");
    token
}

#[tokio::test]
async fn a_token_whose_reservation_is_flushed_writes_nothing() {
    let server = PostgresServer::start(PostgresConfig::default().with_fsync());
    let lock = lock_at(&waiting_renewals(&server.url()), 1);
    draw(&lock).await;
    let position = || server.sql("select pg_current_wal_insert_lsn()");
    let mut quiet = 0;
    for _ in 0..64 {
        let before = position();
        draw(&lock).await;
        quiet += u32::from(position() == before);
    }
    // The sequence writes every 32nd time, and the server itself now and then.
    assert!((32..64).contains(&quiet), "{quiet} of 64 wrote nothing");
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
