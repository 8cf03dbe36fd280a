//! What operators do: to the lock of one name, or to the fence of the whole store.
//!
//! The engine `http` sends operations and replies to a server as they are serialized here: who
//! changes them increments `PROTOCOL` there.
//!
//! Read next: `table/operate.rs`, which says what each operation on a name means.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::audit::MAX_REASON_BYTES;
use crate::audit::{AuditOutcome, AuditRecord, Operator};
use crate::capabilities::Capabilities;
use crate::error::LockError;
use crate::lease_id::ShortLeaseId;
use crate::name::LockName;
use crate::token::FencingToken;

/// An operator's command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Revokes the grant with this token: politely, or now.
    Revoke {
        /// The lock name.
        name: LockName,
        /// The grant's token; another token changes nothing.
        token: FencingToken,
        /// The operator's reason, at most 512 bytes.
        reason: String,
        /// Frees the name at once, which the promise of exclusion does not cover. Otherwise the
        /// holder is notified and its renewals are refused.
        now: bool,
    },
    /// Ends at once the hold of a holder that the store shows under this id, such as one of another
    /// library, whose grants may have no token. The promise of exclusion does not cover that.
    RevokeHolder {
        /// The lock name.
        name: LockName,
        /// The holder's id, as [`Snapshot`](crate::Snapshot) shows it; another id changes nothing.
        holder: String,
        /// The operator's reason, at most 512 bytes.
        reason: String,
    },
    /// Removes a contender from the queue. Its attempt fails as [`Lost`](crate::ErrorKind::Lost),
    /// with the reason. A holder, and a contender to which the name was handed over, are not
    /// affected.
    RemoveWaiter {
        /// The lock name.
        name: LockName,
        /// The waiter, as [`Snapshot`](crate::Snapshot) shows it. Of several with these digits,
        /// the first in the queue is meant; other ids change nothing.
        waiter: ShortLeaseId,
        /// The operator's reason, at most 480 bytes.
        reason: String,
    },
    /// Takes the name before the queue as soon as it is free, so that no contender gets it.
    Freeze {
        /// The lock name.
        name: LockName,
        /// How long the freeze lasts, from now.
        duration: Duration,
        /// The operator's reason, at most 512 bytes.
        reason: String,
    },
    /// Ends a freeze.
    Unfreeze {
        /// The lock name.
        name: LockName,
    },
    /// Makes all later tokens larger than `to`, for a store that was restored from an old backup.
    RaiseFence {
        /// The largest token that may have been issued.
        to: FencingToken,
    },
}

