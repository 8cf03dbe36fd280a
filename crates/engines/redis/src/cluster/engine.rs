//! The engine: the verbs of one server, each sent to the master that serves the name's slot.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline_core::contract::QUEUE_HEARTBEAT;
use holdline_core::hints::Watches;
use holdline_core::{
    AcquireReply, AcquireRequest, Capabilities, Certainty, Clock, Hints, LeaseId, ListPage,
    ListRequest, LockError, LockName, Operation, OperationReply, Purpose, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Renewed, Snapshot, Verbs,
};

use super::router::{Ask, Router};
use super::slots::slot_of;
use crate::ears::Ears;
use crate::engine::{MAX_SHOWN, capabilities};
use crate::error::{protocol, unavailable};
use crate::keys::Layout;
use crate::listing::{Ahead, Listings, Scan, Shelf, Shown, Steps};
use crate::native::{self, Asker};
use crate::node::{Call, Value};
use crate::options::RedisOptions;
use crate::quorum::race::Race;

/// Which part of the shortest lease of a batch those that answered wait for the others.
const PART: u32 = 12;
const SHORTEST_GRACE: Duration = Duration::from_millis(20);

/// The engine of a Redis Cluster. Clones share its connections.
#[derive(Clone)]
pub struct ClusterEngine(Arc<Inner>);

struct Inner {
    capabilities: Capabilities,
    router: Router,
    asker: Asker,
    watches: Arc<Watches>,
    ears: Ears,
    listings: Listings,
    clock: Arc<dyn Clock>,
}

impl ClusterEngine {
    /// Makes an engine. It connects with its first command; [`ClusterEngine::connect`] does it now.
    /// `clock` must count the time that the machine is suspended, as the servers' does.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong, or names no cluster.
    pub fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<ClusterEngine, LockError> {
        let router = Router::new(options, clock.clone())?;
        let layout = Layout::of(options);
        let scout = router.scout().clone();
        // Never all zeros, which is the inbox of those who hear nothing.
        let inbox = format!("{:08x}{:08x}", scout.random(), scout.random() | 1);
        let watches = Arc::new(Watches::default());
        let ears = Ears::new(scout, clock.clone(), layout.inbox(&inbox), watches.clone());
        let listings = Listings::new(clock.clone());
        let scripts = &*native::CLUSTER;
        let asker = Asker { layout, scripts, inbox, deadline: options.command_timeout() };
        let capabilities = capabilities(options);
        let inner = Inner { capabilities, router, asker, watches, ears, listings, clock };
        Ok(ClusterEngine(Arc::new(inner)))
    }

    /// Makes an engine and waits until a node has told who serves which slot.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unavailable`: no node can be reached. `Refused`: it does not
    /// let us in, or is of no cluster. Nothing is held after any of them.
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

    async fn renew(&self, lines: &[&RenewRequest]) -> Renewed {
        let replies = self.0.renew(lines).await;
        self.0.ears.forget_ended(lines, &replies);
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
        self.0.ears.watch(lease_id)
    }

    fn check_operation(&self, operation: &Operation) -> Result<(), LockError> {
        match operation {
            Operation::RaiseFence { .. } => Err(self.0.capabilities.lacks(
                "raising the fence of all names at once: each has a counter of its own, which \
                 never falls behind the servers' clocks",
            )),
            // Its key is the name itself, and must lie where the keys of the lock lie.
            Operation::Latch { name, .. } if name.as_str().contains(['{', '}', '%']) => {
                let message = "the name of a latch must have no `{`, `}` or `%` in a cluster";
                let error = LockError::invalid(self.0.capabilities.engine, "name", message);
                Err(error.with_name(name))
            }
            _ => operation.check(&self.0.capabilities),
        }
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        self.0.operate(operation).await
    }
}

impl Inner {
    /// Asks about one name what must see all of it.
    async fn ask(
        &self,
        name: &LockName,
        whole: impl Fn() -> Call + Send + Sync,
    ) -> Result<Value, LockError> {
        self.ask_or_alone(name, whole, || None).await
    }

