//! Gives up what was abandoned, until the store has confirmed it or the lease is over.
//!
//! Invariant J1: from before a request leaves until its guard exists, a [`Ticket`] stands for the
//! lease id. However the attempt ends (an error, a time limit, a dropped future, a panic), the
//! ticket's drop hands the id over to the worker.
//! Invariant J2: an id that was given up is never asked again.
//! Invariant J3: handing over takes one short mutex: it never blocks on I/O and never panics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    Ending, ErrorKind, Expiry, LeaseId, LockError, LostReason, Moment, ReleaseReply,
    ReleaseRequest, lease,
};
use tokio::sync::mpsc;

use crate::core::{Core, Shared};
use crate::grant::{Grant, Granted};
use crate::guard::Guard;
use crate::keeper;
use crate::leftovers::Leftovers;
use crate::observer::Subject;
use crate::plan::Plan;
use crate::queue::WaitCell;
use crate::registry::{Key, Stage, Undo, Waiting};

/// The pauses between two tries to give an id up: from here, doubling, to a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a caller that gives up waits for the store's word; after that the worker goes on.
const LAST_WORD: Duration = Duration::from_secs(1);
/// How often an id of a shared session is given up at most once the client has no user left: the
/// session closes with the engine.
const LAST_TRIES: u32 = 5;

/// The answers that the worker gets for an id that it gives up.
pub(crate) type Reports = mpsc::UnboundedReceiver<Result<ReleaseReply, LockError>>;

/// Stands for a lease id whose attempt is under way, or whose release is.
pub(crate) struct Ticket<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    pub(crate) lease_id: LeaseId,
    key: Option<Key>,
    armed: bool,
    /// A request under the id went unanswered, or is under way.
    pub(crate) unsettled: bool,
    /// What the heartbeat reports of its place in the queue.
    cell: Option<Arc<WaitCell>>,
}

impl<'a> Ticket<'a> {
    pub(crate) fn new(shared: &'a Shared, plan: &'a Plan, lease_id: LeaseId) -> Ticket<'a> {
        Ticket { shared, plan, lease_id, key: None, armed: true, unsettled: false, cell: None }
    }

    pub(crate) fn shared(&self) -> &'a Shared {
        self.shared
    }

    /// Writes the id into the slab: its request is about to leave, and its future may be dropped.
    pub(crate) fn register(&mut self) {
        if self.key.is_none() {
            let mut registry = self.shared.registry.lock();
            self.key = Some(registry.insert(Stage::Asking, Moment::NEVER).0);
        }
    }

    /// The id stands in the queue, or may: the worker sends its heartbeats from now on, and
    /// reports to the cell.
    pub(crate) fn enqueue(&mut self, next_look: Duration) -> Arc<WaitCell> {
        if let Some(cell) = &self.cell {
            return cell.clone();
        }
        self.register();
        let cell = self.cell.insert(Arc::default()).clone();
        let Some(key) = self.key else { return cell };
        let (name, lease_id) = (self.plan.name.clone(), self.lease_id);
        let waiting = Waiting { name, lease_id, cell: cell.clone() };
        let now = self.shared.clock.now();
        let mut registry = self.shared.registry.lock();
        let due = crate::queue::next_look(&mut registry, now, next_look);
        let ring = registry.turn(key, Stage::Waiting(waiting), due);
        drop(registry);
        self.shared.ring(ring);
        cell
    }

    /// The id was granted: from now on the guard stands for it.
    pub(crate) fn granted(mut self, core: &Arc<Core>, plan: &Arc<Plan>, granted: Granted) -> Guard {
        let grant = Arc::new(Grant::new(plan, granted));
        let (keeping, due) = keeper::begin(grant.clone());
        let mut registry = self.shared.registry.lock();
        let (key, ring) = match self.key {
            Some(key) => (key, registry.turn(key, Stage::Held(keeping), due)),
            None => registry.insert(Stage::Held(keeping), due),
        };
        drop(registry);
        self.armed = false;
        self.shared.ring(ring);
        Guard::new(core.clone(), grant, key)
    }

    /// There is nothing under the id, or somebody else stands for it.
    pub(crate) fn forget(mut self) {
        self.disarm();
    }

    fn disarm(&mut self) {
        self.armed = false;
        if let Some(key) = self.key.take() {
            self.shared.registry.lock().remove(key);
        }
    }

    /// Leaves the id to the worker, which gives it up. Returns its reports of the answers.
    pub(crate) fn leave_to_janitor(mut self) -> Reports {
        let (reports, received) = mpsc::unbounded_channel();
        let mut undo = undo_of(self.shared, self.plan, self.lease_id, self.unsettled);
        undo.reports = Some(reports);
        self.armed = false;
        let due = self.shared.clock.now().after(FIRST_PAUSE);
        schedule(self.shared, self.key.take(), undo, due);
        received
    }

    /// Gives the id up and waits for the answer once; what is left then is the worker's. An id
    /// that only the caller gives up is left as it is.
    pub(crate) async fn give_up(mut self) -> Option<ReleaseReply> {
        if self.plan.keeps_id {
            self.disarm();
            return (!self.unsettled).then_some(ReleaseReply::NotHeld { revoked: None });
        }
        let request = self.plan.ending(None, self.lease_id, self.unsettled);
        // From here on the id is dead: if this future is dropped, a tombstone makes sure.
        self.unsettled = true;
        let answer = self.shared.engine.release(&request);
        let limit = self.shared.clock.now().after(LAST_WORD.min(self.shared.answer_within));
        let reply = self.shared.answered(answer, limit).await?.ok()?;
        self.disarm();
        Some(reply)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.armed || !self.shared.is_own_process() {
            return;
        }
        if self.plan.keeps_id {
            self.disarm();
            return;
        }
        let counters = &self.shared.counters;
        counters.given_up.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(
            name = %self.plan.name, lease_id = %self.lease_id, "an attempt is given up"
        );
        hand_over(
            self.shared,
            self.key,
            undo_of(self.shared, self.plan, self.lease_id, self.unsettled),
        );
    }
}

