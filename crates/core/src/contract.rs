//! What library and engine say to each other.
//!
//! Plain data, the same for every engine; [`crate::Engine`] carries it. Durations travel as
//! what is *left*, never as times of day, so that no clock is compared with another. `left` is
//! counted from the moment at which the call began: an engine whose knowledge is older (votes
//! of several nodes, a session's last keepalive) answers with less.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::capabilities::Capabilities;
use crate::error::LockError;
use crate::latch::{LatchCommand, LatchReply};
use crate::lease::Hold;
use crate::lease_id::{ClientId, LeaseId};
use crate::metadata::Metadata;
use crate::mode::Mode;
use crate::name::LockName;
use crate::snapshot::HolderSummary;
use crate::token::FencingToken;

/// The shortest claim window: a contender that was handed a name has at least this long to
/// claim it.
pub const MIN_CLAIM_WINDOW: Duration = Duration::from_secs(1);
/// The longest claim window that a contender may ask for.
pub const MAX_CLAIM_WINDOW: Duration = Duration::from_secs(10);
/// How often a client sends the heartbeat of everything it has queued.
pub const QUEUE_HEARTBEAT: Duration = Duration::from_secs(1);
/// A queued contender that is not heard for this long leaves the queue.
pub const QUEUE_SILENCE: Duration = Duration::from_secs(4);
/// A lease id that was given up is refused for at least this long.
pub const MIN_TOMBSTONE: Duration = Duration::from_secs(30);
/// How many contenders one command hands a name to at most: of readers, or of those who want
/// permits, more may fit. The others follow with the next command.
pub const HAND_OVER_BATCH: usize = 64;

/// Asks for a name, or asks again under the same lease id.
///
/// Asking again changes nothing that was given: the same token, and the duration that is left;
/// with another mode or hold it is `Invalid`. An id that was handed the name claims it by
/// asking again. After `Busy`, after `Unknown`, and after any error but one of unknown
/// certainty, the id is dead: the next attempt draws a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireRequest {
    /// The lock name.
    pub name: LockName,
    /// Fresh for each attempt; asked again only while no undo for it has been written.
    pub lease_id: LeaseId,
    /// Which client asks.
    pub client: ClientId,
    /// Exclusive, shared or permits.
    pub mode: Mode,
    /// How the grant is kept; starts with at most [`crate::lease::MAX_FIRST_LEASE`].
    pub hold: Hold,
    /// Queue when the name is not free; otherwise answer `Busy`.
    pub queue: bool,
    /// The store has answered under this id before, so it must know it: the claim, and every look
    /// after `Queued`. An id that it no longer knows (dropped from the queue, deleted) is answered
    /// [`AcquireReply::Unknown`] and is neither granted nor queued anew unseen. `false` for the
    /// first request, and when that is repeated because its outcome is unknown.
    pub known: bool,
    /// How long a hand-off waits for the claim: four round trips, within
    /// [`MIN_CLAIM_WINDOW`] and [`MAX_CLAIM_WINDOW`].
    pub claim_window: Duration,
    /// What the holder tells about itself.
    pub metadata: Metadata,
}

impl AcquireRequest {
    /// Checks what no store need be asked for.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid`: this engine cannot give what is asked for.
    pub fn check(&self, profile: &Capabilities) -> Result<(), LockError> {
        let engine = profile.engine;
        profile.check(self.mode, self.hold)?;
        if self.hold != self.hold.first() {
            let message = "a grant starts with at most 30s; renew it to a longer lease";
            return Err(LockError::invalid(engine, "lease_duration", message));
        }
        if let Mode::Permits { count, of } = self.mode {
            Mode::permits(count, of)
                .map_err(|error| LockError::invalid(engine, "permits", error))?;
        }
        if !(MIN_CLAIM_WINDOW..=MAX_CLAIM_WINDOW).contains(&self.claim_window) {
            let message = format!("must be from {MIN_CLAIM_WINDOW:?} to {MAX_CLAIM_WINDOW:?}");
            return Err(LockError::invalid(engine, "claim_window", message));
        }
        if self.queue && !profile.queue {
            return Err(profile.lacks("queueing"));
        }
        Ok(())
    }
}

/// What the store answers to an [`AcquireRequest`].
#[derive(Clone, Debug)]
pub enum AcquireReply {
    /// The name is held under the lease id.
    Granted {
        /// Constant for the life of the grant.
        token: FencingToken,
        /// How long the store keeps the grant; `None` for a live grant.
        left: Option<Duration>,
        /// What keeps a live grant; `None` for all others.
        anchor: Option<Anchor>,
    },
    /// The lease id stands in the queue.
    Queued {
        /// How many stand before it, where the engine can tell at a fair price. Far from the head
        /// an engine may count some that have left, and never too few.
        position: Option<usize>,
        /// Who holds the name now.
        holder: Option<Box<HolderSummary>>,
        /// When to look again at the latest.
        next_look: Duration,
    },
    /// The name is not free, and nothing of ours was left.
    Busy {
        /// Who holds the name, or stands first in the queue.
        holder: Option<Box<HolderSummary>>,
        /// After how long the name is free at the latest if nobody renews.
        at_most: Option<Duration>,
        /// When asking again, under a new id, is worth it.
        next_look: Duration,
    },
    /// The request said that the id was known, and it is not: it was dropped from the queue, its
    /// grant ended, or the store forgot. Nothing of ours was left.
    Unknown,
}

