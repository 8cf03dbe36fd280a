//! The parts of a client.
//!
//! The worker uses [`ClientState`], which lives as long as there is background work. Locks, guards
//! and clients have a [`Core`]. When the last one is dropped, the worker gives up what is left and
//! ends.
//! Read next: `registry`, the schedule of the background work; `own_waiters` and `local_queues`,
//! the attempts of this client; `nests`, the grants of owners.

pub(crate) mod entropy;
pub(crate) mod final_errors;
pub(crate) mod local_queues;
pub(crate) mod nests;
pub(crate) mod own_waiters;
pub(crate) mod queue_cell;
pub(crate) mod registry;
pub(crate) mod worker_runtime;

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_core::future::BoxFuture;
use holdline_core::snapshot::coarse;
use holdline_core::{
    Answer, Certainty, ClientId, Clock, Engine, ErrorKind, HealthFeed, HolderFields, LockError,
    LockName, LostReason, Mode, Moment, ReleaseReply, RenewReply, RenewRequest,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::grant::Grant;
use crate::observer::class::Classes;
use crate::observer::{HoldEnd, Observer};
use crate::plan::options::LockOptions;
use crate::plan::{Defaults, Plan};
use crate::spans;
use entropy::Source;
use local_queues::LocalQueues;
use nests::Nests;
use own_waiters::OwnWaiters;
use registry::Registry;
use worker_runtime::WorkerRuntime;

/// What the worker of a client needs.
pub(crate) struct ClientState {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Source,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) client: ClientId,
    pub(crate) drift_ppm: u32,
    /// How long a request may go unanswered.
    pub(crate) answer_within: Duration,
    pub(crate) registry: Mutex<Registry>,
    /// Wakes the worker.
    pub(crate) wakeup: Notify,
    /// Notifies `shutdown` that something was given up.
    pub(crate) drained: Notify,
    pub(crate) runtime: WorkerRuntime,
    /// What the worker is to run until it ends by itself.
    pub(crate) background: Mutex<Vec<BoxFuture<'static, ()>>>,
    pub(crate) counters: Counters,
    pub(crate) local_queues: Arc<LocalQueues>,
    pub(crate) own_waiters: Arc<OwnWaiters>,
    /// The process that made the client.
    pid: AtomicU32,
    /// No new attempt begins.
    pub(crate) closing: AtomicBool,
    /// A planted bug, which the simulation must find.
    #[cfg(feature = "_mutants")]
    pub(crate) counts_from_reply: AtomicBool,
}

/// Counters of the janitor.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) dropped: AtomicU64,
    pub(crate) given_up: AtomicU64,
    pub(crate) unconfirmed: AtomicU64,
}

/// The parts of a [`ClientState`].
pub(crate) struct Parts {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Source,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    pub(crate) drift_ppm: u32,
    pub(crate) answer_within: Duration,
}

impl ClientState {
    pub(crate) fn new(parts: Parts) -> ClientState {
        let client = parts.entropy.client_id();
        ClientState {
            engine: parts.engine,
            clock: parts.clock,
            entropy: parts.entropy,
            observer: parts.observer,
            client,
            drift_ppm: parts.drift_ppm,
            answer_within: parts.answer_within,
            registry: Mutex::default(),
            wakeup: Notify::new(),
            drained: Notify::new(),
            runtime: WorkerRuntime::default(),
            background: Mutex::default(),
            counters: Counters::default(),
            local_queues: Arc::default(),
            own_waiters: Arc::default(),
            pid: AtomicU32::new(std::process::id()),
            closing: AtomicBool::new(false),
            #[cfg(feature = "_mutants")]
            counts_from_reply: AtomicBool::new(false),
        }
    }