/// Makes what the worker needs to give an id up.
pub(crate) fn undo_of(shared: &Shared, plan: &Plan, lease_id: LeaseId, for_good: bool) -> Undo {
    let capabilities = shared.engine.capabilities();
    let lasts = match capabilities.expiry {
        // A dead attempt on a session lives as long as the session.
        Expiry::Session => lease::MAX_LEASE,
        Expiry::Lease | Expiry::Live => plan.hold.duration().unwrap_or(MIN_TOMBSTONE),
    };
    let until = shared.clock.now().after(lasts.max(MIN_TOMBSTONE).saturating_add(capabilities.lag));
    Undo {
        name: plan.name.clone(),
        engine: plan.engine,
        class: plan.class.clone(),
        lease_id,
        mode: plan.mode,
        hold: plan.hold,
        for_good,
        until,
        tries: 0,
        reports: None,
        _leftover: plan.leftovers.as_ref().map(Leftovers::one),
    }
}

/// Tells whether the store may still keep a lease that was lost for this reason: it ran out by
/// our clock, which is the earlier one, revoked before or not.
pub(crate) fn may_linger(lost: &LostReason) -> bool {
    use LostReason::{Expired, MaxHold, RanOut, Revoked};
    matches!(lost, Expired | MaxHold | RanOut | Revoked(_))
}

/// Hands an id over to the worker, which gives it up.
pub(crate) fn hand_over(shared: &Shared, key: Option<Key>, undo: Undo) {
    schedule(shared, key, undo, shared.clock.now());
}

fn schedule(shared: &Shared, key: Option<Key>, undo: Undo, due: Moment) {
    let stage = Stage::Undoing(Box::new(undo));
    let mut registry = shared.registry.lock();
    let known = key.filter(|key| registry.get(*key).is_some());
    let ring = match known {
        Some(key) => registry.turn(key, stage, due),
        None => registry.insert(stage, due).1,
    };
    drop(registry);
    shared.ring(ring);
}

/// What to do about an id that is due to be given up.
pub(crate) enum Due {
    Ask(ReleaseRequest),
    Over,
}

