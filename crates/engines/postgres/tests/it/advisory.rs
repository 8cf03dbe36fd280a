//! Advisory locks against real servers: they exclude the right clients, and leave nothing behind.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fork::{Fork, fork, waitpid};
use holdline::clock::{ClockKind, SystemClock};
use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, ErrorKind, LockError, LockName, LostReason};
use holdline_postgres::{AdvisoryGuard, AdvisoryKey, AdvisoryLock, PostgresOptions};
use holdline_services::{
    PgBouncer, PostgresConfig, PostgresFlavour, PostgresServer, PrivateNetwork,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::support::{drive, engine, eventually, growing, let_go, request, sign_in, take, yields};

/// Longer than any test waits for what it expects.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The advisory locks of the server, with `t` for those that are held; not those of the schema.
pub(crate) const LOCKS: &str = "select classid::bigint, objid::bigint, objsubid, mode, granted \
    from pg_locks where locktype = 'advisory' order by 1, 2, 3, 4, 5";
const OURS: &str = "select count(*) from pg_stat_activity where application_name = 'holdline'";

pub(crate) fn lock_at(url: &str, key: impl Into<AdvisoryKey>) -> AdvisoryLock {
    let options = PostgresOptions::from_url(url).expect("a good URL");
    AdvisoryLock::new(&options, key, Arc::new(MachineClock)).expect("good options")
}

/// A lock whose limits no busy machine meets.
pub(crate) fn lock(server: &PostgresServer, key: impl Into<AdvisoryKey>) -> AdvisoryLock {
    lock_at(&waiting_renewals(&server.url()), key)
}

pub(crate) fn waiting_renewals(url: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}command_timeout_ms=60000&connect_timeout_ms=60000")
}

pub(crate) fn busy(error: &LockError) -> bool {
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    matches!(error.kind(), ErrorKind::Busy { .. })
}

/// Waits until no advisory lock and no connection of ours is left.
pub(crate) async fn await_nothing(server: &PostgresServer) {
    eventually("no lock is left", || server.sql(LOCKS).is_empty()).await;
    eventually("no connection is left", || server.sql(OURS) == ["0"]).await;
}

#[tokio::test]
async fn one_holds_at_a_time_and_tokens_grow() {
    let server = PostgresServer::start(PostgresConfig::default());
    let (one, other) = (lock(&server, 7), lock(&server, 7));
    let held = one.try_lock().await.expect("free");
    assert!(held.is_valid());
    let error = other.try_lock().await.expect_err("held");
    assert!(busy(&error), "{error}");
    assert!(error.to_string().contains("advisory lock 7"), "{error}");
    let error = other.lock(Duration::from_millis(50)).await.expect_err("held");
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(busy(&other.try_lock_shared().await.expect_err("held")));
    let before = held.fencing_token();
    let (next, released) = tokio::join!(other.lock(LONG), async {
        let waits = || server.sql(LOCKS).iter().any(|row| row.ends_with("|f"));
        eventually("a session waits", waits).await;
        held.release().await
    });
    released.expect("released");
    let next = next.expect("its turn");
    assert!(next.fencing_token() > before);
    next.release().await.expect("released");
    drop((one, other));
    await_nothing(&server).await;
}

#[tokio::test]
async fn a_drop_ends_a_connection_with_tls_too() {
    let server = PostgresServer::start(PostgresConfig::default().with_client_certificates());
    let (files, port) = (server.certificates(), server.address().port());
    let (cert, key) = files.client();
    let url = format!(
        "postgres://postgres@localhost:{port}/postgres?sslmode=verify-full&ca={}&cert={}&key={}",
        files.ca().display(),
        cert.display(),
        key.display()
    );
    let lock = lock_at(&waiting_renewals(&url), 1);
    drop(lock.try_lock().await.expect("let in"));
    await_nothing(&server).await;
    lock.lock(LONG).await.expect("free").release().await.expect("released");
    drop(lock);
    await_nothing(&server).await;
}

/// Runs `work` in a forked process, which then exits without cleanup, and returns its result.
pub(crate) fn in_a_copy(work: impl FnOnce() -> bool) -> bool {
    let (mut here, mut there) = UnixStream::pair().expect("a pair");
    match fork().expect("a copy") {
        Fork::Child => {
            let good = catch_unwind(AssertUnwindSafe(work)).unwrap_or(false);
            // No destructor and no handler of the parent's may run here.
            let _ = there.write_all(&[u8::from(good)]);
            let _ = kill_process(getpid(), Signal::KILL);
            unreachable!("killed");
        }
        Fork::Parent(copy) => {
            drop(there);
            let mut reply = Vec::new();
            here.read_to_end(&mut reply).expect("the reply of the copy");
            waitpid(copy).expect("our copy");
            reply == [1]
        }
    }
}

