//! The engine: the verbs of one server, each sent to the master of the name's slot.

use std::fmt;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditPage, AuditRecord, AuditRequest, Capabilities, Clock, Hints,
    LatchCommand, LatchReply, LeaseId, ListPage, ListRequest, LockError, LockName, Operation,
    OperationReply, Purpose, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Renewed,
    Snapshot, Verbs,
};

use super::attempt::SlotRequest;
use super::renewals::{self, ReplyTimeouts};
use super::replica_acks::ReplicaAcks;
use super::router::ClusterRouter;
use super::slots::{key_slot, slot_of};
use crate::error::protocol;
use crate::inbox::{Grants, ProcessInbox};
use crate::keys::Layout;
use crate::limits::MAX_SHOWN;
use crate::link::{Call, Value};
use crate::native::listing::{self, Listings, NameSource, NextNames, Scan, ScanBudget, Shown};
use crate::native::{self, RequestContext};
use crate::options::RedisOptions;

/// The engine of a Redis Cluster. Clones share its connections.
#[derive(Clone)]
pub struct ClusterEngine(Arc<ClusterEngineParts>);

struct ClusterEngineParts {
    capabilities: Capabilities,
    router: ClusterRouter,
    context: RequestContext,
    watches: Arc<Watches>,
    inbox: ProcessInbox,
    listings: Listings,
    clock: Arc<dyn Clock>,
    /// Waits for replicas to acknowledge grants, where the options require that.
    replica_acks: Option<ReplicaAcks>,
}

impl ClusterEngine {
    /// Makes an engine. It connects with its first command; [`ClusterEngine::connect`] does it now.
    /// `clock` must count the time that the machine is suspended, as the servers' does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or names no cluster.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<ClusterEngine, LockError> {
        let router = ClusterRouter::new(options, clock.clone())?;
        let layout = Layout::of(options);
        let control = router.control().clone();
        // Never all zeros, which stands for no inbox.
        let inbox_id = format!("{:08x}{:08x}", control.random(), control.random() | 1);
        let watches = Arc::new(Watches::default());
        let replica_acks = ReplicaAcks::of(options);
        let grants = if replica_acks.is_some() { Grants::Asked } else { Grants::Believed };
        let inbox = ProcessInbox::new(
            control,
            clock.clone(),
            layout.inbox(&inbox_id),
            watches.clone(),
            grants,
        );
        let listings = Listings::new(clock.clone());
        let scripts = &native::CLUSTER;
        let context = RequestContext {
            layout,
            scripts,
            inbox: inbox_id,
            deadline: options.command_timeout(),
        };
        let capabilities = native::capabilities(options);
        let inner = ClusterEngineParts {
            capabilities,
            router,
            context,
            watches,
            inbox,
            listings,
            clock,
            replica_acks,
        };
        Ok(ClusterEngine(Arc::new(inner)))
    }

    /// Makes an engine and waits until a node has reported the table of slots.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no node can be reached. `Refused`: the node
    /// does not let us in, or is not in a cluster. Nothing is held after any of them.
    pub async fn connect(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<ClusterEngine, LockError> {
        let engine = ClusterEngine::new(options, clock)?;
        engine.0.router.ready().await?;
        Ok(engine)
    }
}

impl Verbs for ClusterEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        let replies = self.0.renew(renewals).await;
        self.0.inbox.forget_ended(renewals, &replies);
        Ok(replies)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.watches.forget(request.lease_id);
        self.0.release(request).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        self.0.inspect(name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage, LockError> {
        self.0.listings.page(request, &*self.0).await
    }

    fn watch(&self, _name: &LockName, lease_id: LeaseId) -> Hints {
        self.0.inbox.watch(lease_id)
    }

    fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
        match operation {
            Operation::RaiseFence { .. } => Err(self.0.capabilities.lacks(
                "raising the fence of all names at once: each has a counter of its own, which \
                 never falls behind the servers' clocks",
            )),
            _ => operation.check(&self.0.capabilities),
        }
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }

    async fn latch(&self, name: &LockName, command: LatchCommand) -> Result<LatchReply, LockError> {
        let reply = self.0.send(name, || native::requests::latch(&self.0.context, name, command));
        native::replies::latch(&reply.await?)
    }

    async fn append_audit(&self, record: &AuditRecord) -> Result<(), LockError> {
        let reply = self.0.ask_trail(|| native::trail::append(&self.0.context, record));
        native::trail::appended(&reply.await?)
    }

    async fn read_audit(&self, request: &AuditRequest) -> Result<AuditPage, LockError> {
        let reply = self.0.ask_trail(|| native::trail::read(&self.0.context, request));
        native::trail::page(&reply.await?, request)
    }
}

impl ClusterEngineParts {
    /// Sends a script that needs all keys of one name.
    async fn send(
        &self,
        name: &LockName,
        full: impl Fn() -> Call + Send + Sync,
    ) -> Result<Value, LockError> {
        self.send_or_lock_key_only(name, full, || None).await
    }

