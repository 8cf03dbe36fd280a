//! The messages between the engine and a server: the contract as JSON.
//!
//! Both sides are Holdline programs of the same protocol version ([`crate::PROTOCOL`]); programs in
//! other languages use the documented API. Durations are those of serde. Text that comes from the
//! store is passed on as it is.
//!
//! Read next: `views` for snapshots, `failure` for errors, `describe` for capabilities.

mod describe;
mod failure;
mod views;

use std::time::Duration;

use holdline_core::counting::{CountingCommand, CountingReply};
use holdline_core::latch::{LatchCommand, LatchReply};
use holdline_core::{
    AcquireReply, AcquireRequest, AuditPage, AuditRequest, ClientId, Ending, FencingToken, Hint,
    Hold, LeaseId, ListRequest, LockKind, LockName, Metadata, MetadataError, Mode, Operation,
    OperationReply, Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, ShortLeaseId,
};
use serde::{Deserialize, Serialize};

pub use describe::{Description, capabilities_of};
pub use failure::Failure;
pub use views::{Holder, Page, SnapshotMessage};

/// The answer to one command: the reply, or the error of the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// The engine answered.
    Ok(T),
    /// The engine failed.
    Error(Failure),
}

/// An [`AcquireRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acquire {
    name: LockName,
    lease_id: LeaseId,
    client: ClientId,
    mode: Mode,
    #[serde(default, skip_serializing_if = "LockKind::is_mutex")]
    kind: LockKind,
    hold: Hold,
    queue: bool,
    known: bool,
    claim_window: Duration,
    metadata: String,
}

impl Acquire {
    /// Writes a request.
    pub fn of(request: &AcquireRequest) -> Acquire {
        Acquire {
            name: request.name.clone(),
            lease_id: request.lease_id,
            client: request.client,
            mode: request.mode,
            kind: request.kind,
            hold: request.hold,
            queue: request.queue,
            known: request.known,
            claim_window: request.claim_window,
            metadata: request.metadata.as_encoded().to_owned(),
        }
    }

    /// Reads the request, as one of a remote client.
    ///
    /// # Errors
    /// The metadata is too long.
    pub fn into_request(self) -> Result<AcquireRequest, MetadataError> {
        Ok(AcquireRequest {
            name: self.name,
            lease_id: self.lease_id,
            client: self.client.remote(),
            mode: self.mode,
            kind: self.kind,
            hold: self.hold,
            queue: self.queue,
            known: self.known,
            claim_window: self.claim_window,
            metadata: Metadata::from_encoded(&self.metadata)?,
        })
    }
}

/// An [`AcquireReply`]; no live grant crosses a network.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Acquired {
    /// The name is held.
    Granted {
        /// The token.
        token: FencingToken,
        /// How long the store keeps the grant.
        left: Option<Duration>,
    },
    /// The id is in the queue.
    Queued {
        /// How many precede it.
        position: Option<usize>,
        /// Who holds the name.
        holder: Option<Holder>,
        /// When to ask again at the latest.
        next_look: Duration,
    },
    /// The name is not free.
    Busy {
        /// Who holds the name.
        holder: Option<Holder>,
        /// After how long it is free at the latest.
        at_most: Option<Duration>,
        /// When to ask again.
        next_look: Duration,
    },
    /// The store does not know the id.
    Unknown,
}

impl From<AcquireReply> for Acquired {
    fn from(reply: AcquireReply) -> Acquired {
        let holder = |holder: Option<Box<_>>| holder.map(|holder| Holder::of(&holder));
        match reply {
            AcquireReply::Granted { token, left, .. } => Acquired::Granted { token, left },
            AcquireReply::Queued { position, holder: held, next_look } => {
                Acquired::Queued { position, holder: holder(held), next_look }
            }
            AcquireReply::Busy { holder: held, at_most, next_look } => {
                Acquired::Busy { holder: holder(held), at_most, next_look }
            }
            AcquireReply::Unknown => Acquired::Unknown,
        }
    }
}

impl From<Acquired> for AcquireReply {
    fn from(reply: Acquired) -> AcquireReply {
        let holder = |holder: Option<Holder>| holder.map(|holder| Box::new(holder.into_summary()));
        match reply {
            Acquired::Granted { token, left } => {
                AcquireReply::Granted { token, left, anchor: None }
            }
            Acquired::Queued { position, holder: held, next_look } => {
                AcquireReply::Queued { position, holder: holder(held), next_look }
            }
            Acquired::Busy { holder: held, at_most, next_look } => {
                AcquireReply::Busy { holder: holder(held), at_most, next_look }
            }
            Acquired::Unknown => AcquireReply::Unknown,
        }
    }
}

/// A [`RenewRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renew {
    name: LockName,
    lease_id: LeaseId,
    client: ClientId,
    /// The hold to keep; `None` for an entry in the queue.
    keep: Option<Hold>,
}

