//! The sessions of advisory locks are used again when that is safe, and only then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdline::clock::{ClockKind, SystemClock};
use holdline_conformance::clock::{MachineClock, ManualClock};
use holdline_conformance::factory::ManualTime;
use holdline_core::{Certainty, Clock, ErrorKind};
use holdline_postgres::{AdvisoryLock, AdvisoryPool, PostgresOptions};
use holdline_services::{PostgresConfig, PostgresServer, PrivateNetwork};

use crate::advisory::{LOCKS, LONG, await_nothing, busy, in_a_copy, lock_at, waiting_renewals};
use crate::support::{drive, eventually, growing, sign_in, yields};

/// The server's processes for our sessions.
fn pids(server: &PostgresServer) -> Vec<String> {
    server.sql("select pid from pg_stat_activity where application_name = 'holdline' order by pid")
}

fn pool_with(server: &PostgresServer, clock: Arc<dyn Clock>) -> AdvisoryPool {
    let options = PostgresOptions::from_url(&waiting_renewals(&server.url())).expect("a good URL");
    AdvisoryPool::new(&options, clock).expect("good options")
}

fn pool(server: &PostgresServer) -> AdvisoryPool {
    pool_with(server, Arc::new(MachineClock))
}

fn lock_of(pool: &AdvisoryPool, key: i64) -> AdvisoryLock {
    pool.advisory_lock(key).expect("a good key")
}

/// Locks and releases; returns the token.
async fn cycle(lock: &AdvisoryLock) -> u64 {
    let held = lock.lock(LONG).await.expect("free");
    let token = held.fencing_token();
    held.release().await.expect("released");
    token.get()
}

/// Leaves one idle session, and returns its process.
async fn one_idle(server: &PostgresServer, lock: &AdvisoryLock) -> String {
    cycle(lock).await;
    assert!(server.sql(LOCKS).is_empty());
    let [pid] = pids(server).try_into().expect("one session");
    pid
}

async fn terminate(server: &PostgresServer) {
    server.sql(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity \
         where application_name = 'holdline'",
    );
}

#[tokio::test]
async fn a_session_is_used_again_by_locks_of_all_keys_and_tokens_grow() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pool = pool(&server);
    let pid = one_idle(&server, &lock_of(&pool, 1)).await;
    let mut last = 0;
    for key in 0..5 {
        let (one, pair) = (lock_of(&pool, key), pool.advisory_lock((7, 7)).expect("a good key"));
        for times in 0..6 {
            let held = match times {
                0 => one.try_lock().await,
                1 => one.lock(LONG).await,
                2 => one.try_lock_shared().await,
                3 => one.lock_shared(LONG).await,
                4 => pair.try_lock().await,
                _ => pair.lock_shared(LONG).await,
            };
            let held = held.expect("free");
            assert!(held.fencing_token().get() > last);
            last = held.fencing_token().get();
            assert_eq!(server.sql(LOCKS).len(), 1);
            held.release().await.expect("released");
            assert!(server.sql(LOCKS).is_empty());
        }
    }
    assert_eq!(pids(&server), [pid]);
    drop(pool);
    await_nothing(&server).await;
}

/// The session took nothing, and says so: it is kept.
#[tokio::test]
async fn a_lock_that_is_not_acquired_costs_no_session() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (holder, pool) = (pool(&server), pool(&server));
    let lock = lock_of(&pool, 1);
    let pid = one_idle(&server, &lock).await;
    let held = lock_of(&holder, 1).try_lock().await.expect("free");
    let before = server.sql(LOCKS);
    for _ in 0..3 {
        assert!(busy(&lock.try_lock().await.expect_err("held")));
        assert!(busy(&lock.try_lock_shared().await.expect_err("held")));
        let error = lock.lock(Duration::from_millis(20)).await.expect_err("held");
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        assert_eq!(server.sql(LOCKS), before);
    }
    assert_eq!(pids(&server).len(), 2);
    // The limit of that wait is not the limit of the next.
    let (next, released) = tokio::join!(lock.lock(LONG), async {
        let waits = || server.sql(LOCKS).iter().any(|row| row.ends_with("|f"));
        eventually("it waits", waits).await;
        assert!(pids(&server).contains(&pid));
        held.release().await
    });
    released.expect("released");
    next.expect("its turn").release().await.expect("released");
    drop((holder, pool, lock));
    await_nothing(&server).await;
}

#[tokio::test]
async fn an_idle_session_that_was_terminated_is_replaced() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pool = pool(&server);
    let lock = lock_of(&pool, 1);
    for waits in [true, false] {
        // This process has not noticed: the attempt meets the end.
        let pid = one_idle(&server, &lock).await;
        terminate(&server).await;
        let held = match waits {
            true => lock.lock(LONG).await,
            false => lock.try_lock().await,
        };
        held.expect("free").release().await.expect("released");
        assert!(!pids(&server).contains(&pid));
        // It has had time to notice.
        terminate(&server).await;
        yields(1_000).await;
        assert_ne!(one_idle(&server, &lock).await, pid);
    }
    // So is one of a server that has crashed since.
    let before = cycle(&lock).await;
    server.crash();
    server.restart();
    assert!(cycle(&lock).await > before);
}

