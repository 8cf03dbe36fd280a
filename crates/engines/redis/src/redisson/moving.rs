//! Renewals while the slot of a name migrates: its keys may be on two nodes of a cluster, and a
//! script needs all its keys on one.
//!
//! The lock key says of which kind a grant is. A mutex has no other key; the other kinds are
//! renewed by one call for each key.
//! - Invariant Z1: a grant is renewed only if each of its keys has been extended, and each is there
//!   already: none is made here.
//! - Invariant Z2: the key that keeps others out is the last to be extended, so an attempt that
//!   fails keeps nobody out for longer than before.

use std::time::Duration;

use holdline_core::{Certainty, Hold, LockError, Purpose, RenewReply, RenewRequest, Renewed};

use super::calls::Calls;
use super::owner::owner_of;
use super::requests::RequestContext;
use super::{RENEW_KEY, RENEW_LOCK};
use crate::args::Args;
use crate::error::{protocol, unavailable};
use crate::in_flight::InFlight;
use crate::link::{Call, Value};
use crate::native;
use crate::native::requests::{kind_of, millis};
use crate::route;

/// A key of a grant, and what the script must find in it.
enum Part {
    /// The record, which is in this field.
    Record(Vec<u8>),
    /// The hash of a read/write lock, with this holder.
    Lock(String),
    /// The hold of a reader.
    Hold,
    /// This many permits.
    Permits(u64),
}

impl RequestContext {
    /// Makes the call that renews the grants of one name by its lock key; `None` for requests that
    /// need more keys.
    pub(super) fn renew_lock(&self, renewals: &[&RenewRequest]) -> Option<Call> {
        let first = renewals.first()?;
        let mut args = Args::default();
        for RenewRequest { lease_id, purpose, .. } in renewals {
            let Purpose::Keep(hold) = purpose else { return None };
            args.push(owner_of(*lease_id));
            args.push_number(lease_of(*hold));
            args.push(kind_of(*hold));
        }
        Some(self.call(&RENEW_LOCK, Args::from([self.names.map(&first.name).key]), args))
    }

    fn renew_key(&self, renewal: &RenewRequest, hold: Hold, part: &Part) -> Call {
        let mapped = self.names.map(&renewal.name);
        let lease_id = renewal.lease_id;
        let (title, key) = match part {
            Part::Record(_) => ("record", self.names.records(&mapped)),
            Part::Lock(_) => ("lock", mapped.key),
            Part::Hold => ("hold", self.names.read_hold(&mapped, lease_id)),
            Part::Permits(_) => ("permits", self.names.permits(&mapped)),
        };
        let mut args = Args::default();
        args.push(title);
        args.push_number(lease_of(hold));
        match part {
            Part::Record(field) => {
                args.push(field);
                args.push(kind_of(hold));
            }
            Part::Lock(field) => args.push(field),
            Part::Hold => {}
            Part::Permits(count) => {
                args.push(lease_id.as_bytes());
                args.push_number(*count);
            }
        }
        self.call(&RENEW_KEY, Args::from([key]), args)
    }
}

impl Calls {
    /// Reads the reply to the renewals of one name, and completes those that the lock key alone
    /// could not renew.
    pub(super) async fn renewed(&self, renewals: &[&RenewRequest], value: &Value) -> Renewed {
        let by_lock_key = |reply: &Value| matches!(reply, Value::Nil | Value::Bytes(_));
        let replies = match value.as_array() {
            Some(replies) if replies.iter().any(by_lock_key) => replies,
            _ => return native::renewed(value, renewals.len()),
        };
        if replies.len() != renewals.len() {
            return Err(protocol("the reply to renewals by the lock key has another length"));
        }
        let mut results: Vec<_> = replies.iter().map(|_| Err(not_there())).collect();
        let mut in_flight = InFlight::with_capacity(replies.len());
        for (at, (renewal, reply)) in renewals.iter().zip(replies).enumerate() {
            match reply {
                Value::Nil => {}
                Value::Bytes(kind) => in_flight.push(at, self.renew_each_key(renewal, kind)),
                other => results[at] = native::renewal(other),
            }
        }
        while let Some((at, reply)) = in_flight.next().await {
            results[at] = reply;
        }
        Ok(results)
    }

    /// Renews a grant that has several keys by a call for each of them.
    async fn renew_each_key(
        &self,
        renewal: &RenewRequest,
        kind: &[u8],
    ) -> Result<RenewReply, LockError> {
        let Purpose::Keep(hold) = renewal.purpose else { return Err(not_there()) };
        let lease_id = renewal.lease_id;
        let owner = owner_of(lease_id);
        let permits = kind == b"permits";
        let field = if permits { lease_id.as_bytes().to_vec() } else { owner.clone().into_bytes() };
        let count = self.renew_key(renewal, hold, Part::Record(field)).await?;
        let left = match kind {
            b"permits" => self.renew_key(renewal, hold, Part::Permits(count)).await?,
            b"read" => {
                let left = self.renew_key(renewal, hold, Part::Hold).await?;
                left.min(self.renew_key(renewal, hold, Part::Lock(owner)).await?)
            }
            b"write" => self.renew_key(renewal, hold, Part::Lock(format!("{owner}:write"))).await?,
            _ => return Err(protocol("a renewal by the lock key returned an unknown kind")),
        };
        Ok(RenewReply::Renewed { left: Some(Duration::from_millis(left)) })
    }

    /// Renews one key of a grant, wherever it is, and returns the number in the reply.
    async fn renew_key(
        &self,
        renewal: &RenewRequest,
        hold: Hold,
        part: Part,
    ) -> Result<u64, LockError> {
        let call = || self.context.renew_key(renewal, hold, &part);
        let alone = || Some(call());
        let purpose = route::Purpose::Keep;
        let sent = self.send_or_lock_key_only(&renewal.name, purpose, call, alone).await?;
        let number = sent.value.as_integer().and_then(|number| u64::try_from(number).ok());
        number.ok_or_else(not_there)
    }
}

fn lease_of(hold: Hold) -> u64 {
    hold.duration().map(millis).unwrap_or_default()
}

fn not_there() -> LockError {
    let message = "the slot of the name is being moved to another node, and a key of the grant was \
                   not found";
    unavailable(message, Certainty::Unknown)
}
