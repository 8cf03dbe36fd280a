//! The commands, each as one request.

use std::sync::Arc;

use holdline_core::{
    AcquireReply, AcquireRequest, AuditPage, AuditRequest, Capabilities, Certainty,
    CountingCommand, CountingReply, Hints, LatchCommand, LatchReply, LeaseId, ListPage,
    ListRequest, LockError, LockName, Operation, OperationReply, ReleaseReply, ReleaseRequest,
    RenewReply, RenewRequest, Renewed, Snapshot,
};
use holdline_net::executor::Executor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::protocol;
use crate::keys::{ACQUIRE, DESCRIBE, INSPECT, LIST, OPERATE, PROTOCOL, RELEASE, RENEW};
use crate::options::HttpOptions;
use crate::watch::Watcher;
use crate::wire::{Batch, Description, Inspect, Operate, Outcome};

/// The store behind a server.
pub(crate) struct Store {
    pub(crate) capabilities: Capabilities,
    client: Arc<Client>,
    watcher: Watcher,
}

impl Store {
    pub(crate) async fn connect(options: &HttpOptions) -> Result<Store, LockError> {
        let client = Arc::new(Client::new(options)?);
        let description: Description = client
            .get(DESCRIBE)
            .await
            // The request was a read, so nothing was applied.
            .map_err(|error| error.with_certainty(Certainty::NotApplied))?;
        let theirs = description.protocol;
        let other = || {
            let message = format!("the server has protocol {theirs}, this program has {PROTOCOL}");
            protocol(message, Certainty::NotApplied)
        };
        if theirs != PROTOCOL {
            return Err(other());
        }
        let capabilities = description.into_capabilities().ok_or_else(other)?;
        Ok(Store { capabilities, client, watcher: Watcher::default() })
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<R, LockError> {
        self.client.post::<Outcome<R>>(path, body).await?.into_result()
    }

    pub(crate) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        self.ask(ACQUIRE, request).await
    }

    pub(crate) async fn renew(&self, renewals: &[RenewRequest]) -> Renewed {
        let replies: Vec<Outcome<RenewReply>> = self.ask(RENEW, &Batch { renewals }).await?;
        Ok(replies.into_iter().map(Outcome::into_result).collect())
    }

    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        self.ask(RELEASE, request).await
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.ask(INSPECT, &Inspect { name: name.clone() }).await
    }

    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.ask(LIST, request).await
    }

    pub(crate) async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.ask(OPERATE, &Operate::Operation(operation.clone())).await
    }

    pub(crate) async fn latch(
        &self,
        name: LockName,
        command: LatchCommand,
    ) -> Result<LatchReply, LockError> {
        self.ask(OPERATE, &Operate::Latch { name, command }).await
    }

    pub(crate) async fn counting(
        &self,
        name: LockName,
        command: CountingCommand,
    ) -> Result<CountingReply, LockError> {
        self.ask(OPERATE, &Operate::Counting { name, command }).await
    }

    pub(crate) async fn read_audit(&self, request: AuditRequest) -> Result<AuditPage, LockError> {
        self.ask(OPERATE, &Operate::AuditRead(request)).await
    }

    pub(crate) fn watch(&self, executor: &Executor, name: &LockName, lease_id: LeaseId) -> Hints {
        self.watcher.open(executor, &self.client, name, lease_id)
    }
}