impl Renew {
    /// Writes a renewal.
    pub fn of(renewal: &RenewRequest) -> Renew {
        let keep = match renewal.purpose {
            Purpose::Keep(hold) => Some(hold),
            Purpose::Wait => None,
        };
        Renew {
            name: renewal.name.clone(),
            lease_id: renewal.lease_id,
            client: renewal.client,
            keep,
        }
    }

    /// Reads the renewal, as one of a remote client.
    pub fn into_request(self) -> RenewRequest {
        RenewRequest {
            name: self.name,
            lease_id: self.lease_id,
            client: self.client.remote(),
            purpose: self.keep.map_or(Purpose::Wait, Purpose::Keep),
        }
    }
}

/// The renewals of one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// The answer has one reply for each, in the same order.
    #[serde(rename = "lines")]
    pub renewals: Vec<Renew>,
}

/// A [`RenewReply`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Renewed {
    Renewed { left: Option<Duration> },
    Queued { position: Option<usize>, next_look: Duration },
    Handed { claim_within: Option<Duration> },
    Revoked { reason: String, left: Option<Duration> },
    Unknown,
}

impl From<RenewReply> for Renewed {
    fn from(reply: RenewReply) -> Renewed {
        match reply {
            RenewReply::Renewed { left } => Renewed::Renewed { left },
            RenewReply::Queued { position, next_look } => Renewed::Queued { position, next_look },
            RenewReply::Handed { claim_within } => Renewed::Handed { claim_within },
            RenewReply::Revoked { reason, left } => Renewed::Revoked { reason, left },
            RenewReply::Unknown => Renewed::Unknown,
        }
    }
}

impl From<Renewed> for RenewReply {
    fn from(reply: Renewed) -> RenewReply {
        match reply {
            Renewed::Renewed { left } => RenewReply::Renewed { left },
            Renewed::Queued { position, next_look } => RenewReply::Queued { position, next_look },
            Renewed::Handed { claim_within } => RenewReply::Handed { claim_within },
            Renewed::Revoked { reason, left } => RenewReply::Revoked { reason, left },
            Renewed::Unknown => RenewReply::Unknown,
        }
    }
}

/// A [`ReleaseRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    name: LockName,
    lease_id: LeaseId,
    for_good: bool,
    hold: Hold,
}

impl Release {
    /// Writes a request.
    pub fn of(request: &ReleaseRequest) -> Release {
        let Ending { for_good, hold } = request.ending;
        Release { name: request.name.clone(), lease_id: request.lease_id, for_good, hold }
    }

    /// Reads the request.
    pub fn into_request(self) -> ReleaseRequest {
        let ending = Ending { for_good: self.for_good, hold: self.hold };
        ReleaseRequest { name: self.name, lease_id: self.lease_id, ending }
    }
}

/// A [`ReleaseReply`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Released {
    Released { held_for: Option<Duration> },
    Withdrawn,
    NotHeld { revoked: Option<String> },
}

impl From<ReleaseReply> for Released {
    fn from(reply: ReleaseReply) -> Released {
        match reply {
            ReleaseReply::Released { held_for } => Released::Released { held_for },
            ReleaseReply::Withdrawn => Released::Withdrawn,
            ReleaseReply::NotHeld { revoked } => Released::NotHeld { revoked },
        }
    }
}

impl From<Released> for ReleaseReply {
    fn from(reply: Released) -> ReleaseReply {
        match reply {
            Released::Released { held_for } => ReleaseReply::Released { held_for },
            Released::Withdrawn => ReleaseReply::Withdrawn,
            Released::NotHeld { revoked } => ReleaseReply::NotHeld { revoked },
        }
    }
}

/// A request about one name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// The lock name.
    pub name: LockName,
}

/// A [`ListRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    prefix: String,
    after: Option<LockName>,
    limit: usize,
}

impl List {
    /// Writes a request.
    pub fn of(request: &ListRequest) -> List {
        let ListRequest { prefix, after, limit } = request.clone();
        List { prefix, after, limit }
    }

    /// Reads the request.
    pub fn into_request(self) -> ListRequest {
        ListRequest { prefix: self.prefix, after: self.after, limit: self.limit }
    }
}

/// Which lease id to watch. The answer is a stream of [`hint_byte`]s.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The lock name.
    pub name: LockName,
    /// The lease id.
    pub lease_id: LeaseId,
}

/// What a watch sends while there is no hint, so that a connection that has broken is noticed.
pub const STILL_HERE: u8 = b'.';

/// The byte of a hint.
pub fn hint_byte(hint: Hint) -> u8 {
    match hint {
        Hint::LookAgain => b'l',
        Hint::CheckLease => b'c',
    }
}

