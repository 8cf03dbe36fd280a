//! What the tests share.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdline::admin::Snapshot;
use holdline::clock::{Clock, ManualClock};
use holdline::engine::{Engine, Entropy};
use holdline::memory::{MemoryEngine, MemoryOptions};
use holdline::{Client, ClientOptions, Guard, LockError, LockName, Mutex};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Random bytes that are the same in every run.
pub(crate) struct Seeded(StdRng);

impl Seeded {
    pub(crate) fn new(seed: u64) -> Seeded {
        Seeded(StdRng::seed_from_u64(seed))
    }
}

impl Entropy for Seeded {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

/// An engine and a clock that only the test moves.
pub(crate) fn engine() -> (MemoryEngine, ManualClock) {
    let clock = ManualClock::new();
    let engine = MemoryEngine::new("test", Arc::new(clock.clone()), &MemoryOptions::default());
    (engine, clock)
}

pub(crate) fn options(clock: &ManualClock, seed: u64) -> ClientOptions {
    ClientOptions::default().with_clock(Arc::new(clock.clone())).with_entropy(Seeded::new(seed))
}

/// Makes a client of an engine, with a clock that only the test moves.
pub(crate) fn client(engine: impl Engine, clock: &ManualClock, seed: u64) -> Client {
    Client::with_options(Arc::new(engine), options(clock, seed)).expect("a client")
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

pub(crate) async fn look(client: &Client, text: &str) -> Snapshot {
    client.admin().inspect(&name(text)).await.expect("memory answers")
}

/// Locks, in a future that borrows nothing and so can be a task of its own.
pub(crate) async fn locked(mutex: Mutex) -> Result<Guard, LockError> {
    mutex.lock().await
}

/// Lets the other tasks of a current-thread runtime do all they can.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

/// Moves the clock in small steps, and lets everybody react to each.
pub(crate) async fn pass(clock: &ManualClock, time: Duration) {
    let step = Duration::from_millis(100);
    let mut left = time;
    while !left.is_zero() {
        let now = left.min(step);
        clock.advance(now);
        settle().await;
        left -= now;
    }
}

/// Drives a task to its end, and moves the clock whenever everybody sleeps.
pub(crate) async fn drive<T: Send + 'static>(
    clock: &ManualClock,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let task = tokio::spawn(future);
    for _ in 0..200_000 {
        settle().await;
        if task.is_finished() {
            return task.await.expect("no panic");
        }
        let at = clock.next_wake().expect("somebody sleeps: nothing else could go on");
        clock.advance(clock.now().until(at));
    }
    panic!("no end after 200,000 wake-ups");
}

/// Waits until a condition holds that other threads make true, in real time.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    // Shorter than a lease, which would end by itself what somebody forgot to end.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "{what} within 20 s");
        std::thread::sleep(Duration::from_millis(1)); // event: other threads act, and notify nobody
    }
}

/// Waits for something that must come, in real time.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it comes within 20 s")
}
