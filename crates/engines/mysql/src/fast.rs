//! The fast path: one prepared statement grants a free name, or releases it (`sql/fast.sql`).
//!
//! Where it finds the name otherwise, nothing is changed, and the procedure of the verb decides. So
//! a wrong guess costs a round trip, and nothing else.
//!
//! - Invariant F1: a statement is believed only if the server reports that no transaction is open:
//!   otherwise an earlier statement was killed, and what this one did is rolled back with it.

use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, FencingToken, LockError, ReleaseReply, ReleaseRequest,
};

use crate::error::protocol;
use crate::keys::Value;
use crate::link::{FastStatement, Link};
use crate::requests;

/// Grants a name that is free; `None` if it is not, or if another request comes first.
pub(crate) async fn acquire(
    link: &Link,
    request: &AcquireRequest,
    inbox: u64,
) -> Result<Option<AcquireReply>, LockError> {
    let (kind, lease) = requests::hold(request.hold);
    let values = [
        Value::Bytes(request.lease_id.as_bytes()),
        Value::Bytes(&request.client.as_u64().to_be_bytes()),
        Value::Bytes(&inbox.to_be_bytes()),
        Value::Bytes(kind.as_bytes()),
        Value::Number(lease),
        Value::Bytes(request.metadata.as_encoded().as_bytes()),
        Value::Bytes(request.name.as_str().as_bytes()),
    ];
    let Some(token) = link.fast(FastStatement::Acquire, &values).await? else {
        return Ok(None);
    };
    let token = FencingToken::new(token).map_err(|_| protocol("a grant without a token"))?;
    let left = Some(Duration::from_micros(lease.unsigned_abs()));
    Ok(Some(AcquireReply::Granted { token, left, anchor: None }))
}

/// Releases what [`acquire`] has granted; `None` if there is more to do.
pub(crate) async fn release(
    link: &Link,
    request: &ReleaseRequest,
) -> Result<Option<ReleaseReply>, LockError> {
    let name = Value::Bytes(request.name.as_str().as_bytes());
    let values = [name, Value::Bytes(request.lease_id.as_bytes())];
    let held = link.fast(FastStatement::Release, &values).await?;
    Ok(held.map(|micros| ReleaseReply::Released { held_for: Some(Duration::from_micros(micros)) }))
}
