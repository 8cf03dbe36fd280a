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
//! claims by the same command
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
    lines: &[RenewRequest],
    foreign: &mut HashMap<LockName, String>,
) -> Result<Vec<Result<RenewReply, LockError>>, Fault> {
    let gone = match step.check_store() {
        Ok(()) => None,
        Err(Fault::StoreGone(what)) => Some(what),
        Err(fault) => return Err(fault),
    };
    let mut replies = Vec::with_capacity(lines.len());
    for line in lines {
        let reply = match (&gone, foreign.get(&line.name)) {
            (Some(what), _) => lost(line, what),
            (None, Some(found)) => Err(Fault::Foreign(found.clone()).about(&line.name)),
            (None, None) => match renew_one(step, line) {
                Err(Fault::Foreign(found)) => {
                    foreign.insert(line.name.clone(), found);
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
    line: &RenewRequest,
) -> Result<Result<RenewReply, LockError>, Fault> {
    let own_files_stand = match line.purpose {
        Purpose::Keep(Hold::Live) => step.clients.anchor_stands(line.lease_id),
        Purpose::Keep(Hold::Leased(_)) if !line.client.is_remote() => {
            step.clients.register(line.client)?;
            step.clients.client_stands(line.client)
        }
        Purpose::Keep(Hold::Leased(_) | Hold::Detached(_)) | Purpose::Wait => true,
    };
    if !own_files_stand {
        // Others consider us dead, and may hold the name already.
        return Ok(lost(line, "our liveness file was removed"));
    }
    let look = match line.purpose {
        Purpose::Keep(_) => DeadHolders::Ignore,
        Purpose::Wait => DeadHolders::Find,
    };
    let reply = step.on(&line.name, look, |table| table.renew(line))?;
    if let Ok(reply) = &reply
        && reply.is_over()
    {
        step.is_over(line.lease_id);
    }
    Ok(reply)
}

/// Makes the reply for a lost entry: a holder has lost, and a contender queues again.
fn lost(line: &RenewRequest, what: &str) -> Result<RenewReply, LockError> {
    match line.purpose {
        Purpose::Keep(_) => Err(Fault::StoreGone(what.to_owned()).about(&line.name)),
        Purpose::Wait => Ok(RenewReply::Unknown),
    }
}
