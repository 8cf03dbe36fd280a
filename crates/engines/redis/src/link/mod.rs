//! A logical connection to one Redis server.
//!
//! A [`Link`] keeps one TCP or Unix connection to its server and reconnects when that breaks.
//! Requests leave in the order in which they were made, pipelined, each with a deadline.
//! A request is sent once, with few exceptions (L1); an error says whether it may have been carried
//! out. Callers may repeat a request ([`RoutingPolicy::Retry`]).
//! A connection that misses a deadline is suspect. New requests wait for a healthy one, unless
//! their [`RoutingPolicy`] says otherwise.
//! Channel subscriptions survive reconnects, and a subscriber learns when it may have missed
//! messages.
//!
//! ```text
//! call ── router ── connection ── wire
//!           │           │
//!       supervisor  connection_task
//!
//! router           chooses the connection of a request
//! connection       keeps requests in order, each with its deadline
//! connection_task  writes, reads, expires deadlines, suspects a silent server
//! supervisor       dials, performs the handshake, subscribes, reconnects
//! wire             turns requests and replies into bytes
//! ```
//!
//! - Invariant L1: a request is sent once. Exceptions: `EVAL` follows `EVALSHA` after the server
//!   has answered `NOSCRIPT`. An undo is sent on a healthy connection, and a copy follows on each
//!   other connection where a request that it undoes is unanswered. An undo that finds no healthy
//!   connection is written to a suspect one ([`Link::leave_behind`]) and sent again later.
//! - Invariant L2: an error says whether the request may have left. A request that still waited
//!   for a connection was *not applied*; one that was put on a connection is *unknown*.
//! - Invariant L3: dropping the link ends its tasks and connections.
//! - Invariant L4: when sentinels name a master and that master does not answer, the error is
//!   `NoQuorum` and not `Unavailable`: callers keep waiting (decision 0030).
//!
//! Where the tasks run: [`holdline_net`]. Read next: `send` for the life of a request, `router`
//! for the choice of its connection, `connection` for what happens on it, `supervisor` for
//! reconnecting.

mod call;
mod connect;
mod connection;
mod connection_task;
mod dial;
mod facts;
mod handshake;
mod health;
mod maintenance;
mod master_source;
mod master_term;
mod pending;
mod pending_reply;
mod request;
mod resp;
mod resp2_subscriber;
mod router;
mod script;
mod seed_list;
mod send;
mod subscriptions;
mod supervisor;
mod value;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use holdline_net::runtime::{RuntimeHandle, TaskSpawner};
use parking_lot::Mutex;

pub(crate) use call::{Affinity, Call, RoutingPolicy};
pub(crate) use facts::ServerFacts;
pub(crate) use master_source::{MasterSource, SourceFuture};
pub(crate) use pending_reply::Outcome;
pub(crate) use script::Script;
pub(crate) use seed_list::{HostPort, SeedList};
pub(crate) use send::SentOn;
pub(crate) use subscriptions::{Form, MessageHandler, Subscription, SubscriptionEvent};
pub(crate) use value::Value;

use crate::environment::Task;
use crate::error::ENGINE;
use crate::options::RedisOptions;
use router::ConnectionRouter;
use send::Waiter;
use subscriptions::Subscriptions;

/// How long to wait for the error of a dial after its time limit: that error is more specific than
/// a timeout.
const CONNECT_SLACK: Duration = Duration::from_millis(500);

/// How long the report of a quarantine may take when the process ends.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_millis(500);

/// How a link finds its server; by default it is the one of the options.
#[derive(Default)]
struct ServerDiscovery {
    /// Finds the master, where sentinels name it.
    master_source: Option<Arc<dyn MasterSource>>,
    /// This link runs the task of `master_source`; other links only read its results.
    runs_master_source: bool,
    /// What is known of the one server of an engine, whose address may lead to another one later.
    /// `None` for one of several, and for those of a group.
    single: Option<Arc<SingleServer>>,
    /// Which servers may be dialled, where any node of a cluster will do.
    seed_list: Option<Arc<SeedList>>,
}

/// What the links of an engine know of its one server.
#[derive(Debug, Default)]
struct SingleServer {
    /// The server called itself a master. If it takes no writes after that, it is being switched
    /// over, and its name may lead to another.
    was_master: AtomicBool,
    /// The run of the server that was last connected.
    known_run: Mutex<Option<String>>,
}

