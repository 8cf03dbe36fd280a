//! The route of a call: to the master that serves its slot, and on to where that redirects.
//!
//! - Invariant R1: a call is repeated only if a node has rejected it before execution, or if it was
//!   never sent. Any other failure is returned with its certainty.
//! - Invariant R2: each call ends at its deadline, however often it is redirected.
//! - Invariant R3: a node that does not answer delays only the calls that are for it.
//! - Invariant R4: if a slot has no master while other nodes answer, the error is `NoQuorum` and
//!   not `Unavailable`: callers keep waiting (decision 0030).
//!
//! Read next: `attempt` for what a reply means; `refresh` for how the slots are kept up to date.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use holdline_core::{Backoff, Certainty, Clock, LockError};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::attempt::{Attempt, SlotRequest, redirected_in_a_circle};
use super::nodes::Nodes;
use super::refresh::MIN_INTERVAL;
use super::slots::SlotTable;
use crate::error::{ENGINE, unavailable};
use crate::link::{HostPort, Link, SeedList, Value};
use crate::options::{Address, RedisOptions};

/// Pauses before a call that was not carried out is repeated.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// With less time left than this, it is not repeated.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(5);
/// How many redirections a call follows without a pause.
const MAX_HOPS: u32 = 3;
/// How long beyond the time limit of an attempt to connect its own error is waited for.
const CONNECT_SLACK: Duration = Duration::from_millis(500);
/// Up to this many nodes of the URL are tried within the time for one connection.
const MAX_IN_TURN: u32 = 4;

/// The connections to a cluster. Dropping it ends them.
pub(crate) struct ClusterRouter {
    nodes: Arc<Nodes>,
    _end: DropGuard,
}