/// What keeps a live grant: it ends when the last copy of this descriptor is closed, in this
/// process and in all that inherited it.
#[derive(Clone, Debug)]
pub struct Anchor(Arc<OwnedFd>);

impl Anchor {
    /// Wraps the descriptor.
    pub fn new(descriptor: OwnedFd) -> Anchor {
        Anchor(Arc::new(descriptor))
    }

    /// Returns the descriptor, for a child to inherit.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.0
    }
}

/// What a line of a renewal batch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Keep the grant: give it this hold from now. A renewal never shortens a lease, and may turn
    /// a leased grant into a detached one or back (then `client` becomes its client).
    Keep(Hold),
    /// Keep the place in the queue, and tell how it stands. It never claims.
    Wait,
}

/// One line of a renewal batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewRequest {
    /// The lock name.
    pub name: LockName,
    /// The lease id that was granted or queued.
    pub lease_id: LeaseId,
    /// Which client asks.
    pub client: ClientId,
    /// What the line is about.
    pub purpose: Purpose,
}

/// What the store answers to a [`RenewRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenewReply {
    /// The grant is kept.
    Renewed {
        /// How long the store keeps it; `None` for a live grant.
        left: Option<Duration>,
    },
    /// It stands in the queue and was heard.
    Queued {
        /// How many stand before it, where the engine can tell at a fair price. Far from the head
        /// an engine may count some that have left, and never too few.
        position: Option<usize>,
        /// When to look again at the latest.
        next_look: Duration,
    },
    /// The name is held under this id: ask again to claim it or to learn the grant.
    Handed {
        /// Within how long; `None` when nothing ends it.
        claim_within: Option<Duration>,
    },
    /// An operator revoked the grant: this renewal and all later ones are refused.
    Revoked {
        /// The operator's words.
        reason: String,
        /// How long the store still keeps the grant; zero when it is already gone, `None` for a
        /// live grant that stays until its holder ends it.
        left: Option<Duration>,
    },
    /// The store does not know the id: lost, dropped from the queue, or never applied.
    Unknown,
}

impl RenewReply {
    /// Tells whether nothing stands under the lease id any more.
    pub fn is_over(&self) -> bool {
        match self {
            RenewReply::Unknown => true,
            RenewReply::Revoked { left, .. } => left.is_some_and(|left| left.is_zero()),
            RenewReply::Renewed { .. } | RenewReply::Queued { .. } | RenewReply::Handed { .. } => {
                false
            }
        }
    }
}

/// Ends whatever the lease id has: a grant, a hand-off, a place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Leave a tombstone: the id was repeated, or a request under it may still be on its way. It
    /// is refused, as `Cancelled`, for the longer of [`MIN_TOMBSTONE`] and the lease. An engine may
    /// leave one on its own account: a request on a connection that broke may arrive yet.
    pub for_good: bool,
    /// The lease that was asked for.
    pub hold: Hold,
}

/// Asks to end whatever a lease id has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The lock name.
    pub name: LockName,
    /// The lease id. It is dead once this request may have left.
    pub lease_id: LeaseId,
    /// How.
    pub ending: Ending,
}

/// What the store answers to a [`ReleaseRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseReply {
    /// The grant, or the hand-off that was not claimed yet, is over.
    Released {
        /// How long the store kept it, where the engine can tell.
        held_for: Option<Duration>,
    },
    /// The place in the queue is given up.
    Withdrawn,
    /// There was nothing under the id; nothing else was changed.
    NotHeld {
        /// The operator's words, if the grant had been revoked.
        revoked: Option<String>,
    },
}

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Takes the grant with this token away: politely, or now.
    Revoke {
        /// The lock name.
        name: LockName,
        /// The grant's token; another token changes nothing.
        token: FencingToken,
        /// The operator's words, at most 512 bytes.
        reason: String,
        /// Frees the name at once, outside the promise of exclusion; otherwise the holder is told
        /// and its renewals are refused.
        now: bool,
    },
    /// Keeps everybody from the name: takes it before the queue as soon as it is free.
    Freeze {
        /// The lock name.
        name: LockName,
        /// For how long, counted from now.
        duration: Duration,
        /// The operator's words, at most 512 bytes.
        reason: String,
    },
    /// Ends a freeze.
    Unfreeze {
        /// The lock name.
        name: LockName,
    },
    /// Makes all later tokens larger than `to`: after a store was restored from an old copy.
    RaiseFence {
        /// The largest token that may have been given.
        to: FencingToken,
    },
    /// Asks a count-down latch, which is no lock.
    Latch {
        /// The name of the latch.
        name: LockName,
        /// What is asked.
        command: LatchCommand,
    },
}