    /// The same; while the slot migrates, a script that needs the lock key only.
    async fn send_or_lock_key_only(
        &self,
        name: &LockName,
        full: impl Fn() -> Call + Send + Sync,
        lock_key_only: impl Fn() -> Option<Call> + Send + Sync,
    ) -> Result<Value, LockError> {
        let slot = slot_of(name);
        let deadline = self.context.deadline;
        self.router
            .send(SlotRequest { slot, deadline, full: &full, lock_key_only: &lock_key_only })
            .await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let limit = self.capabilities.max_waiters;
        let send = |subscribed| async move {
            let full = || native::acquire(&self.context, request, subscribed, limit);
            let reply = self.send(&request.name, full).await;
            let reply = reply.and_then(|reply| native::acquired(&reply, request, limit))?;
            if matches!(reply, AcquireReply::Granted { .. }) {
                let renewal = RenewRequest {
                    name: request.name.clone(),
                    lease_id: request.lease_id,
                    client: request.client,
                    purpose: Purpose::Keep(request.hold),
                };
                // If too few have it, the caller gives up the lease id, or repeats the request.
                self.confirm(&[&renewal], subscribed).await?;
            }
            Ok(reply)
        };
        self.inbox.acquire(request, self.context.deadline, send).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        let full = || native::release(&self.context, request);
        let lock_key_only = || native::lock_key_only::release(&self.context, request);
        let reply = self.send_or_lock_key_only(&request.name, full, lock_key_only).await?;
        native::released(&reply)
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Vec<Result<RenewReply, LockError>> {
        let timeouts = ReplyTimeouts {
            clock: &*self.clock,
            deadline: self.context.deadline,
            slowest_trip: self.router.slowest_trip(),
        };
        let subscribed = self.inbox.is_subscribed();
        renewals::by_name(renewals, timeouts, |of_name| self.renew_name(of_name, subscribed)).await
    }

    /// Renews the grants of one name.
    async fn renew_name(
        &self,
        renewals: Vec<&RenewRequest>,
        subscribed: bool,
    ) -> Vec<Result<RenewReply, LockError>> {
        let Some(name) = renewals.first().map(|renewal| &renewal.name) else { return Vec::new() };
        let full = || native::renew(&self.context, &renewals, subscribed);
        let lock_key_only = || native::lock_key_only::renew(&self.context, &renewals, subscribed);
        let reply = self.send_or_lock_key_only(name, full, lock_key_only).await;
        let mut replies = match reply.and_then(|reply| native::renewed(&reply, renewals.len())) {
            Ok(replies) => replies,
            Err(error) => return renewals.iter().map(|_| Err(error.clone())).collect(),
        };
        let is_kept =
            |reply: &Result<RenewReply, LockError>| matches!(reply, Ok(RenewReply::Renewed { .. }));
        let kept = renewals.iter().zip(&replies).filter(|(_, reply)| is_kept(reply));
        let kept: Vec<&RenewRequest> = kept.map(|(renewal, _)| *renewal).collect();
        if let Err(error) = self.confirm(&kept, subscribed).await {
            for reply in replies.iter_mut().filter(|reply| is_kept(reply)) {
                *reply = Err(error.clone());
            }
        }
        replies
    }

    /// Waits until enough replicas have these grants of one name, where the options require that.
    async fn confirm(&self, renewals: &[&RenewRequest], subscribed: bool) -> Result<(), LockError> {
        let Some(replica_acks) = &self.replica_acks else { return Ok(()) };
        let Some(first) = renewals.first() else { return Ok(()) };
        let slot = slot_of(&first.name);
        let renewal = || native::renew(&self.context, renewals, subscribed);
        replica_acks.confirm(&self.router, slot, renewal, renewals.len()).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let names = std::slice::from_ref(name);
        let reply = self.send(name, || native::inspect(&self.context, names, MAX_SHOWN)).await;
        let mut shown = native::inspected(&reply?, names)?;
        shown.pop().unwrap_or_else(|| Err(protocol("a requested name is not in the reply")))
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let Some(name) = operation.name() else {
            return Err(self.capabilities.lacks("an operation on all names at once"));
        };
        let reply = self.send(name, || native::operate(&self.context, operation)).await;
        native::operated(&reply?)
    }
}

impl ClusterEngineParts {
    /// Sends a call to the audit trail, which has one key and so one slot.
    async fn ask_trail(&self, call: impl Fn() -> Call + Send + Sync) -> Result<Value, LockError> {
        let slot = key_slot(&self.context.layout.audit());
        let deadline = self.context.deadline;
        let lock_key_only = || Some(call());
        let request = SlotRequest { slot, deadline, full: &call, lock_key_only: &lock_key_only };
        self.router.send(request).await
    }
}

impl NameSource for ClusterEngineParts {
    /// Scans the keys of all masters.
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
    ) -> Result<NextNames, LockError> {
        let mut next_names = NextNames::default();
        let deadline = self.context.deadline;
        let scan = Scan { layout: &self.context.layout, kind: None, deadline };
        for node in self.router.masters().await? {
            let add = &mut |name| next_names.add(name);
            scan.names_after(&node, prefix, after, budget, add).await?;
        }
        Ok(next_names)
    }

    async fn show(&self, names: &[LockName]) -> Result<Vec<Shown>, LockError> {
        Ok(listing::each(names, |name| self.inspect(name)).await)
    }
}

impl fmt::Debug for ClusterEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
