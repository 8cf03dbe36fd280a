//! The requests to one server of several, each of which has an `RLock` of the name: Redisson's
//! `RedissonRedLock`.

use std::time::Duration;

use holdline_core::{
    AcquireReply, AcquireRequest, HolderSummary, LeaseId, LockError, LockName, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Snapshot,
};

use super::names::Names;
use super::replies;
use super::requests::RequestContext;
use crate::link::Link;
use crate::native;
use crate::options::RedisOptions;

/// How single servers publish.
const VERB: &str = "PUBLISH";

/// The requests to single servers, without tokens.
#[derive(Debug)]
pub(crate) struct NodeRequests(RequestContext);

/// The holder of a name on one server.
pub(crate) struct NodeLock {
    /// Known for a holder of ours.
    pub(crate) lease_id: Option<LeaseId>,
    pub(crate) summary: HolderSummary,
}

impl NodeRequests {
    pub(crate) fn of(options: &RedisOptions) -> NodeRequests {
        let names = Names::of(options);
        let deadline = options.command_timeout();
        NodeRequests(RequestContext { names, fencing: false, deadline })
    }

    /// Returns the channel on which a release is published.
    pub(crate) fn channel(&self, name: &LockName) -> String {
        format!("redisson_lock__channel:{}", self.0.names.map(name).tag)
    }

    pub(crate) async fn acquire(
        &self,
        node: &Link,
        request: &AcquireRequest,
        deadline: Duration,
    ) -> Result<AcquireReply, LockError> {
        let reply = node.call(|| self.0.acquire(request, VERB).within(deadline)).await?;
        replies::acquired(&reply, request, false, 0)
    }

    /// Ends the lease.
    pub(crate) async fn release(
        &self,
        node: &Link,
        request: &ReleaseRequest,
        deadline: Duration,
    ) -> Result<ReleaseReply, LockError> {
        let call = || self.0.release(request, VERB).within(deadline);
        // Nobody may be there to repeat an undo whose script the server does not know.
        let for_good = request.ending.for_good;
        let reply = if for_good { node.call_in_full(call).await? } else { node.call(call).await? };
        native::released(&reply)
    }

    pub(crate) async fn renew(
        &self,
        node: &Link,
        renewals: &[&RenewRequest],
        deadline: Duration,
    ) -> Result<Vec<Result<RenewReply, LockError>>, LockError> {
        let reply = node.call(|| self.0.renew(renewals).within(deadline)).await?;
        native::renewed(&reply, renewals.len())
    }

    /// Returns the holder.
    pub(crate) async fn holder(
        &self,
        node: &Link,
        name: &LockName,
    ) -> Result<Option<NodeLock>, LockError> {
        let state = replies::state(&node.call(|| self.0.inspect(name)).await?, false)?;
        let held = state.and_then(|state| state.holders.into_iter().next());
        Ok(held.map(|held| NodeLock { lease_id: held.lease_id, summary: held.view.summary }))
    }

    pub(crate) async fn inspect(
        &self,
        node: &Link,
        name: &LockName,
    ) -> Result<Snapshot, LockError> {
        let reply = node.call(|| self.0.inspect(name)).await?;
        Ok(replies::snapshot(replies::state(&reply, false)?, name))
    }
}
