//! What a client is made of.
//!
//! [`Shared`] is what the worker needs; it lives as long as there is something to look after.
//! [`Core`] is what users hold: locks, guards and clients. When the last one is gone the worker
//! gives up what is left and ends.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::contract::{MAX_CLAIM_WINDOW, MIN_CLAIM_WINDOW, QUEUE_HEARTBEAT};
use holdline_core::snapshot::coarse;
use holdline_core::{
    Answer, Certainty, ClientId, Clock, Engine, ErrorKind, HolderFields, LockError, Moment,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::acquire::Lines;
use crate::class::Classes;
use crate::entropy::Source;
use crate::grant::Grant;
use crate::home::Home;
use crate::observer::{HoldEnd, Observer};
use crate::owner::Nests;
use crate::registry::Registry;

/// What the worker of a client needs.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Source,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) client: ClientId,
    pub(crate) drift_ppm: u32,
    /// How long one request may go unanswered.
    pub(crate) answer_within: Duration,
    pub(crate) registry: Mutex<Registry>,
    /// Wakes the worker.
    pub(crate) bell: Notify,
    /// Tells `shutdown` that something was given up.
    pub(crate) drained: Notify,
    pub(crate) home: Home,
    pub(crate) counters: Counters,
    pub(crate) lines: Arc<Lines>,
    /// The process that made the client.
    pid: AtomicU32,
    /// No new attempt begins.
    pub(crate) closing: AtomicBool,
    round_trip: AtomicU64,
    /// A bug for the simulation to find.
    #[cfg(feature = "planted")]
    pub(crate) counts_from_reply: AtomicBool,
}

/// What the janitor has done.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) dropped: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) untold: AtomicU64,
}

