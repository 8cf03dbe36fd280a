//! The release of a grant.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use holdline_core::{
    Answer, Certainty, ErrorKind, LockError, LostReason, Mode, Moment, ReleaseReply, ReleaseRequest,
};

use super::ticket::Ticket;
use crate::core::ClientState;
use crate::core::final_errors;
use crate::plan::Plan;
use crate::release_outcome::ReleaseOutcome;

/// How long a release waits for the store's answer; after that the janitor continues alone.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a release waits after the store was found unable to answer.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Releases a grant whose renewals have ended: sends one request, and leaves repetitions to the
/// janitor.
pub(crate) async fn release(
    state: &ClientState,
    plan: &Plan,
    request: &ReleaseRequest,
    since: Moment,
) -> ReleaseOutcome {
    let mut ticket = Ticket::new(state, plan, request.lease_id);
    ticket.unsettled = request.ending.for_good;
    ticket.hold = request.ending.hold;
    let mut began = None;
    let reply = match state.engine.release(request) {
        Answer::Ready(reply) => reply,
        _ if !state.is_own_process() => {
            // A forked child has no right to its parent's lease; the ticket's drop checks that too.
            let held_for = since.until(state.clock.now());
            return ReleaseOutcome::unconfirmed(held_for, &state.no_answer());
        }
        Answer::Later(later) => {
            ticket.register();
            // The id must not be granted from here on, and this future may be dropped.
            ticket.unsettled = true;
            let now = state.clock.now();
            began = Some(now);
            let limit = now.after(CONFIRMATION_TIMEOUT.min(state.answer_within));
            let answer = state.await_answer_here(later, limit);
            match plan.mode {
                Mode::Exclusive => state.await_release(answer, &plan.name).await,
                _ => answer.await,
            }
        }
    };
    match reply {
        Some(Ok(reply)) => {
            ticket.forget();
            outcome(reply, false, || since.until(state.clock.now()))
        }
        reply => {
            let now = state.clock.now();
            let began = began.unwrap_or(now);
            let limit = began.after(CONFIRMATION_TIMEOUT);
            let reply = reply.unwrap_or_else(|| Err(state.no_answer_within(began.until(now))));
            let failed = FailedRelease { since, limit, reply };
            Box::pin(await_confirmation(state, ticket, failed)).await
        }
    }
}

/// A release without a good answer.
struct FailedRelease {
    /// When the hold began.
    since: Moment,
    /// Until when its caller waits for a confirmation.
    limit: Moment,
    reply: Result<ReleaseReply, LockError>,
}

/// Passes a failed release to the janitor, and waits for the janitor's answer.
async fn await_confirmation(
    state: &ClientState,
    ticket: Ticket<'_>,
    failed: FailedRelease,
) -> ReleaseOutcome {
    let FailedRelease { since, mut limit, mut reply } = failed;
    let mut ticket = Some(ticket);
    let mut reports = None;
    let mut unanswered = false;
    loop {
        let held_for = || since.until(state.clock.now());
        let error = match reply {
            Ok(reply) => {
                if let Some(ticket) = ticket {
                    ticket.forget();
                }
                return outcome(reply, unanswered, held_for);
            }
            Err(error) => error,
        };
        if let Some(reason) = final_errors::lost_by(&error) {
            if let Some(ticket) = ticket {
                ticket.forget();
            }
            return ReleaseOutcome::Lost { reason };
        }
        unanswered |= error.certainty() != Certainty::NotApplied;
        let reports = match (ticket.take(), &mut reports) {
            (Some(mut ticket), reports) => {
                ticket.unsettled |= unanswered;
                reports.insert(ticket.leave_to_janitor())
            }
            (None, Some(reports)) => reports,
            (None, None) => return ReleaseOutcome::unconfirmed(held_for(), &error),
        };
        limit = limit.min(state.clock.now().after(AFTER_FAILURE));
        if final_errors::is_final(&error) || state.clock.now() >= limit {
            return ReleaseOutcome::unconfirmed(held_for(), &error);
        }
        let report = pin!(reports.recv());
        reply = match select(report, state.clock.sleep_until(limit)).await {
            Either::Left((Some(reply), _)) => reply,
            Either::Left((None, _)) | Either::Right(_) => {
                return ReleaseOutcome::unconfirmed(held_for(), &error);
            }
        };
    }
}

fn outcome(reply: ReleaseReply, unanswered: bool, since: impl Fn() -> Duration) -> ReleaseOutcome {
    match reply {
        ReleaseReply::Released { held_for } => {
            let held_for = held_for.unwrap_or_else(since);
            ReleaseOutcome::Released { held_for, confirmed: true, failure: None }
        }
        ReleaseReply::NotHeld { revoked: Some(reason) } => {
            ReleaseOutcome::Lost { reason: LostReason::Revoked(reason) }
        }
        // An earlier request whose answer was lost may have released it.
        ReleaseReply::NotHeld { revoked: None } if unanswered => {
            let message = "nothing is held under the lease id any more; the answer to an earlier \
                           release was lost";
            let failure = Some(ErrorKind::Unavailable { message: message.to_owned() });
            ReleaseOutcome::Released { held_for: since(), confirmed: false, failure }
        }
        ReleaseReply::NotHeld { revoked: None } | ReleaseReply::Withdrawn => {
            ReleaseOutcome::Lost { reason: LostReason::Missing }
        }
    }
}
