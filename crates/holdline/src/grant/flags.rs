//! What is recorded about a grant, one bit each.

use std::sync::atomic::{AtomicU8, Ordering};

/// Something that is recorded about a grant.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Flag {
    /// The keeper reported that the lease is at risk.
    AtRisk = 1,
    /// An operator revoked it. Never cleared.
    Revoked = 2,
    /// It was lost. Never cleared.
    Lost = 4,
    /// It was ended on purpose. Never cleared.
    Ended = 8,
    /// Its renewals are paused.
    Paused = 16,
    /// Somebody listens or has listened; otherwise nobody is notified. Never cleared.
    HasListeners = 32,
    /// The store has granted only a part of the whole lease; one renewal reaches the rest.
    First = 64,
    /// An observer knows that it is held, and not yet that it has ended.
    Observed = 128,
}

/// The flags of one grant. Each change is a read-modify-write, so that of two threads that each set
/// a flag and then read the other's, at least one sees it.
#[derive(Default)]
pub(super) struct Flags(AtomicU8);

impl Flags {
    pub(super) fn is_set(&self, flag: Flag) -> bool {
        self.0.load(Ordering::Acquire) & flag as u8 != 0
    }

    /// Sets a flag. Returns whether it was set before.
    pub(super) fn set(&self, flag: Flag) -> bool {
        self.0.fetch_or(flag as u8, Ordering::AcqRel) & flag as u8 != 0
    }

    /// Clears a flag. Returns whether it was set before.
    pub(super) fn clear(&self, flag: Flag) -> bool {
        self.0.fetch_and(!(flag as u8), Ordering::AcqRel) & flag as u8 != 0
    }
}
