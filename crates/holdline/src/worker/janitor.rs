//! Releases what was abandoned, until the store has confirmed it or the lease is over.
//!
//! Invariant J1 is that of `guard::ticket`, which passes ids to this module.
//! Invariant J2: an id that was given up is never requested again.
//! Invariant J3: passing an id on takes one short mutex: it never blocks on I/O and never panics.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{
    Ending, ErrorKind, Expiry, LeaseId, LockError, LostReason, Mode, Moment, ReleaseReply,
    ReleaseRequest, lease,
};
use tokio::sync::mpsc;

use crate::core::ClientState;
use crate::core::final_errors::is_permanent;
use crate::core::registry::{Key, PendingRelease, Stage};
use crate::observer::Subject;
use crate::plan::Plan;
use crate::plan::leftovers::Leftovers;

/// The pause between two releases of an id: it doubles from the first to the longest.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How often an id of a shared session is released after the client's last user is gone. The
/// session closes with the engine anyway.
const MAX_LAST_TRIES: u32 = 5;

/// Makes the worker's entry for the release of an id.
pub(crate) fn pending_release(
    state: &ClientState,
    plan: &Plan,
    lease_id: LeaseId,
    ending: Ending,
) -> PendingRelease {
    let capabilities = state.engine.capabilities();
    let lasts = match capabilities.expiry {
        // An abandoned attempt on a session exists as long as the session.
        Expiry::Session => lease::MAX_LEASE,
        Expiry::Lease | Expiry::Live => ending.hold.duration().unwrap_or(MIN_TOMBSTONE),
    };
    let until = state.clock.now().after(lasts.max(MIN_TOMBSTONE).saturating_add(capabilities.lag));
    PendingRelease {
        name: plan.name.clone(),
        engine: plan.engine,
        class: plan.class.clone(),
        lease_id,
        mode: plan.mode,
        ending,
        was_held: false,
        until,
        tries: 0,
        reports: None,
        _leftover: plan.leftovers.as_ref().map(Leftovers::one),
    }
}

/// Returns whether the store may still have a lease that was lost for this reason: it expired by
/// our clock, which is the earlier one.
pub(crate) fn may_linger(lost: &LostReason) -> bool {
    use LostReason::{Expired, MaxHold, RanOut, Revoked};
    matches!(lost, Expired | MaxHold | RanOut | Revoked(_))
}

/// Passes an id to the worker, which releases it.
pub(crate) fn hand_over(state: &ClientState, key: Option<Key>, pending: PendingRelease) {
    schedule(state, key, pending, state.clock.now());
}

/// Passes an id to the worker, which releases it at `due`.
pub(crate) fn schedule(
    state: &ClientState,
    key: Option<Key>,
    pending: PendingRelease,
    due: Moment,
) {
    let stage = Stage::Releasing(Box::new(pending));
    let mut registry = state.registry.lock();
    let known = key.filter(|key| registry.get(*key).is_some());
    let wake = match known {
        Some(key) => registry.set_stage(key, stage, due),
        None => registry.insert(stage, due).1,
    };
    drop(registry);
    state.wake(wake);
}

/// What to do about an id whose release is due.
pub(crate) enum NextStep {
    /// Release it; `true` if that frees the name for the next attempt.
    Ask(ReleaseRequest, bool),
    Over,
}

/// Decides what to do about an id at `now`.
pub(crate) fn next_step(
    pending: &PendingRelease,
    now: Moment,
    abandoned: bool,
    expiry: Expiry,
) -> NextStep {
    let last = abandoned && expiry == Expiry::Session && pending.tries >= MAX_LAST_TRIES;
    if now >= pending.until || last {
        return NextStep::Over;
    }
    // An unanswered release may still be in transit.
    let for_good = pending.ending.for_good || pending.tries > 0;
    let ending = Ending { for_good, ..pending.ending };
    let name = pending.name.clone();
    let lease_id = pending.lease_id;
    let frees = pending.was_held && pending.mode == Mode::Exclusive && pending.tries == 0;
    NextStep::Ask(ReleaseRequest { name, lease_id, ending }, frees)
}

/// Releases ids, one after the other.
pub(crate) async fn give_up(state: Arc<ClientState>, requests: Vec<(Key, (ReleaseRequest, bool))>) {
    for (key, (request, frees)) in requests {
        let answer = state.engine.release(&request);
        let answer = state.await_answer(answer, state.limit());
        let answer =
            if frees { state.await_release(answer, &request.name).await } else { answer.await };
        let reply = answer.unwrap_or_else(|| Err(state.no_answer()));
        let confirmed = match &reply {
            Ok(reply) => {
                tracing::debug!(
                    name = %request.name, lease_id = %request.lease_id, ?reply, "given up"
                );
                Some(true)
            }
            // The store itself reports that nothing is left.
            Err(error) if matches!(error.kind(), ErrorKind::Lost { .. }) => Some(true),
            Err(error) if is_permanent(error) => {
                tracing::warn!(lease_id = %request.lease_id, %error, "cannot be given up");
                Some(false)
            }
            Err(error) => {
                tracing::debug!(lease_id = %request.lease_id, %error, "not given up yet");
                None
            }
        };
        report(&state, key, reply);
        match confirmed {
            Some(confirmed) => finish(&state, key, confirmed),
            None => try_later(&state, key),
        }
    }
}

/// Passes an answer to the release that waits for it, if there is one.
fn report(state: &ClientState, key: Key, reply: Result<ReleaseReply, LockError>) {
    let mut registry = state.registry.lock();
    let Some(entry) = registry.get(key) else { return };
    let Stage::Releasing(pending) = &entry.stage else { return };
    let Some(reports) = pending.reports.clone() else { return };
    drop(registry);
    // The caller may have stopped waiting.
    let _ = reports.send(reply);
}

fn try_later(state: &ClientState, key: Key) {
    let now = state.clock.now();
    let mut registry = state.registry.lock();
    let Some(entry) = registry.get(key) else { return };
    entry.in_flight = false;
    let Stage::Releasing(pending) = &mut entry.stage else { return };
    let pause = FIRST_PAUSE.saturating_mul(1 << pending.tries.min(16)).min(LONGEST_PAUSE);
    pending.tries = pending.tries.saturating_add(1);
    let wake = registry.schedule(key, now.after(pause));
    drop(registry);
    state.wake(wake);
}

/// Removes an id; `confirmed` says whether the store has confirmed the release.
pub(crate) fn finish(state: &ClientState, key: Key, confirmed: bool) {
    let Some(entry) = state.registry.lock().remove(key) else { return };
    let Stage::Releasing(pending) = entry.stage else { return };
    if !confirmed {
        state.counters.unconfirmed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            name = %pending.name, lease_id = %pending.lease_id,
            "the store did not confirm that this was given up: it ends with its lease"
        );
    }
    // A release that still waits reports the outcome itself.
    if pending.reports.as_ref().is_none_or(mpsc::UnboundedSender::is_closed) {
        let PendingRelease { name, mode, engine, class, .. } = &*pending;
        let lease_id = pending.lease_id.short();
        let subject = Subject { name, lease_id, mode: *mode, engine, class };
        state.observe(|observer| observer.dropped(subject, confirmed));
    }
    state.drained.notify_waiters();
}
