//! The responsibility for a lease id, from before its request until its guard exists.
//!
//! Invariant J1: from before a request is sent until its guard exists, a [`Ticket`] is responsible
//! for the lease id. However the attempt ends (an error, a time limit, a dropped future, a panic),
//! the ticket's drop passes the id to the worker.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::{Ending, Hold, LeaseId, LockError, Moment, ReleaseReply};
use tokio::sync::mpsc;

use crate::core::ClientState;
use crate::core::queue_cell::QueueCell;
use crate::core::registry::{Key, PendingRelease, QueuedAttempt, Stage};
use crate::grant::{Grant, Granted};
use crate::plan::Plan;
use crate::worker::{heartbeat, janitor, keeper};

/// How long a caller that gives up waits for the store's answer; after that the worker continues.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// The answers that the worker gets for an id that it releases.
pub(crate) type Reports = mpsc::UnboundedReceiver<Result<ReleaseReply, LockError>>;

/// Is responsible for a lease id during an attempt or a release.
pub(crate) struct Ticket<'a> {
    state: &'a ClientState,
    plan: &'a Plan,
    pub(crate) lease_id: LeaseId,
    key: Option<Key>,
    armed: bool,
    /// A request under the id went unanswered, or is in flight.
    pub(crate) unsettled: bool,
    /// What the store may keep under the id, as far as requests asked for it.
    pub(crate) hold: Hold,
    /// What the heartbeat reports about its queue entry.
    cell: Option<Arc<QueueCell>>,
}

impl<'a> Ticket<'a> {
    pub(crate) fn new(state: &'a ClientState, plan: &'a Plan, lease_id: LeaseId) -> Ticket<'a> {
        let hold = plan.hold;
        Ticket { state, plan, lease_id, key: None, armed: true, unsettled: false, hold, cell: None }
    }

    pub(crate) fn state(&self) -> &'a ClientState {
        self.state
    }

    /// Adds the id to the registry before its request is sent, since the future may be dropped.
    pub(crate) fn register(&mut self) {
        if self.key.is_none() {
            let mut registry = self.state.registry.lock();
            self.key = Some(registry.insert(Stage::Requested, Moment::NEVER).0);
        }
    }

    /// Records that the id is, or may be, queued: the worker sends heartbeats from now on, and
    /// reports to the cell.
    pub(crate) fn enqueue(&mut self, next_look: Duration) -> Arc<QueueCell> {
        if let Some(cell) = &self.cell {
            return cell.clone();
        }
        self.register();
        let cell = self.cell.insert(Arc::default()).clone();
        let Some(key) = self.key else { return cell };
        let name = self.plan.name.clone();
        let lease_id = self.lease_id;
        let waiting = QueuedAttempt { name, lease_id, cell: cell.clone() };
        let now = self.state.clock.now();
        let mut registry = self.state.registry.lock();
        let due = heartbeat::next_look(&mut registry, now, next_look);
        let wake = registry.set_stage(key, Stage::Queued(waiting), due);
        drop(registry);
        self.state.wake(wake);
        cell
    }

    /// Records that the id was granted, and starts to keep the grant. The caller makes the guard at
    /// once, which is responsible for the id from now on.
    pub(crate) fn granted(mut self, plan: &Arc<Plan>, granted: Granted) -> (Arc<Grant>, Key) {
        let grant = Arc::new(Grant::new(plan, granted));
        let (keeping, due) = keeper::begin(grant.clone());
        let mut registry = self.state.registry.lock();
        let (key, wake) = match self.key {
            Some(key) => (key, registry.set_stage(key, Stage::Held(keeping), due)),
            None => registry.insert(Stage::Held(keeping), due),
        };
        drop(registry);
        self.armed = false;
        self.state.wake(wake);
        (grant, key)
    }

    /// Ends the responsibility: nothing exists under the id, or somebody else is responsible for
    /// it.
    pub(crate) fn forget(mut self) {
        self.disarm();
    }

    fn disarm(&mut self) {
        self.armed = false;
        if let Some(key) = self.key.take() {
            self.state.registry.lock().remove(key);
        }
    }

    /// Passes the id to the worker, which releases it. Returns the receiver of the answers.
    pub(crate) fn leave_to_janitor(mut self) -> Reports {
        let (reports, received) = mpsc::unbounded_channel();
        let mut pending = self.pending_release();
        pending.reports = Some(reports);
        self.armed = false;
        let due = self.state.clock.now().after(janitor::FIRST_PAUSE);
        janitor::schedule(self.state, self.key.take(), pending, due);
        received
    }

    fn pending_release(&self) -> PendingRelease {
        let ending = Ending { for_good: self.unsettled, hold: self.hold };
        janitor::pending_release(self.state, self.plan, self.lease_id, ending)
    }

    /// Releases the id once and waits for the answer; the worker continues if that fails. An id
    /// that only the caller releases is left as it is.
    pub(crate) async fn give_up(mut self) -> Option<ReleaseReply> {
        if self.plan.keeps_id {
            self.disarm();
            return (!self.unsettled).then_some(ReleaseReply::NotHeld { revoked: None });
        }
        let request = self.plan.ending(None, self.lease_id, self.unsettled);
        // From here on the id must not be granted; if this future is dropped, a tombstone ensures
        // that.
        self.unsettled = true;
        let answer = self.state.engine.release(&request);
        let limit = self.state.clock.now().after(ANSWER_LIMIT.min(self.state.answer_within));
        let reply = self.state.await_answer(answer, limit).await?.ok()?;
        self.disarm();
        Some(reply)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.armed || !self.state.is_own_process() {
            return;
        }
        if self.plan.keeps_id {
            self.disarm();
            return;
        }
        let counters = &self.state.counters;
        counters.given_up.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(
            name = %self.plan.name, lease_id = %self.lease_id, "an attempt is given up"
        );
        janitor::hand_over(self.state, self.key, self.pending_release());
    }
}