/// What a [`Shared`] is made of.
pub(crate) struct Parts {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Source,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) drift_ppm: u32,
    pub(crate) answer_within: Duration,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Shared {
        let client = parts.entropy.client_id();
        Shared {
            engine: parts.engine,
            clock: parts.clock,
            entropy: parts.entropy,
            observer: parts.observer,
            client,
            drift_ppm: parts.drift_ppm,
            answer_within: parts.answer_within,
            registry: Mutex::default(),
            bell: Notify::new(),
            drained: Notify::new(),
            home: Home::default(),
            counters: Counters::default(),
            lines: Arc::default(),
            pid: AtomicU32::new(std::process::id()),
            closing: AtomicBool::new(false),
            round_trip: AtomicU64::new(0),
            #[cfg(feature = "planted")]
            counts_from_reply: AtomicBool::new(false),
        }
    }

    /// Tells whether this is the process that made the client. A forked child has the memory of
    /// its parent, but none of its threads and no right to its leases.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// Tells whether a lease may be believed here and now: never in a forked copy.
    pub(crate) fn believes(&self, grant: &Grant) -> bool {
        // The clock first: it costs less than the system call.
        grant.is_valid(self.clock.now()) && self.is_own_process()
    }

    /// Returns until when a lease may be believed here.
    pub(crate) fn valid_until(&self, grant: &Grant) -> Moment {
        if self.is_own_process() { grant.valid_until() } else { Moment::ORIGIN }
    }

    /// Makes this process look like a forked child of the one that made the client.
    #[cfg(test)]
    pub(crate) fn pretend_fork(&self, forked: bool) {
        let pid = if forked { 0 } else { std::process::id() };
        self.pid.store(pid, Ordering::Relaxed);
    }

    pub(crate) fn ring(&self, ring: bool) {
        if ring {
            self.bell.notify_one();
        }
    }

    /// Tells the observer, if there is one. Its panic is its own affair: it must not end the
    /// keeper, nor an attempt half-way.
    pub(crate) fn observe(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer
            && catch_unwind(AssertUnwindSafe(|| tell(&**observer))).is_err()
        {
            tracing::error!("an observer panicked");
        }
    }

    /// Tells the observer that a lock is held.
    pub(crate) fn observe_acquired(&self, grant: &Grant, waited: Duration) {
        self.observe(|observer| {
            grant.observe_begin();
            observer.acquired(grant.subject(), grant.token, waited);
        });
    }

    /// Tells the observer that a hold has ended, unless it knows.
    pub(crate) fn observe_end(&self, grant: &Grant, end: impl FnOnce() -> HoldEnd) {
        self.observe(|observer| {
            if grant.observe_end() {
                let held_for = grant.since.until(self.clock.now());
                observer.ended(grant.subject(), &end(), held_for);
            }
        });
    }

    /// Returns how long a hand-off waits for this client's claim: four round trips, and two
    /// heartbeats at least. When a hint is lost it is the heartbeat that finds the hand-off, up to
    /// a whole interval late; a window of one interval would be over just then.
    pub(crate) fn claim_window(&self) -> Duration {
        let round_trip = Duration::from_nanos(self.round_trip.load(Ordering::Relaxed));
        (round_trip * 4).max(QUEUE_HEARTBEAT * 2).clamp(MIN_CLAIM_WINDOW, MAX_CLAIM_WINDOW)
    }

    /// Waits for an answer until `limit`; `None` when it did not come.
    ///
    /// The engine is always polled inside a runtime: the caller's, or else the worker's.
    pub(crate) async fn answered<T>(&self, answer: Answer<'_, T>, limit: Moment) -> Option<T> {
        match answer {
            Answer::Ready(answer) => answer,
            Answer::Later(_) if !self.is_own_process() => None,
            Answer::Later(future) => self.answered_here(future, self.clock.now(), limit).await,
        }
    }

    /// Does the same where the process is known to be our own, and the clock was just read.
    pub(crate) async fn answered_here<T>(
        &self,
        mut future: Boxed<'_, T>,
        sent: Moment,
        limit: Moment,
    ) -> Option<T> {
        let mut timer = None;
        let mut wait = std::pin::pin!(poll_fn(|context| {
            let polled = self.home.within(|| future.as_mut().poll(context));
            if polled.is_ready() {
                return polled.map(Some);
            }
            let timer = timer.get_or_insert_with(|| self.clock.sleep_until(limit));
            timer.as_mut().poll(context).map(|()| None)
        }));
        let answer = wait.as_mut().await;
        self.note_round_trip(sent.until(self.clock.now()));
        answer
    }

    /// Returns from when a reply's duration counts: from just before its request left.
    pub(crate) fn counts_from(&self, sent: Moment) -> Moment {
        #[cfg(feature = "planted")]
        if self.counts_from_reply.load(Ordering::Relaxed) {
            return self.clock.now();
        }
        sent
    }

    /// Keeps the longest of the last round trips, which fades.
    fn note_round_trip(&self, taken: Duration) {
        let taken = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        let before = self.round_trip.load(Ordering::Relaxed);
        self.round_trip.store(taken.max(before - before / 8), Ordering::Relaxed);
    }

    /// Returns until when a request that leaves now may go unanswered.
    pub(crate) fn limit(&self) -> Moment {
        self.clock.now().after(self.answer_within)
    }

    /// Waits for an answer that tells nothing by not coming.
    pub(crate) async fn answer<T>(
        &self,
        answer: Answer<'_, Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let limit = self.limit();
        match self.answered(answer, limit).await {
            Some(answer) => answer,
            None => Err(self.no_answer()),
        }
    }

    /// Makes the error for a request that went unanswered as long as an answer may take.
    pub(crate) fn no_answer(&self) -> LockError {
        self.nothing_within(self.answer_within)
    }

    /// Makes the error for a request that went unanswered for this long.
    pub(crate) fn nothing_within(&self, waited: Duration) -> LockError {
        if !self.is_own_process() {
            let message = "it was made by the parent process: make a new client after a fork";
            return LockError::invalid(self.engine.capabilities().engine, "client", message);
        }
        let message = format!("nothing within {}", coarse(waited));
        self.error(ErrorKind::Unavailable { message }, Certainty::Unknown)
    }

    pub(crate) fn error(&self, kind: ErrorKind, certainty: Certainty) -> LockError {
        LockError::new(self.engine.capabilities().engine, kind, certainty)
    }
}

/// What users hold.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) holder: HolderFields,
    pub(crate) lease_duration: Duration,
    pub(crate) nests: Nests,
    pub(crate) classes: Classes,
}

impl Core {
    /// Checks that an attempt may begin.
    pub(crate) fn open(&self) -> Result<(), LockError> {
        if self.shared.closing.load(Ordering::Relaxed) {
            return Err(self.shared.error(ErrorKind::Cancelled, Certainty::NotApplied));
        }
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.shared.is_own_process() {
            self.shared.registry.lock().abandoned = true;
            self.shared.ring(true);
        }
    }
}

/// Lets the worker's and the caller's futures be named as one type.
pub(crate) type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
