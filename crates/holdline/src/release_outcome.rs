//! The outcome of a release, as callers and observers learn it.

use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError, LostReason};

/// The outcome of a release.
///
/// [`ReleaseOutcome::into_result`] makes an error of a loss, for `?`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lease may have been lost before the release"]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lease was released: the name is free, or was handed over to the next waiter. If
    /// `confirmed` is false the store has not said so yet.
    Released {
        /// How long it was held.
        held_for: Duration,
        /// The store confirmed it. Otherwise the janitor continues the release, and the name is
        /// free at the end of the lease at the latest.
        confirmed: bool,
        /// Why the store did not confirm it; `None` when it did.
        failure: Option<ErrorKind>,
    },
    /// The lease was lost before the release; somebody else may have held the name since.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// An inner guard of an owner ended; the grant continues with the remaining guards.
    Nested {
        /// The number of remaining guards.
        depth: usize,
    },
}

impl ReleaseOutcome {
    /// Returns whether the lease was certainly held until the release: the store confirmed it, or
    /// other guards of the owner still hold the lease. It is false for a release that the store has
    /// not confirmed (`Released { confirmed: false, .. }`), although the name will be free.
    pub fn is_released(&self) -> bool {
        match self {
            ReleaseOutcome::Released { confirmed, .. } => *confirmed,
            ReleaseOutcome::Nested { .. } => true,
            ReleaseOutcome::Lost { .. } => false,
        }
    }

    /// Returns whether the lease was lost before it was released.
    pub fn is_lost(&self) -> bool {
        matches!(self, ReleaseOutcome::Lost { .. })
    }

    /// Returns an error unless the lease was certainly held until the release
    /// ([`ReleaseOutcome::is_released`]).
    ///
    /// # Errors
    /// - `Lost`, not applied: the lease was lost before.
    /// - the failure of the store, such as `Unavailable`, with an unknown outcome: it did not
    ///   confirm. The release is repeated in the background.
    pub fn into_result(self) -> Result<(), LockError> {
        let (kind, certainty) = match self {
            ReleaseOutcome::Nested { .. } | ReleaseOutcome::Released { confirmed: true, .. } => {
                return Ok(());
            }
            ReleaseOutcome::Lost { reason } => (ErrorKind::Lost { reason }, Certainty::NotApplied),
            ReleaseOutcome::Released { failure, .. } => {
                let message = "the release is not confirmed".to_owned();
                (failure.unwrap_or(ErrorKind::Unavailable { message }), Certainty::Unknown)
            }
        };
        Err(LockError::new("holdline", kind, certainty))
    }

    /// Makes the outcome of a release that the store did not confirm.
    pub(crate) fn unconfirmed(held_for: Duration, failure: &LockError) -> ReleaseOutcome {
        let failure = Some(failure.kind().clone());
        ReleaseOutcome::Released { held_for, confirmed: false, failure }
    }
}
