//! Scenarios that a machine which stands still can spoil.
//!
//! A queue drops whoever was silent for some seconds, a claim comes too late after its window: that
//! is how a store is to treat a process that stands still, and it spoils what a test wants to show
//! of those who do not. Such a scenario begins anew, but only if this process did stand still: a
//! fault fails the first try on a machine that is well.
//!
//! Read next: `tests/it/steady.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a scenario begins.
const TRIES: usize = 5;
/// How long a look at the clock is late when this process stood still.
const STILL: Duration = Duration::from_millis(400);
/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a scenario; a panic of one in which this process stood still for a while counts for
/// nothing, up to five times.
///
/// # Panics
/// As the scenario does, when nothing excuses it.
pub fn steady<T>(mut scenario: impl FnMut() -> T) -> T {
    for _ in 1..TRIES {
        let (outcome, longest) = watched(|| catch_unwind(AssertUnwindSafe(&mut scenario)));
        match outcome {
            Ok(done) => return done,
            Err(panic) if longest < STILL => resume_unwind(panic),
            Err(_) => println!("this process stood still for {longest:?}: once more"),
        }
    }
    scenario()
}

/// Runs something; tells for how long at most this process stood still meanwhile.
fn watched<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let (over, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    // Not by the watcher itself, which may begin to run late.
    let begun = Instant::now();
    let outcome = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut before = begun;
            while !over.load(Ordering::Acquire) {
                thread::park_timeout(LOOK);
                let late = before.elapsed().saturating_sub(LOOK).as_nanos();
                longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
                before = Instant::now();
            }
        });
        let outcome = work();
        over.store(true, Ordering::Release);
        watcher.thread().unpark();
        outcome
    });
    (outcome, Duration::from_nanos(longest.into_inner()))
}
