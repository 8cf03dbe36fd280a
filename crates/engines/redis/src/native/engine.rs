//! The engine: each command is one script, which is one step of the lock table.
//!
//! ```text
//! acquire:
//!   with Sentinels: wait for a master that may grant
//!   if the request may queue: subscribe this process's inbox first
//!   run acquire.lua, one atomic step:
//!     end what is over; hand a free name to the first waiter        (settle)
//!     the lease id holds              -> granted, with the same token
//!     it waits                        -> queued: this is its heartbeat
//!     it was released or revoked      -> cancelled, revoked
//!     the name is free, nobody waits  -> draw a token from the counter, granted
//!     the request may not queue       -> busy
//!     otherwise                       -> append it to the queue, queued
//!   replicas=: WAIT until enough replicas have the grant
//! a release, or the end of a lease that somebody notices, hands the name to the first waiter
//! and publishes the grant to its inbox; with `replicas=` the waiter asks whether enough have it
//! a wait ends with its limit, with the caller, or when its heartbeats stop
//! ```

use std::fmt;
use std::iter;
use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditPage, AuditRecord, AuditRequest, AuditTrail, Capabilities,
    Clock, ClockKind, HandOff, Hints, LatchCommand, LatchReply, LeaseId, ListPage, ListRequest,
    LockError, LockName, Operation, OperationReply, Purpose, ReleaseReply, ReleaseRequest,
    RenewRequest, Renewed, Snapshot, Verbs,
};

use super::listing::{Listings, NameSource, NextNames, Scan, ScanBudget, Shown};
use super::{RequestContext, SERVER, replies, requests, trail};
use crate::error::{ENGINE, protocol};
use crate::inbox::{Grants, ProcessInbox};
use crate::keys::Layout;
use crate::limits::{LAG, MAX_BATCH, MAX_SHOWN};
use crate::link::{Link, ServerFacts};
use crate::options::{Dialect, RedisOptions, Replicas};
use crate::sentinel::{self, ReplicaAcks};

/// The engine of one Redis server. Clones share its connection.
#[derive(Clone)]
pub struct RedisEngine(Arc<RedisEngineParts>);

struct RedisEngineParts {
    capabilities: Capabilities,
    link: Link,
    context: RequestContext,
    watches: Arc<Watches>,
    inbox: ProcessInbox,
    listings: Listings,
    clock: Arc<dyn Clock>,
    /// Waits for replicas to acknowledge grants, where the options require that.
    replica_acks: Option<ReplicaAcks>,
}

impl RedisEngine {
    /// Makes an engine. It connects with its first command; [`RedisEngine::connect`] does it now.
    /// `clock` must count the time that the machine is suspended, as the server's does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or the dialect is another.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<RedisEngine, LockError> {
        options.must_be(Dialect::Native)?;
        options.must_be_of_one()?;
        let link = sentinel::link(options, clock.clone())?;
        let layout = Layout::of(options);
        // Never all zeros, which stands for no inbox.
        let inbox_id = format!("{:08x}{:08x}", link.random(), link.random() | 1);
        let watches = Arc::new(Watches::default());
        let channel = layout.inbox(&inbox_id);
        let rules = options.failover();
        let grants = match rules.replicas() {
            Replicas::None if rules.quarantine() => Grants::OfMaster,
            Replicas::None => Grants::Believed,
            _ => Grants::Asked,
        };
        let inbox =
            ProcessInbox::new(link.clone(), clock.clone(), channel, watches.clone(), grants);
        let listings = Listings::new(clock.clone());
        let replica_acks = sentinel::replica_acks_of(options, &link, &layout)?;
        let scripts = &SERVER;
        let context = RequestContext {
            layout,
            scripts,
            inbox: inbox_id,
            deadline: options.command_timeout(),
        };
        let capabilities = capabilities(options);
        let inner = RedisEngineParts {
            capabilities,
            link,
            context,
            watches,
            inbox,
            listings,
            clock,
            replica_acks,
        };
        Ok(RedisEngine(Arc::new(inner)))
    }

    /// Makes an engine and waits until it has a connection.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: the server cannot be reached. `NoQuorum`: the
    /// sentinels answer, and the master does not. `Refused`: the server does not let us in. Nothing
    /// is held after any of them.
    pub async fn connect(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<RedisEngine, LockError> {
        let engine = RedisEngine::new(options, clock)?;
        engine.0.link.ready().await?.check_is_alone()?;
        Ok(engine)
    }
}

pub(crate) fn capabilities(options: &RedisOptions) -> Capabilities {
    let mut identity = match options.group() {
        Some(group) => format!("{group}/{}", options.db()),
        None if options.is_of_cluster() => format!("cluster {}", options.address().in_order()),
        None => format!("{}/{}", options.address(), options.db()),
    };
    // Engines with other keys have other locks.
    let usual = RedisOptions::default();
    for (key, usual) in
        [(options.key_template(), usual.key_template()), (options.prefix(), usual.prefix())]
    {
        if key != usual {
            identity.push(' ');
            identity.push_str(key);
        }
    }
    let mut capabilities = Capabilities::reference(ENGINE, identity);
    capabilities.lag = LAG;
    capabilities.clock = ClockKind::Boottime;
    capabilities.max_waiters = options.max_waiters();
    capabilities.max_batch = MAX_BATCH;
    capabilities.latch = true;
    capabilities.audit = AuditTrail::Store;
    if let Some(longest) = options.longest_lease() {
        capabilities.lease.max = longest;
    }
    capabilities.quarantine = options.quarantine();
    if options.failover().replicas() != Replicas::None {
        // The reply shows whether they have the grant.
        capabilities.hand_off = HandOff::Direct;
    }
    capabilities
}

