//! Scenarios that a paused machine can spoil.
//!
//! A store removes a waiter that was silent for some seconds, and ends a hand-off that was not
//! extended. That is right for a paused process, and spoils a test about running ones. Such a
//! scenario is run again, but only if this process was paused: otherwise a fault fails the first
//! try.
//!
//! Read next: `tests/it/steady.rs`.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often a scenario begins.
const TRIES: usize = 5;
/// How late a timer is if this process was paused.
const STILL: Duration = Duration::from_millis(400);
/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a scenario; a panic of one in which this process was paused for a while counts for
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
            Err(_) => println!("this process was paused for {longest:?}: once more"),
        }
    }
    scenario()
}

/// Runs something; returns the longest pause of this process meanwhile.
fn watched<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let over = AtomicBool::new(false);
    let longest = AtomicU64::new(0);
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