    /// Asks about one name; while its slot moves, by its lock key alone.
    async fn ask_or_alone(
        &self,
        name: &LockName,
        whole: impl Fn() -> Call + Send + Sync,
        alone: impl Fn() -> Option<Call> + Send + Sync,
    ) -> Result<Value, LockError> {
        let (slot, deadline) = (slot_of(name), self.asker.deadline);
        self.router.ask(Ask { slot, deadline, whole: &whole, alone: &alone }).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply, LockError> {
        let limit = self.capabilities.max_waiters;
        let ask = |hears| async move {
            let whole = || native::acquire(&self.asker, request, hears, limit);
            let alone = || native::alone::acquire(&self.asker, request);
            let reply = self.ask_or_alone(&request.name, whole, alone).await;
            reply.and_then(|reply| native::acquired(&reply, request, limit))
        };
        self.ears.acquire(request, self.asker.deadline, ask).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply, LockError> {
        let whole = || native::release(&self.asker, request);
        let alone = || native::alone::release(&self.asker, request);
        let reply = self.ask_or_alone(&request.name, whole, alone).await?;
        native::released(&reply)
    }

    /// Renews each name by itself, all at once.
    async fn renew(&self, lines: &[&RenewRequest]) -> Vec<Result<RenewReply, LockError>> {
        let mut names: BTreeMap<&LockName, Vec<usize>> = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            names.entry(&line.name).or_default().push(at);
        }
        let hears = self.ears.hears();
        let mut race = Race::with_room(names.len());
        let groups: Vec<Vec<usize>> = names.into_values().collect();
        for (number, places) in groups.iter().enumerate() {
            let of_name: Vec<&RenewRequest> = places.iter().map(|at| lines[*at]).collect();
            race.add(number, self.renew_name(of_name, hears));
        }
        let silent = || {
            let message = "the node did not answer while others did";
            Err(unavailable(message, Certainty::Unknown))
        };
        let mut answers: Vec<_> = lines.iter().map(|_| silent()).collect();
        let grace = self.grace(lines);
        let mut answered = false;
        while let Some((number, replies)) = self.next(&mut race, answered.then_some(grace)).await {
            answered = true;
            for (at, reply) in groups[number].iter().zip(replies) {
                answers[*at] = reply;
            }
        }
        answers
    }

    /// Renews the lines of one name.
    async fn renew_name(
        &self,
        lines: Vec<&RenewRequest>,
        hears: bool,
    ) -> Vec<Result<RenewReply, LockError>> {
        let Some(name) = lines.first().map(|line| &line.name) else { return Vec::new() };
        let whole = || native::renew(&self.asker, &lines, hears);
        let alone = || native::alone::renew(&self.asker, &lines, hears);
        let reply = self.ask_or_alone(name, whole, alone).await;
        match reply.and_then(|reply| native::renewed(&reply, lines.len())) {
            Ok(replies) => replies,
            Err(error) => lines.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// The next answer; none when nobody answers for so long, if that is given.
    async fn next<T>(&self, race: &mut Race<'_, T>, grace: Option<Duration>) -> Option<(usize, T)> {
        let Some(grace) = grace else { return race.next().await };
        let end = self.clock.now().after(grace);
        tokio::select! {
            biased;
            next = race.next() => next,
            () = self.clock.sleep_until(end) => None,
        }
    }

    /// How long those that were answered wait for a node that is silent: a small part of the
    /// shortest lease, but several round trips; of a heartbeat no more than half, as nobody waits
    /// for an answer to it until the next.
    fn grace(&self, lines: &[&RenewRequest]) -> Duration {
        let lease = |line: &&RenewRequest| match line.purpose {
            Purpose::Keep(hold) => hold.duration(),
            Purpose::Wait => None,
        };
        let shortest = lines.iter().filter_map(lease).min();
        let longest = self.asker.deadline / 4;
        let trips = self.router.slowest_trip().saturating_mul(4).min(longest);
        match shortest {
            Some(lease) => (lease / PART).min(longest).max(SHORTEST_GRACE).max(trips),
            None => longest.min(QUEUE_HEARTBEAT / 2),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, LockError> {
        let names = std::slice::from_ref(name);
        let reply = self.ask(name, || native::inspect(&self.asker, names, MAX_SHOWN)).await;
        let mut shown = native::inspected(&reply?, names)?;
        shown.pop().unwrap_or_else(|| Err(protocol("a name was asked for and not shown")))
    }

    async fn operate(&self, operation: &Operation) -> Result<OperationReply, LockError> {
        let Some(name) = operation.name() else {
            return Err(self.capabilities.lacks("what concerns all names at once"));
        };
        let reply = self.ask(name, || native::operate(&self.asker, operation)).await;
        native::operated(&reply?)
    }
}

impl Shelf for Inner {
    /// Looks at the keys of all masters.
    async fn names_after(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        steps: &mut Steps,
    ) -> Result<Ahead, LockError> {
        let mut ahead = Ahead::default();
        let scan = Scan { layout: &self.asker.layout, deadline: self.asker.deadline };
        let table = self.router.table();
        if table.shards().is_empty() {
            self.router.ready().await?;
        }
        for place in self.router.table().masters() {
            let node = self.router.node(place).await?;
            let add = &mut |name| ahead.add(name);
            scan.names_after(&node, (prefix, after), steps, add).await?;
        }
        Ok(ahead)
    }

    async fn show(&self, names: &[LockName]) -> Result<Vec<Shown>, LockError> {
        let mut race = Race::with_room(names.len());
        names.iter().enumerate().for_each(|(at, name)| race.add(at, self.inspect(name)));
        let missing = || Err(protocol("a name was asked for and not shown"));
        let mut shown: Vec<Shown> = names.iter().map(|_| missing()).collect();
        while let Some((at, one)) = race.next().await {
            shown[at] = one;
        }
        Ok(shown)
    }
}

impl fmt::Debug for ClusterEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterEngine")
            .field("identity", &self.0.capabilities.identity)
            .finish_non_exhaustive()
    }
}
