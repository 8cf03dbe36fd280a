//! What observers learn of an attempt, however it ends.
//!
//! Invariant P1: `wait_started` is followed by one `wait_finished`, and an attempt ends with one of
//! `acquired`, `failed` and `cancelled`: also if its future is dropped. Its span ends with it.

use std::sync::atomic::{AtomicBool, Ordering};

use holdline_core::{FencingToken, LeaseId, LockError, Moment};
use tracing::Span;

use crate::core::ClientState;
use crate::observer::Subject;
use crate::plan::Plan;
use crate::spans;

/// An attempt that is under way. Dropping it before [`Progress::finish`] cancels the attempt.
pub(crate) struct Progress<'a> {
    state: &'a ClientState,
    plan: &'a Plan,
    /// The first one: later requests of the attempt may have others.
    lease_id: LeaseId,
    started: Moment,
    waits: AtomicBool,
    finished: AtomicBool,
    span: Span,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(
        state: &'a ClientState,
        plan: &'a Plan,
        lease_id: LeaseId,
        started: Moment,
    ) -> Progress<'a> {
        let waits = AtomicBool::new(false);
        let finished = AtomicBool::new(false);
        let span = spans::wait(plan, lease_id);
        Progress { state, plan, lease_id, started, waits, finished, span }
    }

    /// The attempt waits from now on, if it has not before.
    pub(crate) fn wait(&self) {
        if !self.waits.swap(true, Ordering::Relaxed) {
            self.state.observe(|observer| observer.wait_started(self.subject()));
        }
    }

    /// Returns the span of the attempt.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// The attempt has ended by itself, and that was reported.
    pub(crate) fn finish(&mut self, outcome: Result<FencingToken, &LockError>) {
        match outcome {
            Ok(token) => spans::granted(&self.span, token),
            Err(error) => spans::failed(&self.span, error),
        }
        *self.finished.get_mut() = true;
    }

    fn subject(&self) -> Subject<'_> {
        self.plan.subject(self.lease_id)
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        let waits = *self.waits.get_mut();
        let finished = *self.finished.get_mut();
        if finished && !waits || !self.state.is_own_process() {
            return;
        }
        if waits {
            self.state.observe(|observer| observer.wait_finished(self.subject()));
        }
        if !finished {
            spans::cancelled(&self.span);
            let waited = self.started.until(self.state.clock.now());
            self.state.observe(|observer| observer.cancelled(self.subject(), waited));
        }
    }
}
