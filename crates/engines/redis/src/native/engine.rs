//! The engine: each command is one script, which is one step of the lock table.

use std::fmt;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, AuditTrail, Capabilities, Certainty, Clock, ClockKind, ErrorKind,
    Hints, LeaseId, ListPage, ListRequest, LockError, LockName, Moment, Operation, OperationReply,
    Purpose, ReleaseReply, ReleaseRequest, RenewRequest, Renewed, Snapshot, Verbs,
};

use crate::error::{ENGINE, protocol};
use crate::inbox::ProcessInbox;
use crate::keys::Layout;
use crate::link::{Link, ServerFacts};
use crate::listing::{Listings, NameSource, NextNames, Scan, ScanBudget, Shown};
use crate::native::{self, RequestContext};
use crate::options::{Dialect, RedisOptions, Replicas, SentinelGroup};
use crate::sentinel::{self, ReplicaAcks};

/// How many holders and waiters of a name are shown.
pub(crate) const MAX_SHOWN: usize = holdline_core::snapshot::MAX_VIEWS;
/// How many grants one call renews.
pub(crate) const MAX_BATCH: usize = 128;
/// How much later than its lease a dead holder's name may become free: the server counts whole
/// milliseconds, and a key exists until the end of its last one.
pub(crate) const LAG: Duration = Duration::from_millis(5);

/// The engine of one Redis server. Clones share its connection.
#[derive(Clone)]
pub struct RedisEngine(Arc<Inner>);

struct Inner {
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
        let inbox = ProcessInbox::new(link.clone(), clock.clone(), channel, watches.clone());
        let listings = Listings::new(clock.clone());
        let replica_acks = replica_acks_of(options, &link, &layout)?;
        let scripts = &native::SERVER;
        let context = RequestContext {
            layout,
            scripts,
            inbox: inbox_id,
            deadline: options.command_timeout(),
        };
        let capabilities = capabilities(options);
        let inner =
            Inner { capabilities, link, context, watches, inbox, listings, clock, replica_acks };
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

/// Makes what waits for replicas, where the options require that.
pub(crate) fn replica_acks_of(
    options: &RedisOptions,
    link: &Link,
    layout: &Layout,
) -> Result<Option<ReplicaAcks>, LockError> {
    let wanted = options.group().map_or(Replicas::None, SentinelGroup::replicas);
    let Some(source) = link.master_source().filter(|_| wanted != Replicas::None) else {
        return Ok(None);
    };
    let deadline = options.command_timeout();
    Ok(Some(ReplicaAcks::new(
        link.new_link_to_same_server()?,
        source.clone(),
        wanted,
        layout.master_term(),
        deadline,
    )))
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
    if let Some(group) = options.group() {
        capabilities.lease.max = group.max_lease();
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
        native::released(&self.0.link.call(|| native::release(&self.0.context, request)).await?)
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

    async fn flush(&self) {
        self.0.link.report_quarantine().await;
    }
}

/// Returns the run of the server that may grant now; `None` where any run may.
pub(crate) async fn granting_run(
    link: &Link,
    clock: &dyn Clock,
    deadline: Duration,
) -> Result<Option<Arc<ServerFacts>>, LockError> {
    if link.master_source().is_none() {
        return Ok(None);
    }
    let facts = link.ready_within(deadline).await?;
    let left = clock.now().until(facts.quarantined_until().unwrap_or(Moment::ORIGIN));
    if !left.is_zero() {
        let kind = ErrorKind::Quarantined { left };
        return Err(LockError::new(ENGINE, kind, Certainty::NotApplied));
    }
    Ok(Some(facts))
}

impl Inner {
    async fn granting_run(&self) -> Result<Option<Arc<ServerFacts>>, LockError> {
        granting_run(&self.link, &*self.clock, self.context.deadline).await
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let facts = match operation {
            // A freeze draws a token, too.
            Operation::Freeze { .. } => self.granting_run().await?,
            _ => None,
        };
        let run = facts.as_ref().and_then(|facts| facts.run_id.as_deref());
        let reply = self.link.call_of(run, || native::operate(&self.context, operation)).await;
        match operation {
            Operation::Audit(command) => native::trail::reply(&reply?, command),
            _ => native::operated(&reply?),
        }
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
            let send = || native::acquire(&self.context, request, subscribed, limit);
            let reply = self.link.call_of(run, send).await;
            let reply = reply.and_then(|reply| native::acquired(&reply, request, limit))?;
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
            self.link.call_of(run, || native::renew(&self.context, renewals, subscribed)).await;
        let replies = native::renewed(&reply?, renewals.len())?;
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
        let reply = self.link.call(|| native::inspect(&self.context, names, MAX_SHOWN)).await;
        let shown = native::inspected(&reply?, names)?;
        let about = |(one, name): (Result<Snapshot, LockError>, &LockName)| {
            one.map_err(|error| error.with_name(name))
        };
        Ok(iter::zip(shown, names).map(about).collect())
    }
}

impl NameSource for Inner {
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        budget: &mut ScanBudget,
    ) -> Result<NextNames, LockError> {
        let mut next_names = NextNames::default();
        let scan = Scan { layout: &self.context.layout, deadline: self.context.deadline };
        scan.names_after(&self.link, (prefix, after), budget, &mut |name| next_names.add(name))
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
