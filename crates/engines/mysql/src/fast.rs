//! The fast path: one prepared statement grants a free name, or releases it (`sql/fast.sql`).
//!
//! Where it finds the name otherwise, nothing is changed, and the procedure of the verb decides. So
//! a wrong guess costs a round trip, and nothing else.
//!
//! - Invariant F1: a statement is believed only if the server reports that no transaction is open:
//!   otherwise an earlier statement was killed, and what this one did is rolled back with it.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, FencingToken, LeaseId, LockError, LockName, Mode, ReleaseReply,
    ReleaseRequest,
};
use parking_lot::Mutex;

use crate::error::protocol;
use crate::keys::Value;
use crate::link::{FastStatement, Link};
use crate::requests;

/// How many lease ids are remembered.
const LEASES: usize = 4_096;
/// How many groups of names there are, by their hash.
const NAMES: usize = 256;

/// Where the fast path is worth a round trip.
pub(crate) struct FastPath {
    /// Leases that it granted, and that were not renewed since.
    leases: Mutex<HashSet<LeaseId>>,
    /// Names that were not free when they were last acquired, by their hash.
    busy: Vec<AtomicBool>,
    hasher: RandomState,
}

impl FastPath {
    pub(crate) fn new() -> FastPath {
        FastPath {
            leases: Mutex::default(),
            busy: std::iter::repeat_with(AtomicBool::default).take(NAMES).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Grants a name that is free; `None` if it is not, or if another request comes first.
    pub(crate) async fn acquire(
        &self,
        link: &Link,
        request: &AcquireRequest,
        inbox: u64,
    ) -> Result<Option<AcquireReply>, LockError> {
        if request.known || request.mode != Mode::Exclusive || self.is_busy(&request.name) {
            return Ok(None);
        }
        let (kind, lease) = requests::hold(request.hold);
        let values = [
            Value::Bytes(request.lease_id.as_bytes()),
            Value::Bytes(&request.client.as_u64().to_be_bytes()),
            Value::Bytes(&inbox.to_be_bytes()),
            Value::Bytes(kind),
            Value::Number(lease),
            Value::Bytes(request.metadata.as_encoded().as_bytes()),
            Value::Bytes(request.name.as_str().as_bytes()),
        ];
        let Some(token) = link.fast(FastStatement::Acquire, &values).await? else {
            return Ok(None);
        };
        let token = FencingToken::new(token).map_err(|_| protocol("a grant without a token"))?;
        let mut leases = self.leases.lock();
        if leases.len() < LEASES {
            leases.insert(request.lease_id);
        }
        let left = Some(Duration::from_micros(lease.unsigned_abs()));
        Ok(Some(AcquireReply::Granted { token, left, anchor: None }))
    }

    /// Releases what the fast path has granted; `None` if there is more to do.
    pub(crate) async fn release(
        &self,
        link: &Link,
        request: &ReleaseRequest,
    ) -> Result<Option<ReleaseReply>, LockError> {
        if !self.forget(request.lease_id) || request.ending.for_good {
            return Ok(None);
        }
        let name = Value::Bytes(request.name.as_str().as_bytes());
        let values = [name, Value::Bytes(request.lease_id.as_bytes())];
        let held = link.fast(FastStatement::Release, &values).await?;
        Ok(held
            .map(|micros| ReleaseReply::Released { held_for: Some(Duration::from_micros(micros)) }))
    }

    /// Forgets a lease that has been renewed, or is over; returns whether it was known.
    pub(crate) fn forget(&self, lease_id: LeaseId) -> bool {
        self.leases.lock().remove(&lease_id)
    }

    /// Enters the reply of the procedure: whether the name was free. A claim says nothing about it.
    pub(crate) fn enter(&self, request: &AcquireRequest, reply: &Result<AcquireReply, LockError>) {
        if let (false, Ok(reply)) = (request.known, reply) {
            let is_busy = !matches!(reply, AcquireReply::Granted { .. });
            self.flag(&request.name).store(is_busy, Ordering::Relaxed);
        }
    }

    fn is_busy(&self, name: &LockName) -> bool {
        self.flag(name).load(Ordering::Relaxed)
    }

    fn flag(&self, name: &LockName) -> &AtomicBool {
        let hash = self.hasher.hash_one(name.as_str());
        // The remainder is below `NAMES`.
        &self.busy[usize::try_from(hash % NAMES as u64).unwrap_or_default()]
    }
}
