//! The requests and replies between library and engine.
//!
//! Plain data, the same for every engine; the methods of [`crate::Engine`] take and return it.
//! Times are durations that are *left*, never times of day, so that no clock is compared with
//! another. `left` is counted from the moment at which the call began. An engine that has older
//! information (votes of several nodes, a session's last keepalive) returns less.
//!
//! The engine `http` sends this data to a server as it is serialized here: who changes it
//! increments `PROTOCOL` there.

#[cfg(unix)]
use std::os::fd::OwnedFd;
#[cfg(windows)]
use std::os::windows::io::OwnedHandle as OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capabilities::Capabilities;
use crate::error::LockError;
use crate::lease::{Hold, MAX_FIRST_LEASE};
use crate::lease_id::{ClientId, LeaseId};
use crate::metadata::{Metadata, as_text};
use crate::mode::{LockKind, Mode};
use crate::name::LockName;
use crate::snapshot::HolderSummary;
use crate::token::FencingToken;

/// The shortest lease with which a hand-off begins.
pub const MIN_HAND_OFF_LEASE: Duration = Duration::from_secs(1);
/// The longest lease with which a hand-off begins.
pub const MAX_HAND_OFF_LEASE: Duration = Duration::from_secs(10);
/// How often a client sends the heartbeat for all its queue entries.
pub const QUEUE_HEARTBEAT: Duration = Duration::from_secs(1);
/// A queued contender that sends no heartbeat for this long is removed from the queue.
pub const QUEUE_SILENCE: Duration = Duration::from_secs(4);
/// A lease id that was given up is refused for at least this long.
pub const MIN_TOMBSTONE: Duration = Duration::from_secs(30);
/// To how many contenders one command hands a name at most. If more readers or permits fit, they
/// follow with the next command.
pub const HAND_OVER_BATCH: usize = 64;

/// Requests a name, or repeats the request under the same lease id.
///
/// A repeated request does not change a grant: the reply has the same token, and the duration that
/// is left. With another mode or hold it is `Invalid`. After `Busy`, `Unknown`, or an error whose
/// certainty is not unknown, the id must not be used again: the next attempt draws a new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcquireRequest {
    /// The lock name.
    pub name: LockName,
    /// Fresh for each attempt; repeated only until a release under it is sent.
    pub lease_id: LeaseId,
    /// The client.
    pub client: ClientId,
    /// Exclusive, shared or permits.
    pub mode: Mode,
    /// Which lock an exclusive mode is of.
    pub kind: LockKind,
    /// How the grant is kept; starts with at most [`MAX_FIRST_LEASE`].
    pub hold: Hold,
    /// Queue when the name is not free; otherwise answer `Busy`.
    pub queue: bool,
    /// Set for each request after `Queued`: the store has replied under this id, so
    /// it must know it. If it no longer does (removed from the queue, deleted), the reply is
    /// [`AcquireReply::Unknown`], and the id is neither granted nor queued anew. `false` for the
    /// first request, and for its repetition after an unknown outcome.
    pub known: bool,
    /// The lease with which a hand-off begins; a renewal extends it. Within
    /// [`MIN_HAND_OFF_LEASE`] and [`MAX_HAND_OFF_LEASE`].
    pub hand_off_lease: Duration,
    /// What the holder states about itself.
    #[serde(with = "as_text")]
    pub metadata: Metadata,
}

/// Returns the lease with which a hand-off begins: that of the grant, but at most
/// [`MAX_HAND_OFF_LEASE`]. So a connection that hangs can be replaced before the lease ends.
///
/// It is at least two heartbeats: if the message is lost, a heartbeat finds the hand-off up to a
/// whole interval later.
pub fn hand_off_lease(hold: Hold) -> Duration {
    let lease = hold.duration().unwrap_or(MAX_HAND_OFF_LEASE);
    lease.clamp(QUEUE_HEARTBEAT * 2, MAX_HAND_OFF_LEASE)
}

impl Mode {
    /// Checks that this mode may be used on a name that is in use: exclusive and shared together,
    /// permits only with permits of the same total. `permits_of` is the total that is in use.
    ///
    /// # Errors
    /// `Invalid` names the kind of lock that uses the name.
    pub fn check_beside(
        self,
        permits_of: Option<u32>,
        engine: &'static str,
    ) -> Result<(), LockError> {
        let message = match permits_of {
            in_use if in_use == self.permits_of() => return Ok(()),
            Some(of) => format!("the name is in use as a semaphore of {of}, not as {self}"),
            None => format!("the name is in use as a mutex or read/write lock, not as {self}"),
        };
        Err(LockError::invalid(engine, "mode", message))
    }
}

impl AcquireRequest {
    /// Checks what can be checked without the store.
    ///
    /// # Errors
    /// `Unsupported` or `Invalid`: this engine cannot carry the request out.
    pub fn check(&self, profile: &Capabilities) -> Result<(), LockError> {
        let engine = profile.engine;
        profile.check(self.mode, self.hold)?;
        if self.hold != self.hold.first() {
            let message = format!(
                "a grant starts with at most {MAX_FIRST_LEASE:?}; renew it to a longer lease"
            );
            return Err(LockError::invalid(engine, "lease_duration", message));
        }
        if let Mode::Permits { count, of } = self.mode {
            Mode::permits(count, of)
                .map_err(|error| LockError::invalid(engine, "permits", error))?;
        }
        if !(MIN_HAND_OFF_LEASE..=MAX_HAND_OFF_LEASE).contains(&self.hand_off_lease) {
            let message = format!("must be from {MIN_HAND_OFF_LEASE:?} to {MAX_HAND_OFF_LEASE:?}");
            return Err(LockError::invalid(engine, "hand_off_lease", message));
        }
        if self.queue && !profile.may_queue(self.mode, self.kind) {
            return Err(profile.lacks("queueing"));
        }
        Ok(())
    }
}