#[tokio::test]
async fn a_held_session_that_was_terminated_is_not_used_again() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pool = pool(&server);
    let lock = lock_of(&pool, 1);
    one_idle(&server, &lock).await;
    let held = lock.try_lock().await.expect("free");
    terminate(&server).await;
    // The holder may not have noticed when it releases.
    let error = held.release().await.expect_err("lost");
    let lost = matches!(error.kind(), ErrorKind::Lost { .. } | ErrorKind::Unavailable { .. });
    assert!(lost, "{error}");
    assert!(pids(&server).is_empty());
    cycle(&lock).await;
    assert_eq!(pids(&server).len(), 1);
}

/// An attempt in an idle session, or the release in it, ends at each of its awaits.
#[tokio::test]
async fn attempts_and_releases_in_an_idle_session_can_be_dropped_at_every_await() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pool = pool(&server);
    let lock = lock_of(&pool, 1);
    let mut dropped = [0, 0];
    for times in growing() {
        one_idle(&server, &lock).await;
        let took = tokio::select! {
            biased;
            done = lock.try_lock() => Some(done.expect("free")),
            () = yields(times) => None,
        };
        let Some(held) = took else {
            // Wherever it was, its session is gone.
            await_nothing(&server).await;
            dropped[0] += 1;
            continue;
        };
        held.release().await.expect("released");
        break;
    }
    for times in growing() {
        let pid = one_idle(&server, &lock).await;
        let held = lock.try_lock().await.expect("free");
        let released = tokio::select! {
            biased;
            done = held.release() => Some(done),
            () = yields(times) => None,
        };
        let Some(released) = released else {
            await_nothing(&server).await;
            dropped[1] += 1;
            continue;
        };
        released.expect("released");
        assert_eq!(one_idle(&server, &lock).await, pid);
        break;
    }
    assert!(dropped.iter().all(|&times| times > 1), "{dropped:?} were dropped");
}

#[tokio::test]
async fn a_waiter_in_an_idle_session_is_dropped_and_its_session_ends() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (holder, pool) = (pool(&server), pool(&server));
    let lock = lock_of(&pool, 1);
    let pid = one_idle(&server, &lock).await;
    let held = lock_of(&holder, 1).try_lock().await.expect("free");
    let waiting = || server.sql(LOCKS).len() == 2;
    tokio::select! {
        biased;
        done = lock.lock(LONG) => panic!("another session holds it: {done:?}"),
        () = eventually("it waits", waiting) => {}
    }
    assert!(pids(&server).contains(&pid));
    let alone = || server.sql(LOCKS).len() == 1 && pids(&server).len() == 1;
    eventually("only the holder is left", alone).await;
    assert!(busy(&lock.try_lock().await.expect_err("held")));
    assert!(!pids(&server).contains(&pid));
    held.release().await.expect("released");
}

/// Nobody draws a token while the fence is raised, and a session that got the lock has it.
#[tokio::test]
async fn a_session_without_a_token_is_not_used_again() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=5000&connect_timeout_ms=60000", server.url());
    let lock = lock_at(&url, 1);
    let raises = sign_in(server.address(), "postgres").await;
    for wait in [None, Some(Duration::from_millis(50))] {
        one_idle(&server, &lock).await;
        let raise = "begin; alter sequence holdline.fence no cycle";
        raises.batch_execute(raise).await.expect("altered");
        let error = match wait {
            None => lock.try_lock().await,
            Some(wait) => lock.lock(wait).await,
        }
        .expect_err("no token");
        assert!(error.to_string().contains("no fencing token"), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        await_nothing(&server).await;
        raises.batch_execute("commit").await.expect("raised");
    }
}

/// A new session finds out what an idle one cannot: who may lock, and where.
#[tokio::test]
async fn rights_and_the_schema_may_change_while_a_session_is_idle() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock_at(&waiting_renewals(&server.url()), 1);
    one_idle(&server, &lock).await;
    server.sql("drop schema holdline cascade");
    cycle(&lock).await;
    drop(lock);
    await_nothing(&server).await;
    server.sql("create role locker login; grant usage on schema holdline to locker");
    let lock = lock_at(&waiting_renewals(&server.url_of("locker", "postgres")), 2);
    one_idle(&server, &lock).await;
    server.sql("revoke usage on schema holdline from locker");
    let error = lock.try_lock().await.expect_err("no right");
    assert!(error.to_string().contains("GRANT USAGE"), "{error}");
    await_nothing(&server).await;
}