/// The copy's drop ends nothing, and it neither considers itself the holder nor can release.
#[test]
fn a_copy_of_the_process_costs_its_parent_nothing() {
    // In a process of its own: a copy has only the thread that made it.
    let name = "advisory::a_copy_of_the_process_costs_its_parent_nothing";
    let Some(_network) = PrivateNetwork::enter(name) else { return };
    let server = PostgresServer::start(PostgresConfig::default());
    let clock = SystemClock::new(ClockKind::Boottime).expect("a clock");
    let options = PostgresOptions::from_url(&waiting_renewals(&server.url())).expect("a good URL");
    let lock = AdvisoryLock::new(&options, 1, Arc::new(clock)).expect("good options");
    let mut held = Some(drive(lock.try_lock()).expect("free"));
    let copied = in_a_copy(|| {
        let held = held.take().expect("a guard");
        !held.is_valid() && drive(held.release()).is_err()
    });
    assert!(copied, "the copy was the holder, or released");
    let mut held = held.take();
    assert!(in_a_copy(|| held.take().is_some()), "the copy's drop went wrong");
    let held = held.expect("this process has its own");
    assert!(held.is_valid());
    assert_eq!(server.sql(LOCKS).len(), 1);
    drive(held.release()).expect("still ours");
    drop(lock);
    drive(await_nothing(&server));
}

#[tokio::test]
async fn a_newer_server_does_the_same() {
    let server =
        PostgresServer::start(PostgresConfig::default().with_flavour(PostgresFlavour::V18));
    let lock = lock(&server, 7);
    let held = lock.lock(LONG).await.expect("free");
    assert!(busy(&lock.try_lock().await.expect_err("held")));
    let error = lock.lock(Duration::from_millis(50)).await.expect_err("held");
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    // A waiter that is dropped leaves the server's queue too.
    let in_line = eventually("it waits", || server.sql(LOCKS).len() == 2);
    tokio::select! {
        biased;
        done = lock.lock(LONG) => panic!("another session holds it: {done:?}"),
        () = in_line => {}
    }
    eventually("only the holder is left", || server.sql(LOCKS).len() == 1).await;
    held.release().await.expect("released");
    drop(lock);
    await_nothing(&server).await;
}

#[tokio::test]
async fn shared_holders_exclude_only_exclusive_ones() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, (1, -2));
    let (one, two) = (lock.try_lock_shared().await, lock.lock_shared(LONG).await);
    let (one, two) = (one.expect("free"), two.expect("shared"));
    assert!(busy(&lock.try_lock().await.expect_err("shared by others")));
    one.release().await.expect("released");
    assert!(busy(&lock.try_lock().await.expect_err("shared by another")));
    let last = two.fencing_token();
    two.release().await.expect("released");
    let alone = lock.try_lock().await.expect("free");
    assert!(alone.fencing_token() > last);
}

/// What stands in `pg_locks` is what any other program would take.
#[tokio::test]
async fn other_programs_meet_us_by_the_same_numbers() {
    let server = PostgresServer::start(PostgresConfig::default());
    let name = LockName::new("nightly").expect("a good name");
    let of_sqlx = AdvisoryKey::of_sqlx("my first Postgres advisory lock!");
    for (key, call) in [
        (AdvisoryKey::from(-5), "-5".to_owned()),
        (AdvisoryKey::from(i64::MIN), i64::MIN.to_string()),
        (AdvisoryKey::from((i32::MIN, 7)), format!("{}, 7", i32::MIN)),
        (of_sqlx, "-5560419505042474287".to_owned()),
        (AdvisoryKey::of_name(&name), "-270540416679399369".to_owned()),
    ] {
        let lock = lock(&server, key);
        let tried = || server.sql(&format!("select pg_try_advisory_lock({call})"));
        assert_eq!(tried(), ["t"], "{key}");
        let held = lock.lock(LONG).await.expect("free");
        assert_eq!(tried(), ["f"], "{key}");
        held.release().await.expect("released");
        assert_eq!(tried(), ["t"], "{key}");
    }
    // A number and a pair with the same bits are two locks.
    let (one, pair) = (lock(&server, 7), lock(&server, (0, 7)));
    let held = (one.try_lock().await.expect("free"), pair.try_lock().await.expect("free"));
    assert_eq!(server.sql(LOCKS).len(), 2);
    drop(held);
    await_nothing(&server).await;
}

