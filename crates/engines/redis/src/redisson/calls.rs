//! Calls about one name: where they are sent, how they are made, and their deadline.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::{Clock, LockError, LockName, RenewRequest, Renewed};

use super::requests::RequestContext;
use crate::cluster::{self, Replies, ReplyTimeouts};
use crate::link::Call;
use crate::route::{Purpose, Route, Sent};

/// What each call about a name needs.
pub(super) struct Calls {
    pub(super) route: Arc<Route>,
    pub(super) context: RequestContext,
    pub(super) clock: Arc<dyn Clock>,
}

impl Calls {
    /// Sends a call, and waits for its reply.
    pub(super) async fn send(
        &self,
        name: &LockName,
        purpose: Purpose,
        call: impl Fn() -> Call + Send + Sync,
    ) -> Result<Sent, LockError> {
        self.send_or_lock_key_only(name, purpose, call, || None).await
    }

    /// The same; while the slot of the name migrates, a call that needs the lock key only.
    pub(super) async fn send_or_lock_key_only(
        &self,
        name: &LockName,
        purpose: Purpose,
        call: impl Fn() -> Call + Send + Sync,
        lock_key_only: impl Fn() -> Option<Call> + Send + Sync,
    ) -> Result<Sent, LockError> {
        let RequestContext { names, deadline, .. } = &self.context;
        self.route.send(|| names.slot(name), purpose, *deadline, call, lock_key_only).await
    }

    /// Returns the slot of a name; 0 where there are none.
    pub(super) fn slot(&self, name: &LockName) -> Result<u16, LockError> {
        if self.route.is_of_cluster() { self.context.names.slot(name) } else { Ok(0) }
    }

    /// Renews grants, on a cluster those of each name by themselves.
    pub(super) async fn renew_all(&self, renewals: &[&RenewRequest]) -> Renewed {
        match self.route.slowest_trip() {
            Some(slowest_trip) => Ok(self.renew_by_name(renewals, slowest_trip).await),
            None => self.renew(renewals).await,
        }
    }

    /// Renews grants by one call.
    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        let Some(first) = renewals.first() else { return Ok(Vec::new()) };
        let call = || self.context.renew(renewals);
        let lock_key_only = || self.context.renew_lock(renewals);
        let purpose = Purpose::Keep;
        let sent = self.send_or_lock_key_only(&first.name, purpose, call, lock_key_only).await?;
        let replies = self.renewed(renewals, &sent.value).await?;
        self.route.confirm(&sent).await?;
        Ok(replies)
    }

    /// Renews each name by a call of its own, on a cluster.
    async fn renew_by_name(&self, renewals: &[&RenewRequest], slowest_trip: Duration) -> Replies {
        let timeouts =
            ReplyTimeouts { clock: &*self.clock, deadline: self.context.deadline, slowest_trip };
        let renew_name = |of_name: Vec<_>| async move {
            match self.renew(&of_name).await {
                Ok(replies) => replies,
                Err(error) => of_name.iter().map(|_| Err(error.clone())).collect(),
            }
        };
        cluster::by_name(renewals, timeouts, renew_name).await
    }
}
