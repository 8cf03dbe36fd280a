//! Acquire and renew inside a transaction. Besides the rules of the lock table, they check that our
//! files exist, and keep the files of live grants.
//!
//! ```text
//! acquire, one transaction of SQLite:
//!   check that the database is the one that was opened
//!   register this process, whose end others see by its file lock
//!   the rules of the lock table, after the grants and waiters of dead processes were ended
//!     -> granted, queued, busy, cancelled, revoked
//!   a live grant: make the file whose lock keeps it
//! a release hands the name to the first waiter and wakes its process by a datagram; the waiter
//! holds the name from then on
//! a wait ends with its limit, with the caller, or with its process
//! ```

use std::collections::HashMap;

use holdline_core::{
    AcquireReply, AcquireRequest, Hold, LockError, LockName, Purpose, RenewReply, RenewRequest,
};

use crate::error::Fault;
use crate::step::{DeadHolders, Step};

/// Grants a name, or queues for it.
pub(crate) fn acquire(
    step: &mut Step<'_>,
    request: &AcquireRequest,
) -> Result<Result<AcquireReply, LockError>, Fault> {
    step.check_store_sometimes().map_err(Fault::into_unavailable)?;
    if request.queue || !matches!(request.hold, Hold::Detached(_)) {
        step.clients.register(request.client)?;
    }
    let look = DeadHolders::Find;
    let mut reply = step.on(&request.name, look, |table| table.acquire(request))?;
    if let Ok(AcquireReply::Granted { token, anchor, .. }) = &mut reply
        && request.hold == Hold::Live
    {
        *anchor = Some(step.clients.anchor(request.lease_id, *token)?);
    }
    Ok(reply)
}

/// Renews a batch. An entry whose name has foreign data gets that error: the batch is rolled back
/// and repeated without that name.
pub(crate) fn renew_all(
    step: &mut Step<'_>,
    renewals: &[RenewRequest],
    foreign: &mut HashMap<LockName, String>,
) -> Result<Vec<Result<RenewReply, LockError>>, Fault> {
    let gone = match step.check_store() {
        Ok(()) => None,
        Err(Fault::StoreGone(what)) => Some(what),
        Err(fault) => return Err(fault),
    };
    let mut replies = Vec::with_capacity(renewals.len());
    for renewal in renewals {
        let reply = match (&gone, foreign.get(&renewal.name)) {
            (Some(what), _) => lost(renewal, what),
            (None, Some(found)) => Err(Fault::Foreign(found.clone()).about(&renewal.name)),
            (None, None) => match renew_one(step, renewal) {
                Err(Fault::Foreign(found)) => {
                    foreign.insert(renewal.name.clone(), found);
                    return Err(Fault::Again);
                }
                reply => reply?,
            },
        };
        replies.push(reply);
    }
    Ok(replies)
}

fn renew_one(
    step: &mut Step<'_>,
    renewal: &RenewRequest,
) -> Result<Result<RenewReply, LockError>, Fault> {
    let own_files_stand = match renewal.purpose {
        Purpose::Keep(Hold::Live) => step.clients.anchor_stands(renewal.lease_id),
        Purpose::Keep(Hold::Leased(_)) if !renewal.client.is_remote() => {
            step.clients.register(renewal.client)?;
            step.clients.client_stands(renewal.client)
        }
        Purpose::Keep(Hold::Leased(_) | Hold::Detached(_)) | Purpose::Wait => true,
    };
    if !own_files_stand {
        // Others consider us dead, and may hold the name already.
        return Ok(lost(renewal, "our liveness file was removed"));
    }
    let look = match renewal.purpose {
        Purpose::Keep(_) => DeadHolders::Ignore,
        Purpose::Wait => DeadHolders::Find,
    };
    let reply = step.on(&renewal.name, look, |table| table.renew(renewal))?;
    if let Ok(reply) = &reply
        && reply.is_over()
    {
        step.is_over(renewal.lease_id);
    }
    Ok(reply)
}

/// Makes the reply for a lost entry: a holder has lost, and a contender queues again.
fn lost(renewal: &RenewRequest, what: &str) -> Result<RenewReply, LockError> {
    match renewal.purpose {
        Purpose::Keep(_) => Err(Fault::StoreGone(what.to_owned()).about(&renewal.name)),
        Purpose::Wait => Ok(RenewReply::Unknown),
    }
}