#[tokio::test]
async fn tokens_are_of_one_order_with_those_of_the_table() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let (first, second) = (request("a"), request("b"));
    let before = take(&engine, &first).await;
    let held = lock(&server, 1).try_lock().await.expect("free");
    let after = take(&engine, &second).await;
    assert!(before < held.fencing_token() && held.fencing_token() < after);
    let_go(&engine, &first).await;
}

#[tokio::test]
async fn a_role_with_usage_alone_can_draw_its_token() {
    let server = PostgresServer::start(PostgresConfig::default());
    drop(lock(&server, 1).try_lock().await.expect("the schema is made"));
    server.sql("create role locker login; grant usage on schema holdline to locker");
    server.sql("create role stranger login");
    let held = lock_at(&waiting_renewals(&server.url_of("locker", "postgres")), 2)
        .try_lock()
        .await
        .expect("let in");
    held.release().await.expect("released");
    let refused =
        lock_at(&waiting_renewals(&server.url_of("stranger", "postgres")), 2).try_lock().await;
    let error = refused.expect_err("no right");
    assert!(error.to_string().contains("GRANT USAGE"), "{error}");
    await_nothing(&server).await;
}

#[tokio::test]
async fn a_pooler_is_refused() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start(&server, 2);
    for wait in [None, Some(LONG)] {
        let lock = lock_at(&waiting_renewals(&pooler.url()), 1);
        let error = match wait {
            None => lock.try_lock().await,
            Some(wait) => lock.lock(wait).await,
        }
        .expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.to_string().contains("name the server itself"), "{error}");
    }
    assert!(server.sql(LOCKS).is_empty());
}

#[tokio::test]
async fn a_lock_is_lost_with_its_connection_and_the_holder_is_notified() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, 1);
    let held = lock.try_lock().await.expect("free");
    let first = held.fencing_token();
    let (reason, next) = tokio::join!(held.lost(), async {
        let next = lock.lock(LONG);
        let end = "select pg_terminate_backend(pid) from pg_locks \
            where locktype = 'advisory' and granted";
        let (next, _) = tokio::join!(next, async { server.sql(end) });
        next
    });
    assert!(matches!(reason, LostReason::StoreGone(_)), "{reason:?}");
    assert!(!held.is_valid());
    let error = held.release().await.expect_err("lost");
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    assert!(next.expect("free again").fencing_token() > first);
    // A crash of the server ends every lock, and takes no token back.
    let held = lock.try_lock().await.expect("free");
    let before = held.fencing_token();
    server.crash();
    held.lost().await;
    server.restart();
    assert!(lock.lock(LONG).await.expect("free").fencing_token() > before);
}

/// A sequence reserves 32 numbers by one record of the log, and its commit may not be flushed.
#[tokio::test]
async fn a_crash_reissues_no_token_that_another_session_had_reserved() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock_at(&server.url(), 7);
    lock.try_lock().await.expect("free").release().await.expect("released");
    server.sql("alter system set wal_writer_delay = '10s'");
    server.sql("select pg_reload_conf()");
    let reserve = "set synchronous_commit = off; \
        select max(nextval('holdline.fence')) from generate_series(1, 40)";
    server.sql(reserve);
    let held = lock.try_lock().await.expect("free");
    let before = held.fencing_token();
    server.crash();
    held.lost().await;
    server.restart();
    assert!(lock.lock(LONG).await.expect("free").fencing_token() > before);
}

/// `holdline fence bump` keeps others from drawing tokens; so may an `ALTER SEQUENCE`.
#[tokio::test]
async fn a_free_lock_whose_token_cannot_be_drawn_is_not_busy() {
    let server = PostgresServer::start(PostgresConfig::default());
    let waiting_renewals = lock(&server, 1);
    drop(waiting_renewals.try_lock().await.expect("the schema is made"));
    let raises = sign_in(server.address(), "postgres").await;
    let raise = "begin; alter sequence holdline.fence no cycle";
    raises.batch_execute(raise).await.expect("altered");
    let hasty = format!("{}?command_timeout_ms=5000&connect_timeout_ms=60000", server.url());
    let hasty = lock_at(&hasty, 1);
    for wait in [None, Some(Duration::from_millis(50))] {
        let error = match wait {
            None => hasty.try_lock().await,
            Some(wait) => hasty.lock(wait).await,
        }
        .expect_err("no token");
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
        assert!(error.to_string().contains("no fencing token"), "{error}");
        await_nothing(&server).await;
    }
    // A waiter gets it when the fence is raised.
    let waiting = "select count(*) from pg_locks where not granted and locktype = 'relation'";
    let (held, ()) = tokio::join!(waiting_renewals.lock(LONG), async {
        eventually("it waits for its token", || server.sql(waiting) == ["1"]).await;
        raises.batch_execute("commit").await.expect("raised");
    });
    held.expect("free").release().await.expect("released");
    drop(waiting_renewals);
    await_nothing(&server).await;
}