/// What the tasks of a link share with it.
struct LinkParts {
    options: RedisOptions,
    clock: Arc<dyn Clock>,
    runtime: RuntimeHandle,
    router: Arc<ConnectionRouter>,
    subscriptions: Arc<Subscriptions>,
    ids: AtomicU64,
    discovery: ServerDiscovery,
    /// `HELLO 3` was refused, and RESP2 worked.
    resp2_only: AtomicBool,
    /// How often the server answered `NOSCRIPT`.
    unknown_scripts: AtomicU64,
    /// The id of the process that made the link.
    process: AtomicU32,
}

impl LinkParts {
    /// Closes the connections to all servers but the master, if that is known.
    fn close_others(&self, master: Option<&(String, u16)>) {
        if master.is_some() {
            self.router.close_all_except(master);
        }
    }

    /// Returns a number for a new connection.
    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn random(&self) -> u32 {
        match self.options.environment() {
            Some(environment) => environment.random(),
            None => rand::random(),
        }
    }

    fn close(&self) {
        self.router.close();
        self.subscriptions.close();
    }
}

/// One logical connection to one server: for every engine of this crate, also for a node of a
/// quorum. Clones share it; dropping the last one ends it.
#[derive(Clone)]
pub(crate) struct Link(Arc<LinkGuard>);

/// Ends the tasks and connections of a link when it is dropped.
struct LinkGuard(Arc<LinkParts>);

impl Drop for LinkGuard {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("options", &self.parts().options).finish_non_exhaustive()
    }
}

impl Link {
    /// Makes a link, which begins to dial at once. Its tasks run in the current runtime; outside
    /// of any, on a thread of their own.
    ///
    /// # Errors
    /// `Invalid` if options do not fit together, or name Sentinels (use `sentinel::link`).
    /// `Refused` if the process gets no thread.
    pub(crate) fn new(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Link, LockError> {
        if options.group().is_some() {
            let message = "names Sentinels, but this connection is to one server";
            return Err(LockError::invalid(ENGINE, "url", message));
        }
        Link::of_source(options, clock, None)
    }

    /// Makes a link for the server that the source names, or for that of the options.
    ///
    /// # Errors
    /// `Invalid` for options that do not fit together, `Refused` when the process gets no thread.
    pub(crate) fn of_source(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        source: Option<Arc<dyn MasterSource>>,
    ) -> Result<Link, LockError> {
        options.validate()?;
        let discovery = ServerDiscovery {
            master_source: source,
            runs_master_source: true,
            ..ServerDiscovery::default()
        };
        Link::start(options, clock, discovery)
    }

    /// Makes a link to the one server of an engine, which is waited for while it is switched over.
    ///
    /// # Errors
    /// As [`Link::of_source`].
    pub(crate) fn single(options: &RedisOptions, clock: Arc<dyn Clock>) -> Result<Link, LockError> {
        options.validate()?;
        let single = Some(Arc::default());
        Link::start(options, clock, ServerDiscovery { single, ..ServerDiscovery::default() })
    }

    /// Makes a link that connects to any node of a cluster, and to another when that one fails.
    pub(crate) fn any_of(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        seed_list: Arc<SeedList>,
    ) -> Result<Link, LockError> {
        options.validate()?;
        let seed_list = Some(seed_list);
        let discovery = ServerDiscovery { seed_list, ..ServerDiscovery::default() };
        Link::start(options, clock, discovery)
    }

    /// Makes another link for the same server, with a connection of its own.
    pub(crate) fn new_link_to_same_server(&self) -> Result<Link, LockError> {
        let LinkParts { options, clock, discovery, .. } = &**self.parts();
        let master_source = discovery.master_source.clone();
        let single = discovery.single.clone();
        let discovery = ServerDiscovery { master_source, single, ..ServerDiscovery::default() };
        Link::start(options, clock.clone(), discovery)
    }

    fn start(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
        discovery: ServerDiscovery,
    ) -> Result<Link, LockError> {
        if options.exposes_password() {
            let address = options.address();
            tracing::warn!(%address, "the password travels unencrypted: write `rediss://`");
        }
        let elsewhere = options.environment().map(|one| one as Arc<dyn TaskSpawner>);
        let runtime = RuntimeHandle::find(elsewhere).map_err(|error| {
            let message = format!("no thread for the connection: {error}");
            LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
        })?;
        let parts = Arc::new(LinkParts {
            options: options.clone(),
            clock,
            runtime,
            router: Arc::new(ConnectionRouter::new()),
            subscriptions: Arc::default(),
            ids: AtomicU64::new(1),
            discovery,
            resp2_only: AtomicBool::new(false),
            unknown_scripts: AtomicU64::new(0),
            process: AtomicU32::new(std::process::id()),
        });
        supervisor::start(&parts);
        Ok(Link(Arc::new(LinkGuard(parts))))
    }

    /// Waits until there is a connection, and returns what is known of the server.
    pub(crate) async fn ready(&self) -> Result<Arc<ServerFacts>, LockError> {
        let asked = self.parts().options.connect_timeout();
        self.ready_within(asked.saturating_add(CONNECT_SLACK)).await
    }

    /// Waits as [`Link::ready`] does, for at most `limit`.
    pub(crate) async fn ready_within(
        &self,
        limit: Duration,
    ) -> Result<Arc<ServerFacts>, LockError> {
        let limit = self.limit(limit);
        let mut waiter = Waiter::default();
        let connection = self.next_connection(RoutingPolicy::Any, limit, &mut waiter).await?;
        Ok(connection.facts().clone())
    }

    /// Returns what is known of the server whose connection is healthy; `None` while there is no
    /// such connection.
    pub(crate) fn healthy_facts(&self) -> Option<Arc<ServerFacts>> {
        self.parts().router.healthy()
    }

    /// Returns what the last connection has shown of the server; `None` until the first one.
    pub(crate) fn last_facts(&self) -> Option<Arc<ServerFacts>> {
        self.parts().router.facts()
    }

    /// Returns how long the last round trip took that was measured; `None` until there was one.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.parts().router.round_trip()
    }

