//! The messages between the engine and a server: the contract as JSON.
//!
//! Both sides are Holdline programs of the same protocol version ([`crate::PROTOCOL`]); programs in
//! other languages use the documented API. Durations are those of serde. Text that comes from the
//! store is passed on as it is. Replies and snapshots are core's own types; here are the requests
//! and replies that a network carries in another form.
//!
//! Read next: `failure` for errors, `describe` for capabilities.

mod describe;
mod failure;

use std::time::Duration;

use holdline_core::counting::{CountingCommand, CountingReply};
use holdline_core::latch::{LatchCommand, LatchReply};
use holdline_core::{
    AcquireRequest, AuditCommand, AuditPage, AuditRequest, FencingToken, Hint, LeaseId, LockError,
    LockName, Operation, OperationReply, RenewRequest, ShortLeaseId,
};
use serde::{Deserialize, Serialize};

pub use describe::Description;
pub use failure::Failure;

/// The answer to one command: the reply, or the error of the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// The engine answered.
    Ok(T),
    /// The engine failed.
    Error(Failure),
}

impl<T> Outcome<T> {
    /// Reads the answer.
    ///
    /// # Errors
    /// That of the store.
    pub fn into_result(self) -> Result<T, LockError> {
        match self {
            Outcome::Ok(reply) => Ok(reply),
            Outcome::Error(failure) => Err(failure.into_error()),
        }
    }
}

/// An [`AcquireRequest`], as a server reads it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Acquire(AcquireRequest);

impl Acquire {
    /// Returns the request, as one of a remote client.
    pub fn into_request(self) -> AcquireRequest {
        AcquireRequest { client: self.0.client.remote(), ..self.0 }
    }
}

/// A [`RenewRequest`], as a server reads it.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Renew(RenewRequest);

impl Renew {
    /// Returns the request, as one of a remote client.
    pub fn into_request(self) -> RenewRequest {
        RenewRequest { client: self.0.client.remote(), ..self.0 }
    }
}

/// The renewals of one call, a list; the answer has one reply for each, in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch<L> {
    /// The renewals.
    pub lines: L,
}

/// A request about one name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// The lock name.
    pub name: LockName,
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

impl From<Operation> for Operate {
    fn from(operation: Operation) -> Operate {
        match operation {
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
            Operation::Latch { name, command } => match command {
                LatchCommand::Set(count) => Operate::LatchSet { name, count },
                LatchCommand::CountDown(count) => Operate::LatchCountDown { name, count },
                LatchCommand::Count => Operate::LatchCount { name },
            },
            Operation::Counting { name, command } => Operate::Counting { name, command },
            Operation::Audit(AuditCommand::Read(request)) => Operate::AuditRead(request),
            Operation::Audit(AuditCommand::Append { .. }) => {
                unreachable!("the capabilities of a server's client refuse it")
            }
        }
    }
}

impl From<Operate> for Operation {
    fn from(operation: Operate) -> Operation {
        match operation {
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
                Operation::Latch { name, command: LatchCommand::Set(count) }
            }
            Operate::LatchCountDown { name, count } => {
                Operation::Latch { name, command: LatchCommand::CountDown(count) }
            }
            Operate::LatchCount { name } => Operation::Latch { name, command: LatchCommand::Count },
            Operate::Counting { name, command } => Operation::Counting { name, command },
            Operate::AuditRead(request) => Operation::Audit(AuditCommand::Read(request)),
        }
    }
}

/// An [`OperationReply`].
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
            OperationReply::Latch(LatchReply { count, changed }) => {
                Operated::Latch { count, changed }
            }
            OperationReply::Counting(CountingReply { before, after }) => {
                Operated::Counting { before, after }
            }
            OperationReply::Audit(page) => Operated::AuditRead(page),
        }
    }
}

impl From<Operated> for OperationReply {
    fn from(reply: Operated) -> OperationReply {
        match reply {
            Operated::Done => OperationReply::Done,
            Operated::HolderNotified { left } => OperationReply::Notified { left },
            Operated::NothingThere => OperationReply::NothingThere,
            Operated::Latch { count, changed } => {
                OperationReply::Latch(LatchReply { count, changed })
            }
            Operated::Counting { before, after } => {
                OperationReply::Counting(CountingReply { before, after })
            }
            Operated::AuditRead(page) => OperationReply::Audit(page),
        }
    }
}
