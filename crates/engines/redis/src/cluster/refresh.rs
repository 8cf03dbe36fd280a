//! Keeps the table of slots up to date.
//!
//! A task queries some nodes from time to time, and soon after any sign that the table is stale.
//! The newest table from a node that reports the state `ok` wins.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline_core::{Certainty, LockError, Moment};

use super::nodes::Nodes;
use super::slots::{SLOTS, SlotTable};
use crate::args::Args;
use crate::error::unavailable;
use crate::in_flight::InFlight;
use crate::link::{HostPort, Link};

/// How often the table is queried without another reason.
const INTERVAL: Duration = Duration::from_secs(10);
/// How often while the cluster is not `ok`, or a slot has no master.
const SHORT_INTERVAL: Duration = Duration::from_millis(500);
/// The shortest time between two queries.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// How long to wait for the other nodes once one has answered.
const GRACE: Duration = Duration::from_millis(200);
/// How many nodes are queried at once.
const MAX_QUERIED: usize = 5;

impl Nodes {
    /// Makes the task refresh the table soon.
    pub(super) fn request_refresh(self: &Arc<Nodes>) {
        self.start_refreshing();
        self.refresh_wanted.notify_one();
    }

    /// Starts the task that refreshes the table, unless it runs.
    pub(super) fn start_refreshing(self: &Arc<Nodes>) {
        if self.refreshing.swap(true, Ordering::SeqCst) || self.end.is_cancelled() {
            return;
        }
        let nodes = self.clone();
        let end_of_task = EndOfTask(nodes.clone());
        self.control.spawn(Box::pin(async move {
            let end = nodes.end.clone();
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = nodes.keep_refreshing() => {}
            }
            drop(end_of_task);
        }));
    }

    /// Refreshes the table whenever there is a reason. Never ends.
    async fn keep_refreshing(&self) {
        loop {
            let complete = {
                let table = self.table.lock();
                table.is_ok && table.covered() == SLOTS
            };
            let end = self.clock.now().after(if complete { INTERVAL } else { SHORT_INTERVAL });
            tokio::select! {
                biased;
                () = self.refresh_wanted.notified() => {}
                () = self.clock.sleep_until(end) => {}
            }
            if let Err(error) = self.refresh().await {
                tracing::debug!(%error, "no node reports the table of slots");
            }
            self.clock.sleep_until(self.clock.now().after(MIN_INTERVAL)).await;
        }
    }

    /// Queries some nodes for the table, and takes the newest one.
    pub(super) async fn refresh(&self) -> Result<(), LockError> {
        let (tables, failure) = self.query_some().await;
        let control_is_ok = tables.iter().any(|(of, table)| *of == 0 && table.is_ok);
        let best = tables.into_iter().max_by_key(|(_, table)| (table.is_ok, table.epoch));
        self.answers.store(best.is_some(), Ordering::Relaxed);
        let Some((_, best)) = best else {
            let message = "no node reports the table of slots";
            return Err(failure.unwrap_or_else(|| unavailable(message, Certainty::NotApplied)));
        };
        if best.is_ok && !control_is_ok {
            // The node of the control connection may be partitioned from the others.
            self.control.reconnect();
        } else if !best.is_ok {
            // All known nodes may be: query others the next time.
            self.connect_some(&best).await;
        }
        let known = self.table.lock().clone();
        if !best.is_ok && best.epoch < known.epoch || *known == best {
            return Ok(());
        }
        tracing::debug!(masters = best.shards().len(), epoch = best.epoch, "new table of slots");
        self.seed_list.set_masters(best.masters());
        self.links.lock().retain(|host_port, _| best.masters().any(|master| master == host_port));
        self.update_table(|_| best);
        Ok(())
    }

    pub(super) fn update_table(&self, make: impl FnOnce(&SlotTable) -> SlotTable) {
        let mut table = self.table.lock();
        let new = make(&table);
        *table = Arc::new(new);
        drop(table);
        self.version.send_modify(|version| *version += 1);
    }

    /// Starts to dial some of the masters, unless there is a connection.
    async fn connect_some(&self, table: &SlotTable) {
        let masters: Vec<&HostPort> = table.masters().collect();
        let start = self.control.random() as usize % masters.len().max(1);
        let count = masters.len().min(MAX_QUERIED);
        for host_port in masters.iter().cycle().skip(start).take(count) {
            if let Err(error) = self.node(host_port).await {
                tracing::debug!(%error, host = host_port.0, port = host_port.1, "cannot dial");
            }
        }
    }

    /// Queries the control connection, which has index 0, and some nodes with healthy connections.
    async fn query_some(&self) -> (Vec<(usize, SlotTable)>, Option<LockError>) {
        let healthy: Vec<(HostPort, Link)> = {
            let links = self.links.lock();
            let healthy = links.iter().filter(|(_, node)| node.healthy_facts().is_some());
            healthy.map(|(host_port, node)| (host_port.clone(), node.clone())).collect()
        };
        let start = self.control.random() as usize % healthy.len().max(1);
        let some = healthy.iter().cycle().skip(start).take(healthy.len().min(MAX_QUERIED - 1));
        let mut in_flight = InFlight::with_capacity(MAX_QUERIED);
        in_flight.push(0, self.query(&self.control, None));
        for (at, (host_port, node)) in some.enumerate() {
            in_flight.push(at + 1, self.query(node, Some(host_port.clone())));
        }
        let mut tables = Vec::new();
        let mut failure = None;
        let mut end = Moment::NEVER;
        loop {
            match in_flight.next_before(end, &*self.clock).await {
                None => return (tables, failure),
                Some((of, Ok(table))) => {
                    tables.push((of, table));
                    end = end.min(self.clock.now().after(GRACE));
                }
                Some((_, Err(error))) => failure = failure.or(Some(error)),
            }
        }
    }

    async fn query(
        &self,
        node: &Link,
        host_port: Option<HostPort>,
    ) -> Result<SlotTable, LockError> {
        let limit = self.options.command_timeout();
        let command = |args: [&'static str; 2]| node.command(Args::from(args), None, limit);
        let (slots, info) =
            tokio::join!(command(["CLUSTER", "SLOTS"]), command(["CLUSTER", "INFO"]));
        let slots = slots?;
        let source = host_port.or_else(|| node.last_facts()?.host_port.clone()).unwrap_or_default();
        let table = SlotTable::parse(&slots, info.as_ref().ok(), &source);
        table.ok_or_else(|| unavailable("invalid reply to CLUSTER SLOTS", Certainty::NotApplied))
    }
}

/// Notes the end of the task, also when its runtime drops it. The next request for a refresh then
/// starts it in the current runtime of the control connection.
struct EndOfTask(Arc<Nodes>);

impl Drop for EndOfTask {
    fn drop(&mut self) {
        self.0.refreshing.store(false, Ordering::SeqCst);
    }
}
