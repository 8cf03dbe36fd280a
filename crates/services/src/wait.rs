//! Waiting for what can only be looked at: another process, a file, a socket.

use std::time::{Duration, Instant};

/// How long anything in the test ground may take. Generous: the machine may be busy.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(2);

/// Looks until `seen` returns something; none if `limit` has passed.
pub(crate) fn until<T>(limit: Duration, mut seen: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(what) = seen() {
            return Some(what);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}
