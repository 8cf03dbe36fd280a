//! What changes, as seen from outside.

use std::time::Duration;

use holdline_core::{FreezeView, HolderView, LockName, WaiterView};

/// One change of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The lock name.
    pub name: LockName,
    /// What has changed.
    pub event: LockEvent,
    /// It was so already when the watch first saw the name, or this part of its queue: the change
    /// itself was not seen.
    pub found: bool,
    /// It happened within this time before the round was complete; of no meaning if `found`.
    pub within: Duration,
}

/// What has changed. Metadata, token, mode and times are those of the last round that showed the
/// holder or waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// A lease was granted.
    Granted {
        /// The holder.
        holder: Box<HolderView>,
        /// How long the queue entry was at the last look, if it had one.
        waited: Option<Duration>,
    },
    /// A lease is over: released, expired or revoked.
    Ended {
        /// The holder, as last seen. A revocation that was seen is in its state.
        holder: Box<HolderView>,
        /// How the end lies to the end of the lease.
        when: EndedWhen,
        /// The least that was left of the lease at a look; `None` for a live grant.
        slack: Option<Duration>,
    },
    /// A lease was renewed: its end has moved.
    Renewed {
        /// The holder.
        holder: Box<HolderView>,
        /// The least that was left of the lease at any look since the grant. The true minimum is up
        /// to one pause between rounds smaller.
        slack: Duration,
    },
    /// An operator has revoked the lease; the holder is still there.
    Revoked {
        /// The holder; its state has the reason.
        holder: Box<HolderView>,
    },
    /// A contender waits.
    Queued {
        /// The waiter.
        waiter: Box<WaiterView>,
        /// Its position in the queue, from 0.
        position: usize,
    },
    /// A contender no longer waits and does not hold the name: it gave up, or its process ended, or
    /// it held the name only between two rounds.
    LeftQueue {
        /// The waiter, as last seen.
        waiter: Box<WaiterView>,
    },
    /// An operator has frozen the name, or changed the freeze, or the freeze has begun.
    Frozen {
        /// The freeze.
        freeze: FreezeView,
    },
    /// The freeze is over.
    Unfrozen {
        /// The freeze, as last seen.
        freeze: FreezeView,
    },
}

/// How the end of a grant lies to the end of its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedWhen {
    /// Certainly before the lease's end: it was released or revoked, unless the store has lost
    /// data.
    BeforeLeaseEnd,
    /// The lease may have expired; it may as well have been released or revoked.
    PerhapsExpired,
    /// The grant had no lease: it ends with its processes, or on purpose.
    NoLease,
}

impl LockEvent {
    /// Returns the word for this event in JSON and on pages.
    pub fn word(&self) -> &'static str {
        match self {
            LockEvent::Granted { .. } => "granted",
            LockEvent::Ended { .. } => "ended",
            LockEvent::Renewed { .. } => "renewed",
            LockEvent::Revoked { .. } => "revoked",
            LockEvent::Queued { .. } => "queued",
            LockEvent::LeftQueue { .. } => "left_queue",
            LockEvent::Frozen { .. } => "frozen",
            LockEvent::Unfrozen { .. } => "unfrozen",
        }
    }
}

impl EndedWhen {
    /// Returns the word for this in JSON and on pages.
    pub fn word(self) -> &'static str {
        match self {
            EndedWhen::BeforeLeaseEnd => "before_lease_end",
            EndedWhen::PerhapsExpired => "perhaps_expired",
            EndedWhen::NoLease => "no_lease",
        }
    }
}
