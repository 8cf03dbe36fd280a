//! What an engine can do, as data.
//!
//! The same value is the profile of the lock table when it stands for that engine, and selects the
//! groups of the conformance suite. A lock that needs a missing feature fails when it is built,
//! with `Unsupported`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::LockError;
use crate::lease::{Hold, MAX_LEASE, MIN_LEASE};
use crate::mode::{LockKind, Mode};

/// How a grant ends if its holder falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// Each lease by its own timer.
    Lease,
    /// All leases of a session together.
    Session,
    /// At once, with the connection or process.
    Live,
}

/// Which contender gets a freed name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandOff {
    /// The head of the queue. The message to it is the grant, and its first lease is short.
    Message,
    /// The head of the queue, which asks for its grant.
    Direct,
    /// The one that asks first.
    None,
}

/// Which clock matches the store's timer, and so which one the holder must read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// Counts the time of a suspended machine, because the store's timer runs on meanwhile.
    Boottime,
    /// Stops while the machine is suspended: store and holder are suspended together.
    Monotonic,
}

/// Who keeps the audit trail of a store: [`crate::audit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditTrail {
    /// Nobody.
    None,
    /// The store: the program that carries out an operation appends its record.
    Store,
    /// The server that the engine asks: it appends the records of its clients itself, and returns
    /// them if its store keeps any.
    Server,
}

/// The leases that an engine can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRange {
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    /// The store rounds a lease up to a multiple of this.
    pub step: Duration,
}

/// What an engine can do. A server sends it to the engine `http`: who adds a field increments
/// `PROTOCOL` there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)]
pub struct Capabilities {
    /// The engine's short name, such as `local`. Each program has its own words for it.
    #[serde(skip_deserializing)]
    pub engine: &'static str,
    /// Which store it is: two clients with equal identities share their names. Contains no secret.
    pub identity: String,
    /// Grants in the order in which contenders queued.
    pub fair: bool,
    /// Contenders for an exclusive lock queue, and are granted in that order, if the options of the
    /// lock ask for it. Without that they neither queue nor pass the queue.
    pub fair_on_request: bool,
    /// Shared mode.
    pub shared: bool,
    /// Permits.
    pub permits: bool,
    /// Fencing tokens.
    pub fencing: bool,
    /// Contenders can queue; otherwise they must retry.
    pub queue: bool,
    /// Revoke, forced at least.
    pub revoke: bool,
    /// Polite revoke: the holder is notified, and keeps the name for the rest of its lease.
    pub polite_revoke: bool,
    /// Revoke of a holder by its id, forced.
    pub revoke_holder: bool,
    /// Removal of a waiter from the queue.
    pub remove_waiter: bool,
    /// Freeze and unfreeze.
    pub freeze: bool,
    /// Listing of names.
    pub list: bool,
    /// Live grants: [`Hold::Live`].
    pub live: bool,
    /// Detached grants: [`Hold::Detached`].
    pub detach: bool,
    /// What a holder states about itself is kept and shown.
    pub metadata: bool,
    /// Count-down latches: [`crate::latch`].
    pub latch: bool,
    /// Counting semaphores, which have no leases: [`crate::counting`].
    pub counting: bool,
    /// Who keeps the audit trail.
    pub audit: AuditTrail,
    /// How a grant ends if its holder falls silent.
    pub expiry: Expiry,
    /// The leases that can be kept.
    pub lease: LeaseRange,
    /// Which contender gets a freed name.
    pub hand_off: HandOff,
    /// How much later than the end of its lease a dead holder's name may become free.
    pub lag: Duration,
    /// For how long a server that was restarted or promoted grants nothing, since it may lack
    /// grants. `None`: it grants at once.
    pub quarantine: Option<Duration>,
    /// Which clock the holder must read.
    pub clock: ClockKind,
    /// How many contenders may queue for one name.
    pub max_waiters: usize,
    /// After an acquire of unknown outcome, the client may repeat it under the same lease id.
    /// Otherwise the id must not be used again: another majority of a quorum might reply with
    /// another token.
    pub repeat: bool,
    /// Simultaneous requests may split the vote, so that none of them is granted.
    pub splits: bool,
    /// Requests of one client about one name are executed in the order in which they are sent.
    pub in_order: bool,
    /// How many renewals a batch may have.
    pub max_batch: usize,
}

impl Capabilities {
    /// Returns the capabilities of the reference: the lock table with every feature. Latches,
    /// counting semaphores, the audit trail and revoke by a holder's id are no part of it, and it
    /// is always fair.
    pub fn reference(engine: &'static str, identity: impl Into<String>) -> Capabilities {
        Capabilities {
            engine,
            identity: identity.into(),
            fair: true,
            fair_on_request: false,
            shared: true,
            permits: true,
            fencing: true,
            queue: true,
            revoke: true,
            polite_revoke: true,
            revoke_holder: false,
            remove_waiter: true,
            freeze: true,
            list: true,
            live: false,
            detach: true,
            metadata: true,
            latch: false,
            counting: false,
            audit: AuditTrail::None,
            expiry: Expiry::Lease,
            lease: LeaseRange { min: MIN_LEASE, max: MAX_LEASE, step: Duration::from_millis(1) },
            hand_off: HandOff::Message,
            lag: Duration::ZERO,
            quarantine: None,
            clock: ClockKind::Monotonic,
            max_waiters: 10_000,
            repeat: true,
            splits: false,
            in_order: true,
            max_batch: 128,
        }
    }

    /// Checks that the engine supports a lock of this mode and hold.
    ///
    /// # Errors
    /// `Unsupported` names the missing feature, `Invalid` the duration out of range. No request was
    /// sent.
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

    /// Returns whether a contender for this lock may queue: always, or because the lock asks for
    /// it.
    pub fn may_queue(&self, mode: Mode, kind: LockKind) -> bool {
        self.queue || (self.fair_on_request && mode == Mode::Exclusive && kind.is_mutex())
    }

    /// Checks that a lock of this mode can be fair.
    ///
    /// # Errors
    /// `Unsupported`. No request was sent.
    pub fn check_fair(&self, mode: Mode) -> Result<(), LockError> {
        match mode {
            _ if self.fair => Ok(()),
            Mode::Exclusive if self.fair_on_request => Ok(()),
            _ if self.fair_on_request => {
                Err(self.lacks("the option `fair` for anything but a mutex"))
            }
            _ => Err(self.lacks("the option `fair`: grants have no order here")),
        }
    }

    /// Makes the error for counting semaphores, which are missing here.
    pub fn lacks_counting(&self) -> LockError {
        self.lacks("counting semaphores, which only Redis with `dialect=redisson` has")
    }

    /// Makes the error for the audit trail, which is missing here.
    pub fn lacks_audit(&self) -> LockError {
        self.lacks("an audit trail")
    }

    /// Makes the error for a feature that is missing here.
    pub fn lacks(&self, feature: &'static str) -> LockError {
        LockError::unsupported(self.engine, feature)
    }
}