/// Decides what to do about an id at `now`.
pub(crate) fn look(undo: &Undo, now: Moment, abandoned: bool, expiry: Expiry) -> Due {
    let last = abandoned && expiry == Expiry::Session && undo.tries >= LAST_TRIES;
    if now >= undo.until || last {
        return Due::Over;
    }
    Due::Ask(ReleaseRequest {
        name: undo.name.clone(),
        lease_id: undo.lease_id,
        // A try that went unanswered may still be on its way.
        ending: Ending { for_good: undo.for_good || undo.tries > 0, hold: undo.hold },
    })
}

/// Gives ids up, one after the other.
pub(crate) async fn give_up(shared: Arc<Shared>, lane: Vec<(Key, ReleaseRequest)>) {
    for (key, request) in lane {
        let answer = shared.engine.release(&request);
        let answer = shared.answered(answer, shared.limit()).await;
        let reply = answer.unwrap_or_else(|| Err(shared.no_answer()));
        let told = match &reply {
            Ok(reply) => {
                tracing::debug!(
                    name = %request.name, lease_id = %request.lease_id, ?reply, "given up"
                );
                Some(true)
            }
            // The store says itself that nothing is left there.
            Err(error) if matches!(error.kind(), ErrorKind::Lost { .. }) => Some(true),
            Err(error) if is_hopeless(error) => {
                tracing::warn!(lease_id = %request.lease_id, %error, "cannot be given up");
                Some(false)
            }
            Err(error) => {
                tracing::debug!(lease_id = %request.lease_id, %error, "not given up yet");
                None
            }
        };
        report(&shared, key, reply);
        match told {
            Some(told) => finish(&shared, key, told),
            None => try_later(&shared, key),
        }
    }
}

/// Passes an answer on to the release that waits for it, if there is one.
fn report(shared: &Shared, key: Key, reply: Result<ReleaseReply, LockError>) {
    let mut registry = shared.registry.lock();
    let Some(entry) = registry.get(key) else { return };
    let Stage::Undoing(undo) = &entry.stage else { return };
    let Some(reports) = undo.reports.clone() else { return };
    drop(registry);
    // The caller may have stopped waiting.
    let _ = reports.send(reply);
}

/// Tells whether no later request can have another answer: the janitor stops.
fn is_hopeless(error: &LockError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid { .. } | ErrorKind::Unsupported { .. } | ErrorKind::Foreign { .. }
    )
}

/// Tells whether the answer will stay the same until somebody changes something: nobody should be
/// kept waiting for another one.
pub(crate) fn is_final(error: &LockError) -> bool {
    let needs_an_operator = matches!(
        error.kind(),
        ErrorKind::Refused { .. } | ErrorKind::Protocol { .. } | ErrorKind::NotInitialised
    );
    needs_an_operator || is_hopeless(error)
}

fn try_later(shared: &Shared, key: Key) {
    let now = shared.clock.now();
    let mut registry = shared.registry.lock();
    let Some(entry) = registry.get(key) else { return };
    entry.in_flight = false;
    let Stage::Undoing(undo) = &mut entry.stage else { return };
    let pause = FIRST_PAUSE.saturating_mul(1 << undo.tries.min(16)).min(LONGEST_PAUSE);
    undo.tries = undo.tries.saturating_add(1);
    let ring = registry.schedule(key, now.after(pause));
    drop(registry);
    shared.ring(ring);
}

/// Forgets an id; `told` says whether the store knows that it was given up.
pub(crate) fn finish(shared: &Shared, key: Key, told: bool) {
    let Some(entry) = shared.registry.lock().remove(key) else { return };
    let Stage::Undoing(undo) = entry.stage else { return };
    if !told {
        shared.counters.untold.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            name = %undo.name, lease_id = %undo.lease_id,
            "the store could not be told that this was given up: its lease ends it"
        );
    }
    // A release that still waits reports the outcome itself.
    if undo.reports.as_ref().is_none_or(mpsc::UnboundedSender::is_closed) {
        let Undo { name, mode, engine, class, .. } = &*undo;
        let lease_id = undo.lease_id.short();
        let subject = Subject { name, lease_id, mode: *mode, engine, class };
        shared.observe(|observer| observer.dropped(subject, told));
    }
    shared.drained.notify_waiters();
}
