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

use holdline_core::{
    AcquireRequest, AuditPage, AuditRequest, CountingCommand, CountingReply, Hint, LatchCommand,
    LatchReply, LeaseId, LockError, LockName, Operation, OperationReply, RenewRequest,
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
pub struct Batch<R> {
    /// The renewals.
    pub renewals: R,
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
        Hint::Granted { .. } | Hint::LookAgain => b'l',
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

/// What an engine does beside locks. Each command has the reply of the engine's method.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operate {
    /// An operator's command.
    Operation(Operation),
    /// A command to a latch.
    Latch {
        /// The name.
        name: LockName,
        /// The command.
        command: LatchCommand,
    },
    /// A command to a counting semaphore.
    Counting {
        /// The name.
        name: LockName,
        /// The command.
        command: CountingCommand,
    },
    /// A page of the audit trail.
    AuditRead(AuditRequest),
}

/// The reply to an [`Operate`], as a server writes it. A client reads the type of its command.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Operated {
    /// To an operator's command.
    Operation(OperationReply),
    /// To a command to a latch.
    Latch(LatchReply),
    /// To a command to a counting semaphore.
    Counting(CountingReply),
    /// The page of the audit trail.
    AuditRead(AuditPage),
}
