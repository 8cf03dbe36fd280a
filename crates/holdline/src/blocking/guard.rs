//! Guards without async.

use std::time::Duration;

use holdline_core::{Anchor, FencingToken, LeaseId, LockError, LockName, LostReason, Mode, Moment};

use crate::grant::RiskReason;
use crate::guard::held::Held;
use crate::lease::{DetachError, Lease};
use crate::parker::block_on;
use crate::release_outcome::ReleaseOutcome;

/// As [`crate::Guard`], without async.
#[derive(Debug)]
#[must_use = "a guard that is not kept releases the name at once"]
pub struct Guard(pub(super) crate::Guard);

impl Guard {
    /// Returns the lock name.
    pub fn name(&self) -> &LockName {
        self.0.name()
    }

    /// Returns how the name is held.
    pub fn mode(&self) -> Mode {
        self.0.mode()
    }

    /// As [`crate::Guard::fencing_token`].
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// As [`crate::Guard::lease_id`].
    pub fn lease_id(&self) -> LeaseId {
        self.0.lease_id()
    }

    /// As [`crate::Guard::valid_until`].
    pub fn valid_until(&self) -> Moment {
        self.0.valid_until()
    }

    /// As [`crate::Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// As [`crate::Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// As [`crate::Guard::anchor`].
    pub fn anchor(&self) -> Option<&Anchor> {
        self.0.anchor()
    }

    /// As [`crate::Guard::held`].
    pub fn held(&self) -> Held {
        self.0.held()
    }

    /// Blocks until the lease is at risk, as [`crate::Guard::at_risk`].
    pub fn wait_at_risk(&self) -> RiskReason {
        block_on(self.0.at_risk())
    }

    /// Blocks until the lease is lost, as [`crate::Guard::lost`].
    pub fn wait_lost(&self) -> LostReason {
        block_on(self.0.lost())
    }

    /// As [`crate::Guard::renew`].
    ///
    /// # Errors
    /// As [`crate::Guard::renew`].
    pub fn renew(&self) -> Result<Duration, LockError> {
        block_on(self.0.renew())
    }

    /// As [`crate::Guard::renew_for`].
    ///
    /// # Errors
    /// As [`crate::Guard::renew_for`].
    pub fn renew_for(&self, lease_duration: Duration) -> Result<Duration, LockError> {
        block_on(self.0.renew_for(lease_duration))
    }

    /// As [`crate::Guard::release`].
    pub fn release(self) -> ReleaseOutcome {
        block_on(self.0.release())
    }

    /// As [`crate::Guard::detach`].
    ///
    /// # Errors
    /// As [`crate::Guard::detach`].
    pub fn detach(self) -> Result<Lease, DetachError> {
        block_on(self.0.detach())
    }

    /// Returns the async guard.
    pub fn into_async(self) -> crate::Guard {
        self.0
    }
}

/// As [`crate::Guards`], without async.
#[derive(Debug)]
#[must_use = "guards that are not kept release their names at once"]
pub struct Guards(pub(super) crate::Guards);

impl Guards {
    /// Returns the guards by value, in the order of the names.
    pub fn into_guards(self) -> Vec<Guard> {
        self.0.into_guards().into_iter().map(Guard).collect()
    }

    /// Returns whether all leases are valid.
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// As [`crate::Guards::release`].
    #[must_use = "a lease may have been lost before the release"]
    pub fn release(self) -> Vec<ReleaseOutcome> {
        block_on(self.0.release())
    }
}
