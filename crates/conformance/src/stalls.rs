//! Detects stalls of this process or of the store. On a real clock, a case must be carried out
//! within about a lease; a case that was not proves nothing, and is run again.
//!
//! Invariant: a failed case is run again only if there was a stall, and only a limited number of
//! times. A real fault fails each time.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::factory::BoxFuture;
use crate::report::{Row, Status};

/// How often a case begins.
const TRIES: usize = 5;
/// The time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(20);
/// How late a timer is after a stall: a part of the shortest lease of a case.
const STILL: Duration = Duration::from_millis(150);

static SEEN: AtomicUsize = AtomicUsize::new(0);

/// Notes how long something took that was due after `due`.
pub(crate) fn note(began: Instant, due: Duration) {
    if began.elapsed() > due.saturating_add(STILL) {
        SEEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns how many stalls there were since the first call.
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

/// Runs one row of the report, again if there was a stall while it failed.
pub(crate) async fn unspoilt(
    mut bench: Bench,
    run: impl Fn(Bench) -> BoxFuture<'static, Row>,
) -> Row {
    for _ in 1..TRIES {
        let before = seen();
        let row = run(bench.clone()).await;
        if !is_spoilt(&row.status, seen() > before, bench.time().is_manual()) {
            return row;
        }
        // Under unused names.
        match Bench::open(bench.factory().clone()).await {
            Ok(fresh) => bench = fresh,
            Err(_) => return row,
        }
    }
    run(bench).await
}

fn is_spoilt(status: &Status, stood_still: bool, manual: bool) -> bool {
    matches!(status, Status::Failed(_)) && stood_still && !manual
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
