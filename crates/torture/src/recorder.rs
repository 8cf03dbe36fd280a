//! Records what contenders see through the library, for the checker.
//!
//! All recorders of a machine use its `CLOCK_BOOTTIME`, so that the events of many processes make
//! one history. The order of reading the clock and acting follows the rule that errors only shorten
//! what is certain (invariant V1 of [`crate::checker::event`]).

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdline::clock::SystemClock;
use holdline::observer::Subject;
use holdline::{Guard, Observer};
use holdline_core::{
    Clock, ClockKind, FencingToken, HolderSummary, LockName, Mode, Moment, ShortLeaseId,
};

use crate::checker::{Event, Seen};

/// Where events go.
type Sink = Box<dyn Fn(Event) + Send + Sync>;

/// Stamps what contenders see, and passes it on.
pub struct Recorder {
    clock: SystemClock,
    sink: Sink,
    attempts: Mutex<KnownAttempts>,
}

/// What the recorder knows of attempts, so that it can record when they were queued.
#[derive(Default)]
struct KnownAttempts {
    /// When a lease id was first known to be queued.
    queued: HashMap<ShortLeaseId, Moment>,
    /// The one attempt of this process for a name, where there is only one at a time.
    alone: HashMap<LockName, u64>,
}

impl Recorder {
    /// Makes a recorder that passes events on to `sink`.
    ///
    /// # Errors
    /// The machine gives no timer.
    pub fn new(sink: impl Fn(Event) + Send + Sync + 'static) -> io::Result<Recorder> {
        let clock = SystemClock::new(ClockKind::Boottime)?;
        Ok(Recorder { clock, sink: Box::new(sink), attempts: Mutex::default() })
    }

    /// Reads the clock that stamps all events.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Notes that an attempt is about to begin.
    pub fn called(&self, attempt: u64, name: &LockName, mode: Mode) {
        self.pass(attempt, Seen::Called { name: name.clone(), mode });
    }

    /// Marks this as the only attempt for the name on this recorder, so that it can be recorded as
    /// queued at once and not only with the grant.
    pub fn alone(&self, attempt: u64, name: &LockName) {
        self.attempts().alone.insert(name.clone(), attempt);
    }

    /// Records a grant and its validity.
    pub fn granted(&self, attempt: u64, guard: &Guard) {
        let queued = {
            let mut attempts = self.attempts();
            let at = attempts.queued.remove(&guard.lease_id().short());
            at.filter(|_| attempts.alone.get(guard.name()) != Some(&attempt))
        };
        if let Some(at) = queued {
            (self.sink)(Event { at, attempt, seen: Seen::Queued });
        }
        let token = guard.fencing_token();
        let (at, valid_until) = self.believed(guard);
        // The grant is known from now on, which is after the clock was read for its validity.
        let at = at.max(self.now());
        (self.sink)(Event { at, attempt, seen: Seen::Granted { token, valid_until } });
    }

    /// Records the current validity of a grant.
    pub fn renewed(&self, attempt: u64, guard: &Guard) {
        let (at, valid_until) = self.believed(guard);
        if guard.is_valid() {
            (self.sink)(Event { at, attempt, seen: Seen::Renewed { valid_until } });
        }
    }

    /// Reads the clock, and then how long the grant is valid: too short by the time in
    /// between, never too long.
    fn believed(&self, guard: &Guard) -> (Moment, Moment) {
        let at = self.now();
        (at, at.after(guard.remaining()))
    }

    /// Notes that a release is about to leave.
    pub fn released(&self, attempt: u64) {
        self.pass(attempt, Seen::Released);
    }

    /// Records that the holder was notified of its loss.
    pub fn lost(&self, attempt: u64) {
        self.pass(attempt, Seen::Lost);
    }

    /// Notes that an attempt ended without a grant.
    pub fn failed(&self, attempt: u64) {
        self.pass(attempt, Seen::Failed);
    }

    /// Notes what a resource answered to a write that left at `sent`.
    pub fn wrote(&self, attempt: u64, sent: Moment, token: FencingToken, accepted: bool) {
        self.pass(attempt, Seen::Wrote { sent, token, accepted });
    }

    fn pass(&self, attempt: u64, seen: Seen) {
        (self.sink)(Event { at: self.now(), attempt, seen });
    }

    fn attempts(&self) -> MutexGuard<'_, KnownAttempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn queued(
        &self,
        subject: Subject<'_>,
        _position: Option<usize>,
        _holder: Option<&HolderSummary>,
    ) {
        let at = self.now();
        let attempt = {
            let mut attempts = self.attempts();
            if attempts.queued.contains_key(&subject.lease_id) {
                return;
            }
            attempts.queued.insert(subject.lease_id, at);
            attempts.alone.get(subject.name).copied()
        };
        if let Some(attempt) = attempt {
            (self.sink)(Event { at, attempt, seen: Seen::Queued });
        }
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}