/// How many tokens are left above the largest that the fence may be raised to: 2^40, which last for
/// more than a century of ten thousand grants a minute.
pub const FENCE_HEADROOM: u64 = 1 << 40;
/// The longest reason that an operator may give, in bytes.
pub const MAX_REASON_BYTES: usize = 512;
/// The longest freeze: a year.
pub const MAX_FREEZE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Operation {
    /// Checks what no store need be asked for: what the engine lacks, how long reason and freeze
    /// are, and that a raised fence leaves tokens to give.
    ///
    /// # Errors
    /// `Unsupported`, or `Invalid`, which names what may be asked for. Nothing is applied.
    pub fn check(&self, capabilities: &Capabilities) -> Result<(), LockError> {
        match self {
            Operation::Revoke { name, reason, now, .. } => {
                check_revoke(capabilities, reason, *now).map_err(|error| error.with_name(name))
            }
            Operation::Freeze { name, duration, reason } => {
                let checked = check_freeze(capabilities, *duration, reason);
                checked.map_err(|error| error.with_name(name))
            }
            Operation::Unfreeze { name } => {
                check_unfreeze(capabilities).map_err(|error| error.with_name(name))
            }
            Operation::RaiseFence { to } => check_fence(capabilities, *to),
            Operation::Latch { name, command } => {
                command.check(capabilities).map_err(|error| error.with_name(name))
            }
        }
    }

    /// The lock that it is about; none for what concerns the whole store.
    pub fn name(&self) -> Option<&LockName> {
        match self {
            Operation::Revoke { name, .. }
            | Operation::Freeze { name, .. }
            | Operation::Unfreeze { name }
            | Operation::Latch { name, .. } => Some(name),
            Operation::RaiseFence { .. } => None,
        }
    }
}

pub(crate) fn check_revoke(
    capabilities: &Capabilities,
    reason: &str,
    now: bool,
) -> Result<(), LockError> {
    if !capabilities.revoke {
        return Err(capabilities.lacks("revoke"));
    }
    if !now && !capabilities.polite_revoke {
        return Err(capabilities.lacks("polite revoke: it must be forced"));
    }
    check_reason(capabilities, reason)
}

pub(crate) fn check_freeze(
    capabilities: &Capabilities,
    duration: Duration,
    reason: &str,
) -> Result<(), LockError> {
    check_unfreeze(capabilities)?;
    check_reason(capabilities, reason)?;
    if duration.is_zero() || duration > MAX_FREEZE {
        let message = format!("must be above 0 and at most 365 days, not {duration:?}");
        return Err(LockError::invalid(capabilities.engine, "duration", message));
    }
    Ok(())
}

pub(crate) fn check_unfreeze(capabilities: &Capabilities) -> Result<(), LockError> {
    if capabilities.freeze { Ok(()) } else { Err(capabilities.lacks("freeze")) }
}

fn check_reason(capabilities: &Capabilities, reason: &str) -> Result<(), LockError> {
    if reason.len() <= MAX_REASON_BYTES {
        return Ok(());
    }
    let message = format!("may have {MAX_REASON_BYTES} bytes, this one has {}", reason.len());
    Err(LockError::invalid(capabilities.engine, "reason", message))
}

/// A fence that is raised to the end of all tokens would leave none to give, for ever.
fn check_fence(capabilities: &Capabilities, to: FencingToken) -> Result<(), LockError> {
    if !capabilities.fencing {
        return Err(capabilities.lacks("fencing tokens"));
    }
    let largest = FencingToken::MAX.get() - FENCE_HEADROOM;
    if to.get() <= largest {
        return Ok(());
    }
    let message = format!("may be raised to {largest} at most, not to {to}");
    Err(LockError::invalid(capabilities.engine, "to", message))
}

/// What the store answers to an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationReply {
    /// It is done.
    Done,
    /// The holder was told; the grant lasts until it is released or this long; `None` for a live
    /// grant, which lasts until its processes end.
    Told {
        /// How long the grant may still last.
        left: Option<Duration>,
    },
    /// Nothing matched: no grant with that token, or no freeze.
    NothingThere,
    /// How the latch stands.
    Latch(LatchReply),
}

/// What a watch says. It is never a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// It is worth asking again: the name may have been handed to this lease id, or be free.
    LookAgain,
    /// The grant may have been revoked or lost: renew now to learn.
    CheckLease,
}
