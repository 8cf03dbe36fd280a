//! What can be set for a job that runs once per slot.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::plan::options::LockOptions;

/// By how much the clocks of two machines may differ unless set.
const MAX_SKEW: Duration = Duration::from_secs(1);

/// The machine's time of day.
pub(crate) type WallClock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What can be set for a job that runs once per slot. It is checked by
/// [`Client::once_with`](crate::Client::once_with).
#[derive(Clone)]
pub struct OnceOptions {
    pub(crate) at_most_once: bool,
    pub(crate) keep_on_failure: bool,
    pub(crate) retries: u32,
    pub(crate) max_skew: Duration,
    pub(crate) lock: LockOptions,
    pub(crate) wall_clock: WallClock,
}

impl Default for OnceOptions {
    fn default() -> OnceOptions {
        OnceOptions {
            at_most_once: false,
            keep_on_failure: false,
            retries: 0,
            max_skew: MAX_SKEW,
            lock: LockOptions::default(),
            wall_clock: Arc::new(SystemTime::now),
        }
    }
}

impl OnceOptions {
    /// Keeps the slot from before the job starts until its end, whatever becomes of the job: if the
    /// machine dies or the job fails, nobody runs it again in this slot. Without it, the slot is
    /// free again when the lease of a dead machine ends, and another machine may run a job that
    /// was half done.
    #[must_use]
    pub fn with_at_most_once(mut self, at_most_once: bool) -> OnceOptions {
        self.at_most_once = at_most_once;
        self
    }

    /// Keeps the slot also when the job fails. Without it, another machine may try.
    #[must_use]
    pub fn with_keep_on_failure(mut self, keep_on_failure: bool) -> OnceOptions {
        self.keep_on_failure = keep_on_failure;
        self
    }

    /// Sets how often [`Once::run`](crate::Once::run) runs a job again that failed; never unless
    /// set.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> OnceOptions {
        self.retries = retries;
        self
    }

    /// Sets by how much the clocks of two machines may differ; 1 s unless set, and at most a
    /// quarter of the slot. A start this close before the next slot belongs to the next slot.
    #[must_use]
    pub fn with_max_skew(mut self, max_skew: Duration) -> OnceOptions {
        self.max_skew = max_skew;
        self
    }

    /// Sets the options of the lock. Its wait limit is how long a start waits for the end of a job
    /// that runs elsewhere, for ever unless set; its lease is what a dead machine keeps the slot
    /// for.
    #[must_use]
    pub fn with_lock(mut self, lock: LockOptions) -> OnceOptions {
        self.lock = lock;
        self
    }

    /// Sets the clock that gives the time of day; the machine's own unless set. For tests.
    #[must_use]
    pub fn with_wall_clock(
        mut self,
        wall_clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> OnceOptions {
        self.wall_clock = Arc::new(wall_clock);
        self
    }
}

crate::debug::debug_of!(OnceOptions, |it|
    at_most_once: it.at_most_once, keep_on_failure: it.keep_on_failure, retries: it.retries,
    max_skew: it.max_skew, lock: it.lock
);
