//! A handle to a grant, for the code that runs under it.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Anchor, FencingToken, LeaseId, LockName, LostReason, Mode, Moment};
use tokio_util::sync::CancellationToken;

use crate::core::ClientState;
use crate::grant::{Grant, RiskReason};

/// A handle to a grant, for the code that runs under it. It shows whether the lease is still valid;
/// dropping it releases nothing.
///
/// Get one from [`crate::Guard::held`], or as the argument of [`crate::Mutex::run`]. It can be
/// cloned, sent to other tasks and kept longer than the guard; after the end of the guard it is
/// invalid.
#[derive(Clone)]
pub struct Held {
    pub(crate) state: Arc<ClientState>,
    pub(crate) grant: Arc<Grant>,
}

impl Held {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        &self.grant.plan.name
    }

    /// Returns the mode in which the name is held.
    pub fn mode(&self) -> Mode {
        self.grant.plan.mode
    }

    /// Returns the number to pass to the resource, which refuses smaller ones.
    pub fn fencing_token(&self) -> FencingToken {
        self.grant.token
    }

    /// Returns the proof of the grant: anybody who knows it can renew and release.
    pub fn lease_id(&self) -> LeaseId {
        self.grant.lease_id
    }

    /// Returns until when the lease is valid, on the client's clock; [`Moment::ORIGIN`] once it is
    /// over, [`Moment::NEVER`] for a live grant.
    pub fn valid_until(&self) -> Moment {
        self.state.valid_until(&self.grant)
    }

    /// Returns for how long the lease is still valid; zero once it is over.
    pub fn remaining(&self) -> Duration {
        self.state.clock.now().until(self.valid_until())
    }

    /// Returns whether the lease is valid. It reads only the clock and the process id: no I/O, no
    /// mutex.
    ///
    /// # Guarantees
    /// It becomes false before the store's timer can free the name, and is false in a forked
    /// process. The answer may be outdated as soon as it is returned: a process that pauses after
    /// it can still write late, and only the fencing token prevents that.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), holdline::LockError> {
    /// # let client = holdline::Client::connect("memory:held").await?;
    /// let guard = client.mutex("orders/17")?.lock().await?;
    /// let held = guard.held();
    /// let job = tokio::spawn(async move { held.is_valid() });
    /// assert!(job.await.expect("no panic"));
    ///
    /// let held = guard.held();
    /// guard.release().await.into_result()?;
    /// assert!(!held.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.state.believes(&self.grant)
    }

    /// Resolves when the lease is at risk, an operator has revoked it, or it is over. It is at risk
    /// when one renewal interval is left, or half of the time from its last confirmation to its
    /// end, if that is less.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn at_risk(&self) -> RiskReason {
        if !self.state.is_own_process() {
            return RiskReason::Lost(LostReason::Expired);
        }
        self.grant.at_risk(&self.state.clock).await
    }

    /// Resolves when the lease is no longer valid, or its guard has ended. In a forked process,
    /// which renews nothing, it resolves at once.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// # Guarantees
    /// A timer wakes it at the end of the validity, also if nothing renews the lease any more: the
    /// client's runtime may be blocked or have ended. It cannot be polled while its own runtime is
    /// blocked.
    pub async fn lost(&self) -> LostReason {
        if !self.state.is_own_process() {
            return LostReason::Expired;
        }
        self.grant.lost(&self.state.clock).await
    }

    /// Returns a token that is cancelled when an operator revokes the lease, when it is lost, and
    /// when its guard is released or dropped. It is already cancelled in a forked process.
    pub fn cancellation_token(&self) -> CancellationToken {
        if !self.state.is_own_process() {
            let token = CancellationToken::new();
            token.cancel();
            return token;
        }
        self.grant.cancellation_token(&self.state.clock)
    }

    /// Returns the anchor that keeps a live grant, for a child process to inherit; `None` for a
    /// leased grant.
    pub fn anchor(&self) -> Option<&Anchor> {
        self.grant.anchor.as_ref()
    }
}

crate::debug::debug_of!(Held, |it|
    name: it.name(), mode: it.mode(), lease_id: it.lease_id(), fencing_token: it.fencing_token(),
    valid: it.is_valid()
);