impl ClusterRouter {
    /// Makes a router, which starts to dial at once.
    pub(crate) fn new(
        options: &RedisOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<ClusterRouter, LockError> {
        options.validate()?;
        let Address::Cluster { seeds, .. } = options.address() else {
            let message = "is for a cluster here: write `redis-cluster://`";
            return Err(LockError::invalid(ENGINE, "url", message));
        };
        // A frozen node among several must leave time for the next.
        let turns = u32::try_from(seeds.len()).unwrap_or(MAX_IN_TURN).clamp(1, MAX_IN_TURN);
        let each = (options.connect_timeout() / turns).max(Duration::from_millis(10));
        let start: u32 = rand::random();
        let seed_list = Arc::new(SeedList::new(seeds.clone(), start as usize % seeds.len().max(1)));
        let control_options = options.clone().with_connect_timeout(each);
        let control = Link::any_of(&control_options, clock.clone(), seed_list.clone())?;
        let nodes = Arc::new(Nodes {
            options: options.clone(),
            clock,
            control,
            seed_list,
            links: Mutex::default(),
            table: Mutex::default(),
            version: watch::Sender::new(0),
            refresh_wanted: Notify::new(),
            answers: AtomicBool::new(false),
            refreshing: AtomicBool::new(false),
            end: CancellationToken::new(),
        });
        nodes.start_refreshing();
        let end = nodes.end.clone().drop_guard();
        Ok(ClusterRouter { nodes, _end: end })
    }

    /// Returns the control connection.
    pub(crate) fn control(&self) -> &Link {
        &self.nodes.control
    }

    /// Waits until a node has reported the table of slots.
    pub(crate) async fn ready(&self) -> Result<Arc<SlotTable>, LockError> {
        let nodes = &self.nodes;
        let limit = nodes.options.connect_timeout().saturating_add(CONNECT_SLACK);
        let end = nodes.clock.now().after(limit);
        loop {
            let left = nodes.clock.now().until(end);
            let error = match nodes.control.ready_within(left).await {
                Ok(_) => match nodes.refresh().await {
                    Ok(()) => return Ok(self.table()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            let transient = error.is_unavailable();
            if !transient || nodes.clock.now().until(end).is_zero() {
                return Err(error);
            }
            nodes.clock.sleep_until(nodes.clock.now().after(MIN_INTERVAL).min(end)).await;
        }
    }

    /// Returns the latest table of slots.
    pub(crate) fn table(&self) -> Arc<SlotTable> {
        self.nodes.table.lock().clone()
    }

    /// Returns the longest round trip of the handshakes with the nodes that answer.
    pub(crate) fn slowest_trip(&self) -> Duration {
        let links = self.nodes.links.lock();
        let healthy = links.values().filter_map(Link::healthy_facts);
        healthy.map(|facts| facts.round_trip).max().unwrap_or_default()
    }

    /// Returns the connection to one of the masters.
    pub(crate) async fn node(&self, host_port: &HostPort) -> Result<Link, LockError> {
        self.nodes.node(host_port).await
    }

    /// Returns the connections to all masters.
    pub(crate) async fn masters(&self) -> Result<Vec<Link>, LockError> {
        if self.table().shards().is_empty() {
            self.ready().await?;
        }
        let mut masters = Vec::new();
        for host_port in self.table().masters() {
            masters.push(self.node(host_port).await?);
        }
        Ok(masters)
    }

    /// Returns the connection to the master of a slot.
    ///
    /// # Errors
    /// `Unavailable`: the slot has none.
    pub(crate) async fn owner(&self, slot: u16) -> Result<Link, LockError> {
        self.owner_at(slot).await.map(|(_, node)| node)
    }

    /// The same, and its address.
    pub(super) async fn owner_at(&self, slot: u16) -> Result<(HostPort, Link), LockError> {
        match self.nodes.owner(slot).await? {
            Some(owner) => Ok(owner),
            None => {
                self.nodes.request_refresh();
                Err(self.nodes.unserved(slot))
            }
        }
    }

    /// Sends a request to the master of its slot, and follows redirections.
    ///
    /// # Cancel safety
    /// Dropping the future loses the reply only: the request may be carried out.
    pub(crate) async fn send(&self, request: SlotRequest<'_>) -> Result<Value, LockError> {
        let nodes = &self.nodes;
        let end = nodes.clock.now().after(request.deadline);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut hops = 0;
        let mut last_error: Option<LockError> = None;
        loop {
            let now = nodes.clock.now();
            match &last_error {
                // The request was not applied. Sent without time for its reply, it might be.
                Some(error) if now.after(SHORTEST_ATTEMPT) >= end => return Err(error.clone()),
                None if now >= end => return Err(no_reply(request.deadline)),
                _ => {}
            }
            let mut version = nodes.version.subscribe();
            let error = match nodes.owner(request.slot).await? {
                None => nodes.between_masters(nodes.unserved(request.slot)),
                Some((host_port, node)) => {
                    match nodes.try_full(&request, &host_port, &node, end).await? {
                        Attempt::Done(value) => return Ok(value),
                        Attempt::Moved if hops < MAX_HOPS => {
                            hops += 1;
                            continue;
                        }
                        Attempt::Moved => {
                            // The change by this very redirection is no reason to repeat at once.
                            version = nodes.version.subscribe();
                            nodes.between_masters(redirected_in_a_circle(request.slot))
                        }
                        Attempt::Retry(error) => error,
                    }
                }
            };
            last_error = Some(error);
            nodes.request_refresh();
            let pause = nodes.clock.now().after(backoff.next_pause(nodes.control.random()));
            tokio::select! {
                biased;
                _ = version.changed() => {}
                () = nodes.clock.sleep_until(pause.min(end)) => {}
            }
        }
    }
}

fn no_reply(limit: Duration) -> LockError {
    unavailable(format!("no reply within {limit:?}"), Certainty::NotApplied)
}

impl std::fmt::Debug for ClusterRouter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterRouter")
            .field("options", &self.nodes.options)
            .finish_non_exhaustive()
    }
}