/// The store's reply to an [`AcquireRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AcquireReply {
    /// The lease id holds the name.
    Granted {
        /// The token, which is constant for the life of the grant.
        token: FencingToken,
        /// How long the store keeps the grant; `None` for a live grant.
        left: Option<Duration>,
        /// The descriptor that keeps a live grant; `None` for all others. No network carries it.
        #[serde(skip)]
        anchor: Option<Anchor>,
    },
    /// The lease id is in the queue.
    Queued {
        /// How many contenders are ahead, if the engine can count them cheaply. Far from the head
        /// an engine may count some that have left. It never counts too few.
        position: Option<usize>,
        /// The holder of the name now.
        holder: Option<Box<HolderSummary>>,
        /// When to look again at the latest.
        next_look: Duration,
    },
    /// The name is not free. The request left nothing behind.
    Busy {
        /// The holder of the name, or the head of its queue.
        holder: Option<Box<HolderSummary>>,
        /// After how long the name is free at the latest if no holder renews.
        at_most: Option<Duration>,
        /// When to retry, under a new lease id.
        next_look: Duration,
    },
    /// The request had `known` set, but the store does not know the id: it was removed from the
    /// queue, its grant ended, or the store lost data. The request left nothing behind.
    Unknown,
}

/// The descriptor that keeps a live grant. The grant ends when the last copy is closed, in this
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

/// What a renewal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Renew the grant: it has this hold from now. A renewal never shortens a lease. It may turn a
    /// leased grant into a detached one or back (then `client` becomes its client).
    Keep(Hold),
    /// Keep the queue entry alive, and return its state. It does not extend a grant.
    Wait,
}

/// One renewal of a batch: of a lease, or of a place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The lock name.
    pub name: LockName,
    /// The lease id that was granted or queued.
    pub lease_id: LeaseId,
    /// The client.
    pub client: ClientId,
    /// What it is for.
    pub purpose: Purpose,
}

/// The store's reply to a [`RenewRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewReply {
    /// The grant is renewed.
    Renewed {
        /// How long the store keeps it; `None` for a live grant.
        left: Option<Duration>,
    },
    /// The lease id is in the queue, and the store has noted its heartbeat.
    Queued {
        /// How many contenders are ahead, if the engine can count them cheaply. Far from the head
        /// an engine may count some that have left. It never counts too few.
        position: Option<usize>,
        /// When to look again at the latest.
        next_look: Duration,
    },
    /// To an item that only waits: the id holds the name. Repeat the request to read the grant.
    Held {
        /// How long the store keeps the grant; `None` if nothing ends it.
        left: Option<Duration>,
    },
    /// An operator revoked the grant: this renewal and all later ones are refused.
    Revoked {
        /// The operator's reason.
        reason: String,
        /// How long the store still keeps the grant; zero when it is already gone, `None` for a
        /// live grant that stays until its holder ends it.
        left: Option<Duration>,
    },
    /// The store does not know the id: it was lost, removed from the queue, or never applied.
    Unknown,
}

impl RenewReply {
    /// Returns whether the lease id has neither a grant nor a queue entry any more.
    pub fn is_over(&self) -> bool {
        match self {
            RenewReply::Unknown => true,
            RenewReply::Revoked { left, .. } => left.is_some_and(|left| left.is_zero()),
            RenewReply::Renewed { .. } | RenewReply::Queued { .. } | RenewReply::Held { .. } => {
                false
            }
        }
    }
}

/// How to end what a lease id has: a grant or a queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ending {
    /// Leave a tombstone, because the request was repeated or may still arrive. For the longer of
    /// [`MIN_TOMBSTONE`] and the lease, requests under the id are refused as `Cancelled`. An engine
    /// may also leave one unasked: after a connection broke, a request on it may still arrive.
    pub for_good: bool,
    /// The lease of the request.
    pub hold: Hold,
}

/// Ends the grant or the queue entry of a lease id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseRequest {
    /// The lock name.
    pub name: LockName,
    /// The lease id. It must not be used again once this request may have been sent.
    pub lease_id: LeaseId,
    /// How.
    pub ending: Ending,
}

/// The store's reply to a [`ReleaseRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReply {
    /// The grant has ended.
    Released {
        /// How long it was held, where the engine knows.
        held_for: Option<Duration>,
    },
    /// The queue entry is removed.
    Withdrawn,
    /// The id had nothing to end; nothing was changed.
    NotHeld {
        /// The operator's reason, if the grant had been revoked.
        revoked: Option<String>,
    },
}

/// A notification of a watch. Only [`Granted`](Hint::Granted) says what the store has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hint {
    /// The name was handed to this lease id. The grant began after the last request under the id
    /// that was answered as queued, and its lease is the `hand_off_lease` of the request. So the
    /// client may rely on it until that long after it sent that request, and extends it by a
    /// renewal.
    ///
    /// It proves nothing if the id may have been queued twice: a request under it went unanswered,
    /// of which a late copy may have been served once more, or the id was used before.
    Granted {
        /// The token, which is constant for the life of the grant.
        token: FencingToken,
    },
    /// Ask again: the name may have been granted to this lease id, or be free.
    LookAgain,
    /// Renew now: the grant may have been revoked or lost.
    CheckLease,
}