    /// Returns how often the server did not know a script so far.
    pub(crate) fn unknown_scripts(&self) -> u64 {
        self.parts().unknown_scripts.load(Ordering::Relaxed)
    }

    /// Returns what finds the master, where sentinels name it.
    pub(crate) fn master_source(&self) -> Option<&Arc<dyn MasterSource>> {
        self.parts().discovery.master_source.as_ref()
    }

    /// Returns why the last attempt to connect failed.
    pub(crate) fn last_error(&self) -> Option<LockError> {
        self.parts().router.last_error()
    }

    /// Returns whether a request of this affinity is unanswered on any connection.
    pub(crate) fn has_unanswered(&self, affinity: &Affinity) -> bool {
        self.parts().router.has_unanswered(affinity)
    }

    /// Returns whether the healthy connection has an unanswered request of this affinity.
    pub(crate) fn is_unanswered_on_good(&self, affinity: &Affinity) -> bool {
        self.parts().router.is_unanswered_on_good(affinity)
    }

    /// Reports how much of the server's quarantine has passed, for the next client, in case this
    /// process ends.
    pub(crate) async fn report_quarantine(&self) {
        let (parts, Some(facts)) = (self.parts(), self.healthy_facts()) else { return };
        if let Some(args) = master_term::report(&parts.options, &facts, parts.clock.now()) {
            drop(self.send_to(facts.run_id.as_deref(), &args, FINAL_REPORT_TIMEOUT).await);
        }
    }

    /// Ends the current connections; new ones are made.
    pub(crate) fn reconnect(&self) {
        self.parts().router.close_all_except(None);
    }

    /// Subscribes to a channel until the subscription is dropped, across reconnects. The handler
    /// receives the messages; the subscription yields all other events.
    pub(crate) fn subscribe_with(&self, channel: Vec<u8>, handler: MessageHandler) -> Subscription {
        self.parts().subscriptions.subscribe(Form::Plain, channel, Some(handler))
    }

    /// Subscribes to a channel as [`Link::subscribe_with`] does; messages are among the events.
    pub(crate) fn subscribe(&self, channel: Vec<u8>) -> Subscription {
        self.parts().subscriptions.subscribe(Form::Plain, channel, None)
    }

    /// Subscribes to a sharded channel, at a node of a cluster.
    pub(crate) fn subscribe_sharded(&self, channel: Vec<u8>) -> Subscription {
        self.parts().subscriptions.subscribe(Form::Sharded, channel, None)
    }

    /// Runs a task where the connection's own tasks run.
    pub(crate) fn spawn(&self, task: Task<()>) {
        self.parts().runtime.spawn(task);
    }

    /// Draws a number, evenly over all of `u32`.
    pub(crate) fn random(&self) -> u32 {
        self.parts().random()
    }

    /// Makes this process look like a fork of the one that made the link.
    #[cfg(test)]
    fn pretend_fork(&self) {
        self.parts().process.store(0, Ordering::Relaxed);
    }

    fn parts(&self) -> &Arc<LinkParts> {
        &self.0.0
    }
}

#[cfg(test)]
mod tests;