/// How many tokens are left above the largest value of a raised fence: 2^40, which last for more
/// than a century at ten thousand grants a minute.
pub const FENCE_HEADROOM: u64 = 1 << 40;
/// The largest value to which the fence may be raised.
pub const LARGEST_FENCE: u64 = FencingToken::MAX.get() - FENCE_HEADROOM;
/// The longest reason for the removal of a waiter, in bytes: [`removal_reason`] adds to it.
pub const MAX_REMOVAL_REASON_BYTES: usize = 480;
/// The longest freeze: a year.
pub const MAX_FREEZE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Operation {
    /// Checks what can be checked without the store: the features of the engine, the length of
    /// reason and freeze, and that a raised fence leaves enough tokens.
    ///
    /// # Errors
    /// `Unsupported`, or `Invalid`, which names the limit. Nothing is applied.
    pub fn check(&self, capabilities: &Capabilities) -> Result<(), LockError> {
        let checked = self.check_features(capabilities);
        let checked = checked.and_then(|()| self.check_limits(capabilities.engine));
        checked.map_err(|error| match self.name() {
            Some(name) => error.with_name(name),
            None => error,
        })
    }

    fn check_features(&self, capabilities: &Capabilities) -> Result<(), LockError> {
        let is_supported = match self {
            Operation::Revoke { .. } => capabilities.revoke,
            Operation::RevokeHolder { .. } => capabilities.revoke_holder,
            Operation::RemoveWaiter { .. } => capabilities.remove_waiter,
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => capabilities.freeze,
            Operation::RaiseFence { .. } => capabilities.fencing,
        };
        let is_polite = matches!(self, Operation::Revoke { now: false, .. });
        if !is_supported {
            Err(self.unsupported(capabilities))
        } else if is_polite && !capabilities.polite_revoke {
            Err(capabilities.lacks("polite revoke: it must be forced"))
        } else {
            Ok(())
        }
    }

    fn check_limits(&self, engine: &'static str) -> Result<(), LockError> {
        match self {
            Operation::Revoke { reason, .. } | Operation::RevokeHolder { reason, .. } => {
                check_reason(engine, reason, MAX_REASON_BYTES)
            }
            Operation::RemoveWaiter { reason, .. } => {
                check_reason(engine, reason, MAX_REMOVAL_REASON_BYTES)
            }
            Operation::Freeze { duration, reason, .. } => {
                check_reason(engine, reason, MAX_REASON_BYTES)?;
                if !duration.is_zero() && *duration <= MAX_FREEZE {
                    return Ok(());
                }
                let message = format!("must be above 0 and at most 365 days, not {duration:?}");
                Err(LockError::invalid(engine, "duration", message))
            }
            // Too few tokens would be left.
            Operation::RaiseFence { to } if to.get() > LARGEST_FENCE => {
                let message = format!("may be raised to {LARGEST_FENCE} at most, not to {to}");
                Err(LockError::invalid(engine, "to", message))
            }
            Operation::RaiseFence { .. } | Operation::Unfreeze { .. } => Ok(()),
        }
    }

    /// Makes the record of this operation and its reply for the audit trail.
    pub fn audit_record(
        &self,
        operator: &Operator,
        reply: &Result<OperationReply, LockError>,
    ) -> AuditRecord {
        let record = |action| AuditRecord::new(action, operator);
        let record = match self {
            Operation::Revoke { token, reason, now, .. } => AuditRecord {
                fencing_token: Some(*token),
                ..record(if *now { "revoke_now" } else { "revoke" }).because(reason)
            },
            Operation::RevokeHolder { holder, reason, .. } => {
                record("revoke_now").because(&format!("holder {holder}: {reason}"))
            }
            Operation::RemoveWaiter { waiter, reason, .. } => {
                record("remove_waiter").because(&format!("waiter {waiter}: {reason}"))
            }
            Operation::Freeze { reason, .. } => record("freeze").because(reason),
            Operation::Unfreeze { .. } => record("unfreeze"),
            Operation::RaiseFence { to } => {
                AuditRecord { fencing_token: Some(*to), ..record("fence_bump") }
            }
        };
        let record = AuditRecord { name: self.name().cloned(), ..record };
        let outcome = match reply {
            Ok(OperationReply::Notified { .. }) => AuditOutcome::Notified,
            Ok(OperationReply::NothingThere) => AuditOutcome::NothingThere,
            Ok(OperationReply::Done) => AuditOutcome::Done,
            Err(error) => return record.failed(error),
        };
        AuditRecord { outcome, ..record }
    }

    /// Returns the lock name; `None` for an operation on the whole store.
    pub fn name(&self) -> Option<&LockName> {
        match self {
            Operation::Revoke { name, .. }
            | Operation::RevokeHolder { name, .. }
            | Operation::RemoveWaiter { name, .. }
            | Operation::Freeze { name, .. }
            | Operation::Unfreeze { name } => Some(name),
            Operation::RaiseFence { .. } => None,
        }
    }

    /// Makes the error of an engine that lacks the operation.
    pub fn unsupported(&self, capabilities: &Capabilities) -> LockError {
        capabilities.lacks(match self {
            Operation::Revoke { .. } => "revoke",
            Operation::RevokeHolder { .. } => {
                "revoking a holder by its id: name its fencing token (only Redis with another \
                 library's dialect has it)"
            }
            Operation::RemoveWaiter { .. } => "removing a waiter from the queue",
            Operation::Freeze { .. } | Operation::Unfreeze { .. } => "freeze",
            Operation::RaiseFence { .. } if !capabilities.fencing => "fencing tokens",
            Operation::RaiseFence { .. } => "an operation on all names at once",
        })
    }
}

fn check_reason(engine: &'static str, reason: &str, longest: usize) -> Result<(), LockError> {
    if reason.len() <= longest {
        return Ok(());
    }
    let message = format!("may have {longest} bytes, this one has {}", reason.len());
    Err(LockError::invalid(engine, "reason", message))
}

/// Returns the reason that a removed waiter receives, for the store to keep with the revoked id.
pub fn removal_reason(reason: &str) -> String {
    match reason {
        "" => "removed from the queue".to_owned(),
        reason => format!("removed from the queue: {reason}"),
    }
}

/// The store's reply to an [`Operation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationReply {
    /// It is done.
    Done,
    /// The holder was notified. The grant lasts until it is released or until this time is over;
    /// with `None`, a live grant, until its processes end.
    Notified {
        /// How long the grant may still last.
        left: Option<Duration>,
    },
    /// There is no grant with that token, or no freeze.
    NothingThere,
}
