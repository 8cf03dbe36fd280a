//! What an engine can do, as data.
//!
//! The same value is the profile that the lock table takes when it stands for that engine, and
//! the list of groups that the conformance suite runs. Asking for what is missing fails when
//! the lock is built, with `Unsupported`.

use std::time::Duration;

use serde::Serialize;

use crate::error::LockError;
use crate::lease::{Hold, MAX_LEASE, MIN_LEASE};
use crate::mode::Mode;

/// How a grant ends when its holder falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// Each lease by its own timer.
    Lease,
    /// All leases of a session together.
    Session,
    /// With the connection or process, at once.
    Live,
}

/// Who a freed name goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HandOff {
    /// To the head of the queue, which claims it within a window.
    Claim,
    /// To the next in the store's own queue, at once.
    Direct,
    /// To whoever asks first.
    None,
}

/// Which clock the store's timer runs like, and so which one the holder must read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// Counts the time that the machine is suspended: the store's timer runs on meanwhile.
    Boottime,
    /// Stands still with the machine: store and holder sleep together.
    Monotonic,
}

/// The leases that an engine can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// The store rounds up to a multiple of this.
    pub step: Duration,
}

/// What an engine can do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_excessive_bools)]
pub struct Capabilities {
    /// The engine's short name, such as `local`.
    pub engine: &'static str,
    /// Which store it is: two clients whose identities are equal share their names. Holds no
    /// secret.
    pub identity: String,
    /// Grants in the order in which contenders queued.
    pub fair: bool,
    /// Shared mode.
    pub shared: bool,
    /// Permits.
    pub permits: bool,
    /// Fencing tokens.
    pub fencing: bool,
    /// Contenders can queue; otherwise a busy name must be asked again.
    pub queue: bool,
    /// Revoke, forced at least.
    pub revoke: bool,
    /// Polite revoke: the holder is told, and keeps the name for the rest of its lease.
    pub polite_revoke: bool,
    /// Freeze and unfreeze.
    pub freeze: bool,
    /// Listing of names.
    pub list: bool,
    /// Live grants: [`Hold::Live`].
    pub live: bool,
    /// Detached grants: [`Hold::Detached`].
    pub detach: bool,
    /// What a holder tells about itself is kept and shown.
    pub metadata: bool,
    /// Count-down latches: [`crate::latch`].
    pub latch: bool,
    /// How a grant ends when its holder falls silent.
    pub expiry: Expiry,
    /// The leases that can be kept.
    pub lease: LeaseRange,
    /// Who a freed name goes to.
    pub hand_off: HandOff,
    /// How much later than the lease's end a dead holder's name may become free.
    pub lag: Duration,
    /// Which clock the holder must read.
    pub clock: ClockKind,
    /// How many contenders may queue for one name.
    pub max_waiters: usize,
    /// An acquire whose outcome is unknown may be asked again under its id. Otherwise the id is
    /// dead then: a quorum might answer through another majority with another token.
    pub repeat: bool,
    /// Of several that ask at the same moment it may be that none is granted: each has a part of
    /// the votes, and all give theirs up.
    pub splits: bool,
    /// How many lines a renewal batch may have.
    pub max_batch: usize,
}

impl Capabilities {
    /// Returns the capabilities of the reference: the lock table with everything it knows. A latch
    /// is no part of it.
    pub fn reference(engine: &'static str, identity: impl Into<String>) -> Capabilities {
        Capabilities {
            engine,
            identity: identity.into(),
            fair: true,
            shared: true,
            permits: true,
            fencing: true,
            queue: true,
            revoke: true,
            polite_revoke: true,
            freeze: true,
            list: true,
            live: false,
            detach: true,
            metadata: true,
            latch: false,
            expiry: Expiry::Lease,
            lease: LeaseRange { min: MIN_LEASE, max: MAX_LEASE, step: Duration::from_millis(1) },
            hand_off: HandOff::Claim,
            lag: Duration::ZERO,
            clock: ClockKind::Monotonic,
            max_waiters: 10_000,
            repeat: true,
            splits: false,
            max_batch: 128,
        }
    }

    /// Checks that a lock of this mode and hold can be had here.
    ///
    /// # Errors
    /// `Unsupported` names the missing feature, `Invalid` the duration out of range. Nothing was
    /// asked of the store.
    pub fn check(&self, mode: Mode, hold: Hold) -> Result<(), LockError> {
        match mode {
            Mode::Shared if !self.shared => return Err(self.lacks("shared mode")),
            Mode::Permits { .. } if !self.permits => return Err(self.lacks("permits")),
            Mode::Exclusive | Mode::Shared | Mode::Permits { .. } => {}
        }
        match hold {
            Hold::Live if !self.live => return Err(self.lacks("live grants")),
            Hold::Detached(_) if !self.detach => return Err(self.lacks("detached leases")),
            Hold::Live => return Ok(()),
            Hold::Leased(_) | Hold::Detached(_) => {}
        }
        let range = self.lease;
        match hold.duration() {
            Some(lease) if !(range.min..=range.max).contains(&lease) => Err(LockError::invalid(
                self.engine,
                "lease_duration",
                format_args!("must be from {:?} to {:?} here, not {lease:?}", range.min, range.max),
            )),
            _ => Ok(()),
        }
    }

    /// Makes the error for a feature that is missing here.
    pub fn lacks(&self, feature: &'static str) -> LockError {
        LockError::unsupported(self.engine, feature)
    }
}
