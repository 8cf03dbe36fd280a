//! How often this process, or the store, stood still. On a clock that moves by itself a case counts
//! on being carried out within a lease or so; one that was not proves nothing, and begins anew.
//!
//! Invariant: a case that fails is run again only if something stood still meanwhile, and only so
//! often. A fault fails each time.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::factory::BoxFuture;
use crate::report::{Line, Status};

/// How often a case begins.
const TRIES: usize = 5;
/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(20);
/// How late a look is when this process stood still: a part of the shortest lease of a case.
const STILL: Duration = Duration::from_millis(150);

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Notes how long something took that was due after `due`.
pub(crate) fn note(began: Instant, due: Duration) {
    if began.elapsed() > due.saturating_add(STILL) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns how often something stood still since the first call.
fn seen() -> usize {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // Without the thread a case is only run once.
        let _ = thread::Builder::new().name("stalls".into()).spawn(|| {
            loop {
                let before = Instant::now();
                thread::sleep(LOOK); // event: how late this returns is what is looked at
                note(before, LOOK);
            }
        });
    });
    SEEN.load(Ordering::Relaxed)
}

/// Runs one line of the report, again where this process stood still while it failed.
pub(crate) async fn unspoilt(
    mut bench: Bench,
    run: impl Fn(Bench) -> BoxFuture<'static, Line>,
) -> Line {
    for _ in 1..TRIES {
        let before = seen();
        let line = run(bench.clone()).await;
        if !is_spoilt(&line.status, seen() > before, bench.time().is_hand_driven()) {
            return line;
        }
        // Under names that nobody has used.
        match Bench::open(bench.factory().clone()).await {
            Ok(fresh) => bench = fresh,
            Err(_) => return line,
        }
    }
    run(bench).await
}

fn is_spoilt(status: &Status, stood_still: bool, hand_driven: bool) -> bool {
    matches!(status, Status::Failed(_)) && stood_still && !hand_driven
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_in_real_time_of_a_process_that_stood_still_is_run_again() {
        let failed = Status::Failed("late".into());
        assert!(is_spoilt(&failed, true, false));
        assert!(!is_spoilt(&failed, false, false));
        assert!(!is_spoilt(&failed, true, true));
        assert!(!is_spoilt(&Status::Ran(String::new()), true, false));
    }
}