    /// Returns whether this process made the client. A forked child has the memory of its parent,
    /// but none of its threads and no right to its leases.
    pub(crate) fn is_own_process(&self) -> bool {
        self.pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// Returns whether a lease is valid now; never in a forked process.
    pub(crate) fn believes(&self, grant: &Grant) -> bool {
        // The clock first: it costs less than the system call.
        grant.is_valid(self.clock.now()) && self.is_own_process()
    }

    /// Returns until when a lease is valid in this process.
    pub(crate) fn valid_until(&self, grant: &Grant) -> Moment {
        if self.is_own_process() { grant.valid_until() } else { Moment::ORIGIN }
    }

    /// Makes this process look like a forked child, for tests.
    #[cfg(test)]
    pub(crate) fn pretend_fork(&self, forked: bool) {
        let pid = if forked { 0 } else { std::process::id() };
        self.pid.store(pid, Ordering::Relaxed);
    }

    pub(crate) fn wake(&self, wake: bool) {
        if wake {
            self.wakeup.notify_one();
        }
    }

    /// Passes a future to the worker. Like a release, `shutdown` and the end of the worker wait for
    /// it, so it must end soon after the client is dropped.
    pub(crate) fn run_in_background(
        self: &Arc<ClientState>,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let counted = BackgroundTask::new(self);
        self.background.lock().push(Box::pin(async move {
            let _counted = counted;
            future.await;
        }));
        self.wake(true);
    }

    /// Notifies the observer, if there is one. A panic of the observer must not end the keeper or
    /// an attempt.
    pub(crate) fn observe(&self, notify: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.observer
            && catch_unwind(AssertUnwindSafe(|| notify(&**observer))).is_err()
        {
            tracing::error!("an observer panicked");
        }
    }

    /// Passes the reports of a quorum to the observer, for as long as the client lives.
    pub(crate) fn observe_quorum(self: &Arc<ClientState>, feed: &HealthFeed) {
        if self.observer.is_some() {
            let state = Arc::downgrade(self);
            feed.subscribe(move |health| {
                let Some(state) = state.upgrade() else { return false };
                state.observe(|observer| observer.quorum_health(health));
                true
            });
        }
    }

    /// Reports to the observer that a lock is held, and starts the span of the hold.
    pub(crate) fn observe_acquired(&self, grant: &Grant, waited: Duration) {
        grant.start_span();
        self.observe(|observer| {
            grant.observe_begin();
            observer.acquired(grant.subject(), grant.token, waited);
        });
    }

    /// Reports to the observer that a detached lease was attached, and starts the span of the hold.
    pub(crate) fn observe_attached(&self, grant: &Grant) {
        grant.start_span();
        self.observe(|observer| {
            grant.observe_begin();
            observer.attached(grant.subject(), grant.token);
        });
    }

    /// Reports to the observer that a hold has ended, unless that was reported, and ends its span.
    pub(crate) fn observe_end(&self, grant: &Grant, end: impl FnOnce() -> HoldEnd) {
        let observed = self.observer.is_some() && grant.observe_end();
        let span = grant.take_span();
        if span.is_none() && !observed {
            return;
        }
        let end = end();
        if observed {
            let held_for = grant.since.until(self.clock.now());
            self.observe(|observer| observer.ended(grant.subject(), &end, held_for));
        }
        if let Some(span) = span {
            spans::ended(span, &end);
        }
    }

    /// Waits for an answer until `limit`; `None` if none arrived.
    ///
    /// The engine is always polled inside a runtime: the caller's, or the worker's if there is
    /// none.
    pub(crate) async fn await_answer<T>(&self, answer: Answer<'_, T>, limit: Moment) -> Option<T> {
        match answer {
            Answer::Ready(answer) => answer,
            Answer::Later(_) if !self.is_own_process() => None,
            Answer::Later(future) => self.await_answer_here(future, limit).await,
        }
    }

    /// Does the same if the process is known to be our own.
    pub(crate) async fn await_answer_here<T>(
        &self,
        mut future: BoxFuture<'_, T>,
        limit: Moment,
    ) -> Option<T> {
        let mut timer = None;
        poll_fn(|context| {
            let polled = self.runtime.within(|| future.as_mut().poll(context));
            if polled.is_ready() {
                return polled.map(Some);
            }
            let timer = timer.get_or_insert_with(|| self.clock.sleep_until(limit));
            timer.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    /// Waits for the answer to a release that frees a name, and wakes the next attempt of this
    /// client.
    pub(crate) async fn await_release(
        &self,
        answer: impl Future<Output = Option<Result<ReleaseReply, LockError>>>,
        name: &LockName,
    ) -> Option<Result<ReleaseReply, LockError>> {
        let in_order = self.engine.capabilities().in_order;
        self.own_waiters.await_release(in_order, answer, name).await
    }

    /// Returns the start of the duration in a reply: just before its request was sent.
    pub(crate) fn validity_start(&self, sent: Moment) -> Moment {
        #[cfg(feature = "_mutants")]
        if self.counts_from_reply.load(Ordering::Relaxed) {
            return self.clock.now();
        }
        sent
    }

    /// Returns the deadline for the answer to a request that is sent now.
    pub(crate) fn limit(&self) -> Moment {
        self.clock.now().after(self.answer_within)
    }

    /// Waits for an answer whose absence says nothing about the outcome.
    pub(crate) async fn answer<T>(
        &self,
        answer: Answer<'_, Result<T, LockError>>,
    ) -> Result<T, LockError> {
        let limit = self.limit();
        match self.await_answer(answer, limit).await {
            Some(answer) => answer,
            None => Err(self.no_answer()),
        }
    }

    /// Makes the error for a request without an answer within the limit.
    pub(crate) fn no_answer(&self) -> LockError {
        self.no_answer_within(self.answer_within)
    }

    /// Makes the error for a request without an answer within a duration.
    pub(crate) fn no_answer_within(&self, waited: Duration) -> LockError {
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

    /// Makes the error of a call that needs the lease, which is lost.
    pub(crate) fn lost(&self, reason: LostReason) -> LockError {
        self.error(ErrorKind::Lost { reason }, Certainty::NotApplied)
    }

    /// Renews one lease, or keeps one place in the queue; `None` if the store does not answer.
    pub(crate) async fn renew(
        &self,
        renewal: RenewRequest,
    ) -> Option<Result<RenewReply, LockError>> {
        let batch = [renewal];
        let replies = self.await_answer(self.engine.renew(&batch), self.limit()).await;
        replies.and_then(|replies| replies.into_iter().next())
    }
}

/// Counts one future of the worker among what is to be given up, until it is dropped.
struct BackgroundTask(Weak<ClientState>);

impl BackgroundTask {
    fn new(state: &Arc<ClientState>) -> BackgroundTask {
        state.registry.lock().releasing += 1;
        BackgroundTask(Arc::downgrade(state))
    }
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        if let Some(state) = self.0.upgrade()
            && state.is_own_process()
        {
            state.registry.lock().releasing -= 1;
            state.drained.notify_waiters();
        }
    }
}

/// The part of a client that locks, guards and clients share.
pub(crate) struct Core {
    pub(crate) state: Arc<ClientState>,
    pub(crate) holder: HolderFields,
    pub(crate) lease_duration: Duration,
    pub(crate) nests: Nests,
    pub(crate) classes: Classes,
}

impl Core {
    /// Checks name, mode and options against each other and against the engine.
    pub(crate) fn plan(
        &self,
        name: impl AsRef<str>,
        mode: Mode,
        options: &LockOptions,
    ) -> Result<Plan, LockError> {
        let defaults = Defaults {
            capabilities: self.state.engine.capabilities(),
            holder: &self.holder,
            lease_duration: self.lease_duration,
            drift_ppm: self.state.drift_ppm,
            classes: &self.classes,
        };
        Plan::new(&defaults, name, mode, options)
    }

    /// Checks that an attempt may start.
    pub(crate) fn open(&self) -> Result<(), LockError> {
        if self.state.closing.load(Ordering::Relaxed) {
            return Err(self.state.error(ErrorKind::Cancelled, Certainty::NotApplied));
        }
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.state.is_own_process() {
            self.state.registry.lock().abandoned = true;
            self.state.wake(true);
        }
    }
}
