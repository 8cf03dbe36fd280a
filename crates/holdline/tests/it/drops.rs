//! Guards that are dropped where it hurts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use holdline::blocking;
use holdline::clock::Clock;
use holdline::memory::MemoryEngine;
use holdline::observer::Subject;
use holdline::{Client, ClientOptions, Guard, LockOptions, Observer};
use holdline_core::contract::{MAX_HAND_OFF_LEASE, QUEUE_HEARTBEAT};
use tokio::runtime::{Builder, Runtime};

use crate::faulty::{Call, Faulty};
use crate::support::{drive, eventually, locked, name, pass};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime without timers and I/O")
}

/// A lease that is renewed often, and that a busy machine does not lose all the same.
fn often() -> LockOptions {
    LockOptions::default().with_renew_interval(Duration::from_millis(20))
}

/// Looks at a name from outside every runtime.
struct Watcher(blocking::Client);

impl Watcher {
    fn new(table: &str) -> Watcher {
        Watcher(blocking::Client::connect(&format!("memory:{table}")).expect("made"))
    }

    fn is_held(&self) -> bool {
        let seen = self.0.admin().inspect(&name("a")).expect("memory answers");
        seen.is_held() || seen.queue_length > 0
    }

    fn is_freed(&self) {
        eventually("the name is free", || !self.is_held());
    }
}

async fn lock(table: &str) -> Guard {
    let client = Client::connect(&format!("memory:{table}")).await.expect("made");
    client.mutex("a").expect("good").lock().await.expect("free")
}

#[test]
fn in_a_current_thread_runtime() {
    let watcher = Watcher::new("drop-current");
    runtime().block_on(async {
        drop(lock("drop-current").await);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!watcher.is_held(), "the janitor needs no other thread");
    });
}

#[test]
fn outside_any_runtime() {
    let watcher = Watcher::new("drop-outside");
    let client = blocking::Client::connect("memory:drop-outside").expect("made");
    drop(client.mutex("a").expect("good").lock().expect("free"));
    watcher.is_freed();
    // Made in a runtime, dropped outside while that still runs.
    let runtime = Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let guard = runtime.block_on(lock("drop-outside"));
    drop(guard);
    watcher.is_freed();
}

#[test]
fn during_a_panic() {
    let watcher = Watcher::new("drop-panic");
    let client = blocking::Client::connect("memory:drop-panic").expect("made");
    let mutex = client.mutex("a").expect("good");
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _guard = mutex.lock().expect("free");
        panic!("on purpose");
    }));
    assert!(unwound.is_err());
    watcher.is_freed();
    runtime().block_on(async {
        let task = tokio::spawn(async {
            let _guard = lock("drop-panic").await;
            panic!("on purpose");
        });
        assert!(task.await.is_err());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!watcher.is_held());
    });
}

#[test]
fn while_the_runtime_shuts_down() {
    let watcher = Watcher::new("drop-shutdown");
    let runtime = runtime();
    runtime.block_on(async {
        tokio::spawn(async {
            let _guard = lock("drop-shutdown").await;
            std::future::pending::<()>().await;
        });
        // A second one waits in the queue when the runtime goes.
        tokio::spawn(async {
            let _guard = lock("drop-shutdown").await;
        });
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(watcher.is_held());
    });
    drop(runtime);
    watcher.is_freed();
}

#[derive(Default)]
struct Renewals(AtomicUsize);

impl Observer for Renewals {
    fn renewed(&self, _: Subject<'_>, _: Duration) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_guard_that_outlives_its_runtime_is_still_kept() {
    let watcher = Watcher::new("drop-outlive");
    let renewals = Arc::new(Renewals::default());
    let options = ClientOptions::default().with_observer(renewals.clone());
    let runtime = runtime();
    let guard = runtime.block_on(async {
        let client = Client::connect_with("memory:drop-outlive", options).await.expect("made");
        client.mutex_with("a", &often()).expect("fits").lock().await.expect("free")
    });
    drop(runtime);
    let before = renewals.0.load(Ordering::Relaxed);
    eventually("a thread renews", || renewals.0.load(Ordering::Relaxed) >= before + 5);
    assert!(guard.is_valid() && watcher.is_held());
    // It can even be released in another runtime.
    let outcome = self::runtime().block_on(guard.release());
    assert!(outcome.is_released() && !watcher.is_held());
}

struct Panics(AtomicUsize);

impl Observer for Panics {
    fn renewed(&self, _: Subject<'_>, _: Duration) {
        assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 0, "on purpose");
    }
}

