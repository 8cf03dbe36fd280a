//! What became of a request on one node.
//!
//! Rules read the values. People read the text that [`NodeOutcome::describe`] makes of them, and no
//! rule reads that.

use std::time::Duration;

use holdline_core::quorum::{VoteRefusal, majority};
use holdline_core::{ErrorKind, HolderSummary, LockError, LostReason};

use super::not_voting::NotVoting;
use super::{ENGINE, not_applied};

/// The outcome of a request on one node.
#[derive(Clone, Debug, Default)]
pub(super) enum NodeOutcome {
    /// There is no answer, and no error: the last report of the node describes it.
    #[default]
    Open,
    /// It was not asked; the text says why.
    NotAsked(String),
    /// It granted the name.
    Granted,
    /// Another lease id holds the name there.
    Busy(Option<Box<HolderSummary>>),
    /// It does not vote for the request.
    Refused(VoteRefusal),
    /// It holds the lease because it was healed there.
    Healed,
    /// It released the lease.
    Released,
    /// It had nothing to release.
    NothingToRelease,
    /// It does not hold the lease.
    NotHeld,
    /// Its answer fits no request.
    Unexpected,
    /// The request failed.
    Failed(LockError),
}

impl NodeOutcome {
    /// Returns whether the node granted the name.
    pub(super) fn is_granted(&self) -> bool {
        matches!(self, NodeOutcome::Granted)
    }

    /// Returns whether the node was asked, or should have been, and its answer may have come too
    /// late.
    pub(super) fn may_be_slow(&self) -> bool {
        match self {
            NodeOutcome::Failed(error) => error.is_unavailable(),
            NodeOutcome::Open | NodeOutcome::NotAsked(_) => true,
            _ => false,
        }
    }

    /// Describes it for people; `None` if nothing is known. `late`: a majority granted, but no
    /// lease was left.
    pub(super) fn describe(&self, late: bool) -> Option<String> {
        Some(match self {
            NodeOutcome::Open => return None,
            NodeOutcome::NotAsked(why) => why.clone(),
            NodeOutcome::Granted if late => "granted, but the lease had ended by then".to_owned(),
            NodeOutcome::Granted => "granted".to_owned(),
            NodeOutcome::Busy(Some(holder)) => format!("held by {holder}"),
            NodeOutcome::Busy(None) => "held by another client".to_owned(),
            NodeOutcome::Refused(why) => NotVoting::from(*why).problem(),
            NodeOutcome::Healed => "the lease was healed there, which proves no token".to_owned(),
            NodeOutcome::Released => "released".to_owned(),
            NodeOutcome::NothingToRelease => "holds nothing of it".to_owned(),
            NodeOutcome::NotHeld => "does not hold the lease".to_owned(),
            NodeOutcome::Unexpected => "sent an unexpected answer".to_owned(),
            NodeOutcome::Failed(error) => error.kind().to_string(),
        })
    }
}

/// Returns how many nodes granted the name.
pub(super) fn granted(outcomes: &[NodeOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.is_granted()).count()
}

/// Returns whether a majority granted. A request that failed all the same was too late.
pub(super) fn is_late(outcomes: &[NodeOutcome]) -> bool {
    granted(outcomes) >= majority(outcomes.len())
}

/// Rejects a lease that is longer than the set allows.
pub(super) fn check_lease(longest: Duration, lease: Duration) -> Result<(), LockError> {
    if lease <= longest {
        return Ok(());
    }
    let message = format!("must be at most {longest:?}, which these nodes were set up for");
    Err(LockError::invalid(ENGINE, "lease_duration", message))
}

/// Makes the error for a lease id that was undone or revoked.
pub(super) fn ended_error(revoked: Option<String>) -> LockError {
    not_applied(match revoked {
        Some(reason) => ErrorKind::Lost { reason: LostReason::Revoked(reason) },
        None => ErrorKind::Cancelled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_late_only_if_a_majority_granted() {
        let late = |granted: usize| {
            let outcome = |node| {
                if node < granted {
                    NodeOutcome::Granted
                } else {
                    // A text decides nothing.
                    NodeOutcome::NotAsked("granted".to_owned())
                }
            };
            is_late(&(0..5).map(outcome).collect::<Vec<_>>())
        };
        assert_eq!([0, 2, 3, 5].map(late), [false, false, true, true]);
    }
}