/// The hint of a byte; `None` for all others.
pub fn hint_of(byte: u8) -> Option<Hint> {
    match byte {
        b'l' => Some(Hint::LookAgain),
        b'c' => Some(Hint::CheckLease),
        _ => None,
    }
}

/// An [`Operation`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[allow(missing_docs)]
pub enum Operate {
    Revoke { name: LockName, token: FencingToken, reason: String, now: bool },
    RevokeHolder { name: LockName, holder: String, reason: String },
    RemoveWaiter { name: LockName, waiter: ShortLeaseId, reason: String },
    Freeze { name: LockName, duration: Duration, reason: String },
    Unfreeze { name: LockName },
    RaiseFence { to: FencingToken },
    LatchSet { name: LockName, count: u64 },
    LatchCountDown { name: LockName, count: u64 },
    LatchCount { name: LockName },
    Counting { name: LockName, command: CountingCommand },
    AuditRead(AuditRequest),
}

/// What an [`Operate`] asks for.
#[derive(Clone, Debug)]
pub enum Command {
    /// An operator's command.
    Operation(Operation),
    /// A command to a latch.
    Latch(LockName, LatchCommand),
    /// A command to a counting semaphore.
    Counting(LockName, CountingCommand),
    /// A page of the audit trail.
    AuditRead(AuditRequest),
}

impl From<Command> for Operate {
    fn from(command: Command) -> Operate {
        match command {
            Command::Operation(operation) => match operation {
                Operation::Revoke { name, token, reason, now } => {
                    Operate::Revoke { name, token, reason, now }
                }
                Operation::RevokeHolder { name, holder, reason } => {
                    Operate::RevokeHolder { name, holder, reason }
                }
                Operation::RemoveWaiter { name, waiter, reason } => {
                    Operate::RemoveWaiter { name, waiter, reason }
                }
                Operation::Freeze { name, duration, reason } => {
                    Operate::Freeze { name, duration, reason }
                }
                Operation::Unfreeze { name } => Operate::Unfreeze { name },
                Operation::RaiseFence { to } => Operate::RaiseFence { to },
            },
            Command::Latch(name, command) => match command {
                LatchCommand::Set(count) => Operate::LatchSet { name, count },
                LatchCommand::CountDown(count) => Operate::LatchCountDown { name, count },
                LatchCommand::Count => Operate::LatchCount { name },
            },
            Command::Counting(name, command) => Operate::Counting { name, command },
            Command::AuditRead(request) => Operate::AuditRead(request),
        }
    }
}

impl From<Operate> for Command {
    fn from(message: Operate) -> Command {
        let operation = match message {
            Operate::Revoke { name, token, reason, now } => {
                Operation::Revoke { name, token, reason, now }
            }
            Operate::RevokeHolder { name, holder, reason } => {
                Operation::RevokeHolder { name, holder, reason }
            }
            Operate::RemoveWaiter { name, waiter, reason } => {
                Operation::RemoveWaiter { name, waiter, reason }
            }
            Operate::Freeze { name, duration, reason } => {
                Operation::Freeze { name, duration, reason }
            }
            Operate::Unfreeze { name } => Operation::Unfreeze { name },
            Operate::RaiseFence { to } => Operation::RaiseFence { to },
            Operate::LatchSet { name, count } => {
                return Command::Latch(name, LatchCommand::Set(count));
            }
            Operate::LatchCountDown { name, count } => {
                return Command::Latch(name, LatchCommand::CountDown(count));
            }
            Operate::LatchCount { name } => return Command::Latch(name, LatchCommand::Count),
            Operate::Counting { name, command } => return Command::Counting(name, command),
            Operate::AuditRead(request) => return Command::AuditRead(request),
        };
        Command::Operation(operation)
    }
}

/// The reply to a [`Command`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Operated {
    Done,
    HolderNotified { left: Option<Duration> },
    NothingThere,
    Latch { count: u64, changed: bool },
    Counting { before: i64, after: i64 },
    AuditRead(AuditPage),
}

impl From<OperationReply> for Operated {
    fn from(reply: OperationReply) -> Operated {
        match reply {
            OperationReply::Done => Operated::Done,
            OperationReply::Notified { left } => Operated::HolderNotified { left },
            OperationReply::NothingThere => Operated::NothingThere,
        }
    }
}

impl From<LatchReply> for Operated {
    fn from(LatchReply { count, changed }: LatchReply) -> Operated {
        Operated::Latch { count, changed }
    }
}

impl From<CountingReply> for Operated {
    fn from(CountingReply { before, after }: CountingReply) -> Operated {
        Operated::Counting { before, after }
    }
}

impl From<AuditPage> for Operated {
    fn from(page: AuditPage) -> Operated {
        Operated::AuditRead(page)
    }
}
