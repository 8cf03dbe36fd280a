//! Detects stalls of this process or of the store. On a real clock, a case must be carried out
//! within about a lease; a case that was not proves nothing, and is run again.
//! `run` does so.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
pub(crate) fn seen() -> usize {
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