#[tokio::test]
async fn only_so_many_idle_sessions_are_kept() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pool = pool(&server);
    let mut held = Vec::new();
    for key in 0..20 {
        held.push(lock_of(&pool, key).try_lock().await.expect("free"));
    }
    assert_eq!(pids(&server).len(), 20);
    for one in held {
        one.release().await.expect("released");
    }
    eventually("16 are kept", || pids(&server).len() == 16).await;
    drop(pool);
    await_nothing(&server).await;
}

#[tokio::test]
async fn an_idle_session_is_closed_in_time_and_an_old_one_is_not_used_again() {
    let server = PostgresServer::start(PostgresConfig::default());
    let clock = ManualClock::new();
    let pool = pool_with(&server, Arc::new(clock.clone()));
    let lock = lock_of(&pool, 1);
    let pid = one_idle(&server, &lock).await;
    // In use all the time, for four minutes and 40 seconds.
    for _ in 0..14 {
        clock.advance(Duration::from_secs(20));
        yields(100).await;
        assert_eq!(one_idle(&server, &lock).await, pid);
    }
    clock.advance(Duration::from_secs(20));
    assert_ne!(one_idle(&server, &lock).await, pid);
    // Nobody asks again.
    clock.advance(Duration::from_secs(30));
    await_nothing(&server).await;
    cycle(&lock).await;
}

/// The runtime of an idle session stands still while another one runs.
#[test]
fn a_session_is_used_only_in_its_own_runtime() {
    let server = PostgresServer::start(PostgresConfig::default());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (one, other) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    let pool = pool(&server);
    let lock = lock_of(&pool, 1);
    let pid = one.block_on(one_idle(&server, &lock));
    other.block_on(cycle(&lock));
    let both = pids(&server);
    assert!(both.len() == 2 && both.contains(&pid), "{both:?}");
    one.block_on(cycle(&lock));
    other.block_on(cycle(&lock));
    assert_eq!(pids(&server), both);
    // The end of a runtime ends its sessions.
    drop(other);
    eventually_without_runtime(|| pids(&server) == [pid.clone()]);
    one.block_on(cycle(&lock));
    assert_eq!(pids(&server), [pid]);
    drop((pool, lock));
    drive(await_nothing(&server));
}

fn eventually_without_runtime(is_so: impl FnMut() -> bool) {
    drive(eventually("it is so", is_so));
}

#[test]
fn a_copy_of_the_process_uses_no_idle_session_of_its_parent() {
    // In a process of its own: a copy has only the thread that made it.
    let name = "advisory_pool::a_copy_of_the_process_uses_no_idle_session_of_its_parent";
    let Some(_network) = PrivateNetwork::enter(name) else { return };
    let server = PostgresServer::start(PostgresConfig::default());
    let clock = SystemClock::new(ClockKind::Boottime).expect("a clock");
    let mut pool = Some(pool_with(&server, Arc::new(clock)));
    let mut lock = pool.as_ref().map(|pool| lock_of(pool, 1));
    let pid = drive(one_idle(&server, lock.as_ref().expect("a lock")));
    let copied = in_a_copy(|| {
        let lock = lock.take().expect("a lock");
        let held = drive(lock.try_lock()).expect("free");
        let beside = pids(&server).len() == 2 && pids(&server).contains(&pid);
        let kept = drive(held.release()).is_ok();
        // It keeps none, and its drop ends none of the parent's.
        eventually_without_runtime(|| pids(&server) == [pid.clone()]);
        drop((lock, pool.take()));
        beside && kept
    });
    assert!(copied, "the copy used what is its parent's");
    assert_eq!(pids(&server), std::slice::from_ref(&pid));
    assert_eq!(drive(one_idle(&server, lock.as_ref().expect("a lock"))), pid);
    drop((pool, lock));
    drive(await_nothing(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_of_one_pool_hold_one_at_a_time_and_reuse_their_sessions() {
    const CONTENDERS: usize = 6;
    let server = PostgresServer::start(PostgresConfig::default());
    let pool = pool(&server);
    let (inside, last) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let contenders = (0..CONTENDERS).map(|number| {
        let (lock, inside, last) = (lock_of(&pool, 1), inside.clone(), last.clone());
        tokio::spawn(async move {
            for round in 0..50 {
                let held = lock.lock(LONG).await.expect("its turn");
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                let token = held.fencing_token().get();
                assert!(last.swap(token, Ordering::SeqCst) < token);
                inside.fetch_sub(1, Ordering::SeqCst);
                match (number + round) % 10 {
                    0 => drop(held),
                    _ => held.release().await.expect("released"),
                }
            }
        })
    });
    for one in contenders.collect::<Vec<_>>() {
        one.await.expect("no panic");
    }
    eventually("no lock is left", || server.sql(LOCKS).is_empty()).await;
    eventually("at most one each", || pids(&server).len() <= CONTENDERS).await;
    drop(pool);
    await_nothing(&server).await;
}