#[tokio::test]
async fn a_server_that_stands_still_costs_a_limit_and_nothing_is_left() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=300&connect_timeout_ms=300", server.url());
    let hasty = lock_at(&url, 1);
    let held = loop {
        // A slow machine may need longer to connect than this test allows.
        if let Ok(held) = hasty.lock(LONG).await {
            break held;
        }
    };
    server.stop();
    let error = hasty.try_lock().await.expect_err("no answer");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    let error = held.release().await.expect_err("no answer");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error}");
    server.cont();
    await_nothing(&server).await;
}

#[tokio::test]
async fn a_dropped_guard_frees_the_lock() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, 1);
    for _ in 0..5 {
        drop(lock.lock(LONG).await.expect("free"));
    }
    let held = lock.lock(LONG).await.expect("free");
    let panics = tokio::spawn(async move {
        let _held = held;
        panic!("on purpose");
    });
    assert!(panics.await.is_err());
    await_nothing(&server).await;
}

/// Nobody drives the runtime that the connection lives in, and yet a drop ends it.
#[test]
fn a_drop_needs_no_runtime() {
    let server = PostgresServer::start(PostgresConfig::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let lock = lock(&server, 1);
    let held = runtime.block_on(lock.try_lock()).expect("free");
    drop(held);
    drive(await_nothing(&server));
    // The end of the runtime ends the lock, and the guard is notified.
    let held = runtime.block_on(lock.try_lock()).expect("free");
    drop(runtime);
    drive(await_nothing(&server));
    assert!(!held.is_valid());
    assert!(matches!(drive(held.lost()), LostReason::StoreGone(_)));
    // Outside of any runtime, on the thread of the process.
    let clock = SystemClock::new(ClockKind::Boottime).expect("a clock");
    let options = PostgresOptions::from_url(&waiting_renewals(&server.url())).expect("a good URL");
    let lock = AdvisoryLock::new(&options, 1, Arc::new(clock)).expect("good options");
    let held = drive(lock.try_lock()).expect("free");
    assert_eq!(server.sql(LOCKS).len(), 1);
    drive(held.release()).expect("released");
    drop(lock);
    drive(await_nothing(&server));
}

#[tokio::test]
async fn an_attempt_can_be_dropped_at_every_await() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, 1);
    let (mut dropped, mut finished) = (0, 0);
    for times in growing() {
        let took: Option<Result<AdvisoryGuard, LockError>> = tokio::select! {
            biased;
            done = lock.try_lock() => Some(done),
            () = yields(times) => None,
        };
        match took {
            Some(done) => {
                drop(done.expect("free"));
                finished += 1;
            }
            None => dropped += 1,
        }
        await_nothing(&server).await;
        if finished == 3 {
            break;
        }
    }
    assert!(dropped > 3, "only {dropped} were dropped");
}

/// Another session holds it: a dropped waiter may have been in the server's queue.
#[tokio::test]
async fn a_waiter_can_be_dropped_at_every_await() {
    let server = PostgresServer::start(PostgresConfig::default());
    let lock = lock(&server, 1);
    let held = lock.try_lock().await.expect("free");
    let alone = || server.sql(LOCKS).len() == 1 && server.sql(OURS) == ["1"];
    let mut seen_waiting = 0;
    for times in growing() {
        tokio::select! {
            biased;
            done = lock.lock(LONG) => panic!("another session holds it: {done:?}"),
            () = yields(times) => {}
        }
        seen_waiting += usize::from(server.sql(LOCKS).len() == 2);
        eventually("only the holder is left", alone).await;
        if seen_waiting == 1 {
            break;
        }
    }
    // Seen in the queue, and then dropped.
    let in_line = eventually("it waits", || server.sql(LOCKS).len() == 2);
    tokio::select! {
        biased;
        done = lock.lock_shared(LONG) => panic!("another session holds it: {done:?}"),
        () = in_line => {}
    }
    eventually("only the holder is left", alone).await;
    held.release().await.expect("released");
    drop(lock);
    await_nothing(&server).await;
}