impl Verbs for RedisEngine {
    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        self.0.acquire(request).await
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        self.0.renew(renewals).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        self.0.watches.forget(request.lease_id);
        replies::released(&self.0.link.call(|| requests::release(&self.0.context, request)).await?)
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

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }

    async fn latch(&self, name: &LockName, command: LatchCommand) -> Result<LatchReply, LockError> {
        let call = || requests::latch(&self.0.context, name, command);
        replies::latch(&self.0.link.call(call).await?)
    }

    async fn append_audit(&self, record: &AuditRecord) -> Result<(), LockError> {
        trail::appended(&self.0.link.call(|| trail::append(&self.0.context, record)).await?)
    }

    async fn read_audit(&self, request: &AuditRequest) -> Result<AuditPage, LockError> {
        let reply = self.0.link.call(|| trail::read(&self.0.context, request)).await?;
        trail::page(&reply, request)
    }

    async fn flush(&self) {
        self.0.link.report_quarantine().await;
    }
}

impl RedisEngineParts {
    async fn granting_run(&self) -> Result<Option<Arc<ServerFacts>>, LockError> {
        let acks = self.replica_acks.as_ref();
        sentinel::granting_run(&self.link, acks, &*self.clock, self.context.deadline).await
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let facts = match operation {
            // A freeze draws a token, too.
            Operation::Freeze { .. } => self.granting_run().await?,
            _ => None,
        };
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        let call = || requests::operate(&self.context, operation);
        let reply = match operation {
            Operation::Freeze { .. } => self.link.call_granting(run, call).await,
            _ => self.link.call_of(run, call).await,
        };
        replies::operated(&reply?)
    }

    /// Waits until enough replicas have the grants of this run of the server.
    async fn confirm(&self, run: Option<&str>) -> Result<(), LockError> {
        match &self.replica_acks {
            Some(replica_acks) => replica_acks.confirm(run).await,
            None => Ok(()),
        }
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let facts = self.granting_run().await?;
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        let limit = self.capabilities.max_waiters;
        let send = |subscribed| async move {
            let send = || requests::acquire(&self.context, request, subscribed, limit);
            let reply = self.link.call_granting(run, send).await;
            let reply = reply.and_then(|reply| replies::acquired(&reply, request, limit))?;
            if matches!(reply, AcquireReply::Granted { .. }) {
                // If too few have it, the caller gives up the lease id, or repeats the request.
                self.confirm(run).await?;
            }
            Ok(reply)
        };
        self.inbox.acquire(request, self.context.deadline, send).await
    }

    async fn renew(&self, renewals: &[&RenewRequest]) -> Renewed {
        let replies = self.renew_all(renewals, self.inbox.is_subscribed()).await?;
        self.inbox.forget_ended(renewals, &replies);
        Ok(replies)
    }

    async fn renew_all(&self, renewals: &[&RenewRequest], subscribed: bool) -> Renewed {
        let facts = match &self.replica_acks {
            Some(_) => Some(self.link.ready_within(self.context.deadline).await?),
            None => None,
        };
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        let reply =
            self.link.call_of(run, || requests::renew(&self.context, renewals, subscribed)).await;
        let replies = replies::renewed(&reply?, renewals.len())?;
        if renewals.iter().any(|renewal| matches!(renewal.purpose, Purpose::Keep(_))) {
            self.confirm(run).await?;
        }
        Ok(replies)
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let mut shown = self.inspect_all(std::slice::from_ref(name)).await?;
        shown.pop().unwrap_or_else(|| Err(protocol("a requested name is not in the reply")))
    }

    async fn inspect_all(
        &self,
        names: &[LockName],
    ) -> Result<Vec<Result<Snapshot, LockError>>, LockError> {
        let reply = self.link.call(|| requests::inspect(&self.context, names, MAX_SHOWN)).await;
        let shown = replies::inspected(&reply?, names)?;
        let about = |(one, name): (Result<Snapshot, LockError>, &LockName)| {
            one.map_err(|error| error.with_name(name))
        };
        Ok(iter::zip(shown, names).map(about).collect())
    }
}

impl NameSource for RedisEngineParts {
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
    ) -> Result<NextNames, LockError> {
        let mut next_names = NextNames::default();
        let deadline = self.context.deadline;
        let scan = Scan { layout: &self.context.layout, kind: None, deadline };
        scan.names_after(&self.link, prefix, after, budget, &mut |name| next_names.add(name))
            .await?;
        Ok(next_names)
    }

    async fn show(&self, names: &[LockName]) -> Result<Vec<Shown>, LockError> {
        self.inspect_all(names).await
    }
}

impl fmt::Debug for RedisEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
