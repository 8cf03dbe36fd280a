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

use crate::core::{Core, Shared};
use crate::grant::{Grant, Granted};
use crate::guard::Guard;
use crate::keeper;
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

/// Stands for a lease id whose attempt is under way, or whose release is.
pub(crate) struct Ticket<'a> {
    shared: &'a Shared,
    plan: &'a Plan,
    pub(crate) lease_id: LeaseId,
    key: Option<Key>,
    armed: bool,
    /// A request under the id went unanswered, or is under way.
    pub(crate) unsettled: bool,
}

impl<'a> Ticket<'a> {
    pub(crate) fn new(shared: &'a Shared, plan: &'a Plan, lease_id: LeaseId) -> Ticket<'a> {
        Ticket { shared, plan, lease_id, key: None, armed: true, unsettled: false }
    }

    /// Writes the id into the slab: its request is about to leave, and its future may be dropped.
    pub(crate) fn register(&mut self) {
        if self.key.is_none() {
            let mut registry = self.shared.registry.lock();
            self.key = Some(registry.insert(Stage::Asking, Moment::NEVER).0);
        }
    }

    /// The id stands in the queue: the worker keeps it heard from now on.
    pub(crate) fn enqueue(&mut self, cell: Arc<WaitCell>, next_look: Duration) {
        self.register();
        let Some(key) = self.key else { return };
        let waiting = Waiting { name: self.plan.name.clone(), lease_id: self.lease_id, cell };
        let now = self.shared.clock.now();
        let mut registry = self.shared.registry.lock();
        let due = crate::queue::next_look(&mut registry, now, next_look);
        let ring = registry.turn(key, Stage::Waiting(waiting), due);
        drop(registry);
        self.shared.ring(ring);
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

    /// Gives the id up and waits for the answer once; what is left then is the worker's.
    pub(crate) async fn give_up(mut self) -> Option<ReleaseReply> {
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
        lease_id,
        mode: plan.mode,
        hold: plan.hold,
        for_good,
        until,
        tries: 0,
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
    let now = shared.clock.now();
    let stage = Stage::Undoing(Box::new(undo));
    let mut registry = shared.registry.lock();
    let known = key.filter(|key| registry.get(*key).is_some());
    let ring = match known {
        Some(key) => registry.turn(key, stage, now),
        None => registry.insert(stage, now).1,
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
        let told = match shared.answered(answer, shared.limit()).await {
            Some(Ok(reply)) => {
                tracing::debug!(
                    name = %request.name, lease_id = %request.lease_id, ?reply, "given up"
                );
                Some(true)
            }
            // The store says itself that nothing is left there.
            Some(Err(error)) if matches!(error.kind(), ErrorKind::Lost { .. }) => Some(true),
            Some(Err(error)) if is_final(&error) => {
                tracing::warn!(lease_id = %request.lease_id, %error, "cannot be given up");
                Some(false)
            }
            Some(Err(error)) => {
                tracing::debug!(lease_id = %request.lease_id, %error, "not given up yet");
                None
            }
            None => None,
        };
        match told {
            Some(told) => finish(&shared, key, told),
            None => try_later(&shared, key),
        }
    }
}

/// Tells whether trying again cannot help.
fn is_final(error: &LockError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Invalid { .. } | ErrorKind::Unsupported { .. } | ErrorKind::Foreign { .. }
    )
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
    let subject = Subject { name: &undo.name, lease_id: undo.lease_id.short(), mode: undo.mode };
    shared.observe(|observer| observer.dropped(subject, told));
    shared.drained.notify_waiters();
}
