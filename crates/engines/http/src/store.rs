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
use crate::wire::{
    Acquire, Acquired, Batch, Command, Description, Inspect, List, Operate, Operated, Outcome,
    Page, Release, Released, Renew, Renewed as RenewedMessage, SnapshotMessage, capabilities_of,
};

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
        let capabilities = capabilities_of(description).ok_or_else(other)?;
        Ok(Store { capabilities, client, watcher: Watcher::default() })
    }

    async fn ask<R: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<R, LockError> {
        match self.client.post(path, body).await? {
            Outcome::Ok(reply) => Ok(reply),
            Outcome::Error(failure) => Err(failure.into_error()),
        }
    }

    pub(crate) async fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> Result<AcquireReply, LockError> {
        self.ask::<Acquired>(ACQUIRE, &Acquire::of(request)).await.map(AcquireReply::from)
    }

    pub(crate) async fn renew(&self, renewals: &[RenewRequest]) -> Renewed {
        let batch = Batch { renewals: renewals.iter().map(Renew::of).collect() };
        let replies: Vec<Outcome<RenewedMessage>> = self.ask(RENEW, &batch).await?;
        let read = |reply| match reply {
            Outcome::Ok(reply) => Ok(RenewReply::from(reply)),
            Outcome::Error(failure) => Err(failure.into_error()),
        };
        Ok(replies.into_iter().map(read).collect())
    }

    pub(crate) async fn release(
        &self,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply, LockError> {
        self.ask::<Released>(RELEASE, &Release::of(request)).await.map(ReleaseReply::from)
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let request = Inspect { name: name.clone() };
        let snapshot: SnapshotMessage = self.ask(INSPECT, &request).await?;
        Ok(snapshot.into_snapshot())
    }

    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.ask::<Page>(LIST, &List::of(request)).await.map(Page::into_page)
    }

    pub(crate) async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        match self.command(Command::Operation(operation.clone())).await? {
            Operated::Done => Ok(OperationReply::Done),
            Operated::HolderNotified { left } => Ok(OperationReply::Notified { left }),
            Operated::NothingThere => Ok(OperationReply::NothingThere),
            other => Err(other_reply(&other)),
        }
    }

    pub(crate) async fn latch(
        &self,
        name: LockName,
        command: LatchCommand,
    ) -> Result<LatchReply, LockError> {
        match self.command(Command::Latch(name, command)).await? {
            Operated::Latch { count, changed } => Ok(LatchReply { count, changed }),
            other => Err(other_reply(&other)),
        }
    }

    pub(crate) async fn counting(
        &self,
        name: LockName,
        command: CountingCommand,
    ) -> Result<CountingReply, LockError> {
        match self.command(Command::Counting(name, command)).await? {
            Operated::Counting { before, after } => Ok(CountingReply { before, after }),
            other => Err(other_reply(&other)),
        }
    }

    pub(crate) async fn read_audit(&self, request: AuditRequest) -> Result<AuditPage, LockError> {
        match self.command(Command::AuditRead(request)).await? {
            Operated::AuditRead(page) => Ok(page),
            other => Err(other_reply(&other)),
        }
    }

    async fn command(&self, command: Command) -> Result<Operated, LockError> {
        self.ask(OPERATE, &Operate::from(command)).await
    }

    pub(crate) fn watch(&self, executor: &Executor, name: &LockName, lease_id: LeaseId) -> Hints {
        self.watcher.open(executor, &self.client, name, lease_id)
    }
}

fn other_reply(reply: &Operated) -> LockError {
    protocol(format!("the server replied to another command: {reply:?}"), Certainty::Unknown)
}
