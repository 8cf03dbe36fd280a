//! The connections to the nodes of a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::slots::SlotTable;
use crate::error::{masterless, unavailable};
use crate::link::{HostPort, Link, SeedList};
use crate::options::RedisOptions;

/// The connections to the nodes of a cluster, and which of them serves which slot.
pub(super) struct Nodes {
    pub(super) options: RedisOptions,
    pub(super) clock: Arc<dyn Clock>,
    /// The control connection: to any node.
    pub(super) control: Link,
    pub(super) seed_list: Arc<SeedList>,
    pub(super) links: Mutex<BTreeMap<HostPort, Link>>,
    pub(super) table: Mutex<Arc<SlotTable>>,
    /// Grows with each table.
    pub(super) version: watch::Sender<u64>,
    /// Wakes the task that refreshes the table.
    pub(super) refresh_wanted: Notify,
    /// A node answered the last refresh.
    pub(super) answers: AtomicBool,
    /// The task that refreshes the table runs.
    pub(super) refreshing: AtomicBool,
    pub(super) end: CancellationToken,
}

impl Nodes {
    /// Returns the master of a slot, and the connection to it.
    pub(super) async fn owner(&self, slot: u16) -> Result<Option<(HostPort, Link)>, LockError> {
        let owner = self.table.lock().owner(slot).cloned();
        let Some(host_port) = owner else { return Ok(None) };
        let node = self.node(&host_port).await?;
        Ok(Some((host_port, node)))
    }

    /// Returns the connection to a node.
    pub(super) async fn node(&self, host_port: &HostPort) -> Result<Link, LockError> {
        if let Some(node) = self.links.lock().get(host_port) {
            return Ok(node.clone());
        }
        // Its tasks must run where those of the control connection do, not where the first caller
        // is.
        let options = self.options.at(&host_port.0, host_port.1);
        let clock = self.clock.clone();
        let (made, node) = oneshot::channel();
        self.control.spawn(Box::pin(async move { drop(made.send(Link::new(&options, clock))) }));
        let node = match node.await {
            Ok(node) => node?,
            Err(_) => Link::new(&self.options.at(&host_port.0, host_port.1), self.clock.clone())?,
        };
        Ok(self.links.lock().entry(host_port.clone()).or_insert(node).clone())
    }

    /// Turns `Unavailable` into `NoQuorum` while other nodes answer: then the cluster promotes
    /// another master, or completes a migration, by itself. Callers wait through that, as through
    /// an election.
    pub(super) fn between_masters(&self, error: LockError) -> LockError {
        match error.kind() {
            ErrorKind::Unavailable { message } if self.answers.load(Ordering::Relaxed) => {
                masterless(message, error.certainty())
            }
            _ => error,
        }
    }

    /// The error for a slot without a master.
    pub(super) fn unserved(&self, slot: u16) -> LockError {
        let known = !self.table.lock().shards().is_empty();
        match self.control.last_error().filter(|_| !known) {
            Some(error) => error,
            None => unavailable(
                format!("no node serves slot {slot}, to which the name's keys belong"),
                Certainty::NotApplied,
            ),
        }
    }
}
