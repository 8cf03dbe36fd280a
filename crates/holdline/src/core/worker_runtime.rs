//! The runtime in which the requests of a client are polled if their caller has none.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// How often a thread takes over before the client's leases are left to expire. Only a worker that
/// keeps panicking reaches this.
const MAX_TAKE_OVERS: u32 = 8;

/// The runtime of a client's background work.
#[derive(Default)]
pub(crate) struct WorkerRuntime {
    handle: Mutex<Option<Handle>>,
    take_overs: AtomicU32,
}

impl WorkerRuntime {
    /// Runs `poll` inside a runtime: the caller's, or the worker's if there is none.
    pub(crate) fn within<T>(&self, poll: impl FnOnce() -> T) -> T {
        if Handle::try_current().is_ok() {
            return poll();
        }
        let handle = self.handle.lock().clone();
        let _entered = handle.as_ref().map(Handle::enter);
        poll()
    }

    /// Records the runtime in which the worker runs.
    pub(crate) fn set(&self, handle: Handle) {
        *self.handle.lock() = Some(handle);
    }

    /// Returns whether a thread may take the work over once more, and counts that.
    pub(crate) fn may_take_over(&self) -> bool {
        self.take_overs.fetch_add(1, Ordering::Relaxed) < MAX_TAKE_OVERS
    }
}
