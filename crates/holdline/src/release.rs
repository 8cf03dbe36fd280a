//! Ending a grant on purpose, and what came of it.

use std::time::Duration;

use holdline_core::{
    Answer, Backoff, Certainty, ErrorKind, LockError, LostReason, Moment, ReleaseReply,
    ReleaseRequest,
};

use crate::core::Shared;
use crate::janitor::Ticket;
use crate::plan::Plan;

/// How long a release is tried while the caller waits; after that the janitor goes on.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// What came of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The name is free, or goes to the next.
    Released {
        /// How long it was held.
        held_for: Duration,
        /// The store said so. Otherwise its answer was lost or is to come: the janitor goes on
        /// telling it, and the lease's end frees the name at the latest.
        confirmed: bool,
    },
    /// The lease was lost before; somebody else may have held the name since.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// An inner guard of an owner ended; the grant goes on with the guards that are left.
    Nested {
        /// How many are left.
        depth: usize,
    },
}

impl ReleaseOutcome {
    /// Tells whether the lease was held without doubt until it was released.
    pub fn is_released(&self) -> bool {
        !matches!(self, ReleaseOutcome::Lost { .. })
    }
}

/// Releases a grant that nobody renews any more.
pub(crate) async fn release(
    shared: &Shared,
    plan: &Plan,
    request: &ReleaseRequest,
    since: Moment,
) -> ReleaseOutcome {
    let mut ticket = Ticket::new(shared, plan, request.lease_id);
    ticket.unsettled = request.ending.for_good;
    let mut began = None;
    let reply = match shared.engine.release(request) {
        Answer::Ready(reply) => reply,
        _ if !shared.is_own_process() => {
            // A forked child has no right to its parent's lease; the ticket's drop knows that too.
            let held_for = since.until(shared.clock.now());
            return ReleaseOutcome::Released { held_for, confirmed: false };
        }
        Answer::Later(later) => {
            ticket.register();
            // The id is dead from here on, and this future may be dropped.
            ticket.unsettled = true;
            let now = shared.clock.now();
            began = Some(now);
            let limit = now.after(PATIENCE.min(shared.answer_within));
            shared.answered_here(later, now, limit).await
        }
    };
    match reply {
        Some(Ok(reply)) => {
            ticket.forget();
            outcome(reply, false, || since.until(shared.clock.now()))
        }
        reply => {
            let began = began.unwrap_or_else(|| shared.clock.now());
            Box::pin(tell_again(shared, plan, (since, began), ticket, reply)).await
        }
    }
}

/// Tells the store again after a release that was not confirmed.
async fn tell_again(
    shared: &Shared,
    plan: &Plan,
    (since, began): (Moment, Moment),
    mut ticket: Ticket<'_>,
    mut reply: Option<Result<ReleaseReply, LockError>>,
) -> ReleaseOutcome {
    let mut unanswered = false;
    let patience = began.after(PATIENCE);
    let mut pause = Backoff::new(PAUSE.0, PAUSE.1);
    loop {
        let held_for = || since.until(shared.clock.now());
        match reply {
            Some(Ok(reply)) => {
                ticket.forget();
                return outcome(reply, unanswered, held_for);
            }
            Some(Err(error)) if matches!(error.kind(), ErrorKind::Lost { .. }) => {
                ticket.forget();
                return lost(&error);
            }
            Some(Err(error)) => {
                unanswered |= error.certainty() != Certainty::NotApplied;
                tracing::debug!(name = %plan.name, %error, "a release failed");
            }
            None => unanswered = true,
        }
        ticket.register();
        ticket.unsettled |= unanswered;
        let now = shared.clock.now();
        if now >= patience {
            // The drop of the ticket hands the rest to the janitor.
            return ReleaseOutcome::Released { held_for: held_for(), confirmed: false };
        }
        let wait = pause.next_pause(shared.entropy.number()).max(PAUSE.0);
        shared.clock.sleep_until(now.after(wait)).await;
        let request = plan.ending(None, ticket.lease_id, ticket.unsettled);
        let limit = shared.limit().min(patience.max(now.after(wait)));
        reply = shared.answered(shared.engine.release(&request), limit).await;
    }
}

/// The store says that there is nothing to release any more, and why.
fn lost(error: &LockError) -> ReleaseOutcome {
    let reason = match error.kind() {
        ErrorKind::Lost { reason } => reason.clone(),
        _ => LostReason::Missing,
    };
    ReleaseOutcome::Lost { reason }
}

fn outcome(reply: ReleaseReply, unanswered: bool, since: impl Fn() -> Duration) -> ReleaseOutcome {
    match reply {
        ReleaseReply::Released { held_for } => {
            let held_for = held_for.unwrap_or_else(since);
            ReleaseOutcome::Released { held_for, confirmed: true }
        }
        ReleaseReply::NotHeld { revoked: Some(reason) } => {
            ReleaseOutcome::Lost { reason: LostReason::Revoked(reason) }
        }
        // An earlier try whose answer was lost may have done it.
        ReleaseReply::NotHeld { revoked: None } if unanswered => {
            ReleaseOutcome::Released { held_for: since(), confirmed: false }
        }
        ReleaseReply::NotHeld { revoked: None } | ReleaseReply::Withdrawn => {
            ReleaseOutcome::Lost { reason: LostReason::Missing }
        }
    }
}