#[test]
fn an_observer_that_panics_costs_no_lease() {
    let panics = Arc::new(Panics(AtomicUsize::new(0)));
    let options = ClientOptions::default().with_observer(panics.clone());
    let client = blocking::Client::connect_with("memory:drop-observer", options).expect("made");
    let guard = client.mutex_with("a", &often()).expect("fits").lock().expect("free");
    eventually("it is renewed after the panic", || panics.0.load(Ordering::Relaxed) > 3);
    assert!(guard.is_valid() && guard.release().is_released());
}

#[test]
fn clients_end_their_threads() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("linux");
        tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.trim() == "holdline-worker")
            .count()
    };
    let clients: Vec<_> =
        (0..20).map(|_| blocking::Client::connect("memory:drop-threads").expect("made")).collect();
    assert!(threads() >= 20);
    for client in &clients {
        drop(client.mutex("a").expect("good").lock().expect("free"));
    }
    drop(clients);
    eventually("the threads end", || threads() < 20);
}

#[test]
fn a_future_dropped_outside_any_runtime_leaves_the_queue() {
    let watcher = Watcher::new("drop-future");
    let client = blocking::Client::connect("memory:drop-future").expect("made");
    let mutex = client.as_async().mutex("a").expect("good");
    let first = client.mutex("a").expect("good").lock().expect("free");
    let mut waiting = Box::pin(mutex.lock());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    let queued = || watcher.0.admin().inspect(&name("a")).expect("memory answers").queue_length;
    assert_eq!(queued(), 1);
    drop(waiting);
    eventually("the queue is empty", || queued() == 0);
    assert!(first.release().is_released());
}

#[tokio::test]
async fn a_leaked_future_costs_the_others_one_hand_off_lease() {
    let (engine, clock) = crate::support::engine();
    let faulty = Faulty::new(engine);
    let client = crate::support::client(faulty.clone(), &clock, 1);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let mut leaked = Box::pin(locked(mutex.clone()));
    for _ in 0..10 {
        let polled = select(&mut leaked, Box::pin(tokio::task::yield_now())).await;
        assert!(matches!(polled, Either::Right(_)), "it waits");
    }
    std::mem::forget(leaked);
    let waiter = tokio::spawn(locked(mutex));
    crate::support::settle().await;
    let _ = first.release().await;
    let freed = clock.now();
    let guard = drive(&clock, async { waiter.await.expect("no panic") }).await.expect("next");
    let waited = freed.until(clock.now());
    let limit = MAX_HAND_OFF_LEASE + QUEUE_HEARTBEAT;
    assert!(waited <= limit, "a hand-off and a heartbeat: {waited:?}");
    let _ = guard.release().await;
    pass(&clock, Duration::from_secs(3)).await;
    let beats = faulty.line.count(Call::Beat);
    pass(&clock, Duration::from_secs(10)).await;
    assert_eq!(faulty.line.count(Call::Beat), beats, "a dead id does not send heartbeats for ever");
}

#[test]
fn one_lock_from_many_threads_without_async() {
    let engine: Arc<dyn holdline::engine::Engine> = {
        let clock = holdline::clock::SystemClock::new(holdline::clock::ClockKind::Monotonic)
            .expect("a timer");
        let options = holdline::memory::MemoryOptions::default();
        Arc::new(MemoryEngine::new("threads", Arc::new(clock), &options))
    };
    let inside = AtomicUsize::new(0);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let options = ClientOptions::default();
            let client = blocking::Client::with_options(engine.clone(), options).expect("made");
            let (inside, served) = (&inside, &served);
            scope.spawn(move || {
                let wait = LockOptions::default().with_wait(Duration::from_secs(60));
                let mutex = client.mutex_with("a", &wait).expect("fits");
                for round in 0..100 {
                    let guard = mutex.lock().expect("in the end");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
                    served.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    if (round + n) % 3 == 0 {
                        drop(guard);
                    } else {
                        assert!(guard.release().is_released());
                    }
                }
                assert!(client.shutdown(Duration::from_secs(30)).is_clean());
            });
        }
    });
    assert_eq!(served.load(Ordering::SeqCst), 800);
}
