//! How a lease id is undone on the nodes, now or in the background.
//!
//! - Invariant U1: an undo is written behind every request under the id that the node may still
//!   execute, even on a connection that does not answer: this process may be gone when the node
//!   continues. It is sent as text, since no client would be there to handle `NOSCRIPT`. The text
//!   is short: a server that continues after the client is gone runs only what it reads at once,
//!   16 KiB, because it fails to write the replies. So an undo is not repeated behind itself.
//! - Invariant U2: a caller gets its answer once a majority has decided. Undos that other nodes
//!   have yet to receive are counted in
//!   [`BackgroundUndos`](super::in_progress::BackgroundUndos), and [`flush`] waits for the nodes
//!   that answer.
//! - Invariant U3: an undo leaves a tombstone unless no request under the id can arrive after it.
//!   That is so if the node has answered, or if the undo follows the request on the same
//!   connection ([`Progress`]).
//! - Invariant U4: an undo that a node rejects delays no other undo.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::{Backoff, Certainty, ErrorKind, LeaseId, LockError, LockName, ReleaseReply};
use holdline_net::notify::wait_for;

use super::in_progress::Undo;
use super::replies;
use super::requests;
use super::set::NodeSet;
use crate::error::unavailable;
use crate::in_flight::InFlight;
use crate::link::{Call, SentOn};

/// The backoff between attempts to send an undo to a node.
const RETRY_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long a lost attempt waits for the answers to its undo, and how long [`flush`] waits.
const UNDO_TIMEOUT: Duration = Duration::from_millis(500);

/// Counts one task that waits for slower nodes, until it is dropped.
struct BackgroundUndo(Arc<NodeSet>);

impl BackgroundUndo {
    fn new(set: &Arc<NodeSet>) -> BackgroundUndo {
        set.background_undos.tasks.fetch_add(1, Ordering::AcqRel);
        BackgroundUndo(set.clone())
    }
}

impl Drop for BackgroundUndo {
    fn drop(&mut self) {
        self.0.background_undos.tasks.fetch_sub(1, Ordering::AcqRel);
        self.0.background_undos.notify();
    }
}

/// Waits for a short time until each node that answers has received all its undos.
pub(super) async fn flush(set: &Arc<NodeSet>) {
    let end = set.clock.now().after(UNDO_TIMEOUT);
    tokio::select! {
        biased;
        () = set.report_waits() => {}
        () = set.clock.sleep_until(end) => return,
    }
    let is_done = |node: usize| set.members[node].undo_queue.is_empty() || !set.answers(node);
    let is_over = || {
        let tasks = set.background_undos.tasks.load(Ordering::Acquire);
        tasks == 0 && set.renewals_in_flight.is_empty() && (0..set.members.len()).all(is_done)
    };
    let over = wait_for(&set.background_undos.changed, || {
        if is_over() {
            return Some(());
        }
        set.background_undos.retry_now.notify_waiters();
        None
    });
    tokio::select! {
        biased;
        () = over => {}
        () = set.clock.sleep_until(end) => {}
    }
}

impl Undo {
    /// Makes the undo of a lease id that was requested for this long.
    pub(super) fn new(
        set: &NodeSet,
        name: &LockName,
        lease_id: LeaseId,
        lease: Duration,
    ) -> Arc<Undo> {
        let deadline = set.node_deadline(lease);
        Arc::new(Undo { name: name.clone(), lease_id, lease, deadline })
    }

    /// Undoes a lost attempt on one node.
    pub(super) async fn send(
        &self,
        set: &NodeSet,
        node: usize,
        progress: Progress,
    ) -> Result<ReleaseReply, LockError> {
        let tombstone = !matches!(progress, Progress::Answered);
        if !set.answers(node) {
            return self.send_to_silent(set, node, tombstone, true).await;
        }
        let server = set.members[node].link();
        if set.unfenced.is_none()
            && let Progress::Sent(sent_on) = &progress
            && let Some(reply) = server.call_behind(sent_on, || self.call(set, false)).await
        {
            return replies::released(&reply?);
        }
        self.send_now(set, node, tombstone).await
    }

    /// Releases a lease on one node. `for_good`: a request under the id may still arrive there, and
    /// the id is not requested again.
    pub(super) async fn release(
        &self,
        set: &NodeSet,
        node: usize,
        for_good: bool,
    ) -> Result<ReleaseReply, LockError> {
        if !set.answers(node) {
            return self.send_to_silent(set, node, for_good, for_good).await;
        }
        let server = set.members[node].link();
        // Behind a late vote, or the request of a dropped attempt. Other nodes report how long it
        // was held.
        if set.unfenced.is_some() || server.has_unanswered(self.lease_id.as_bytes()) {
            return self.send_now(set, node, for_good).await;
        }
        let remembered = for_good.then(|| self.remember_for());
        let call = || {
            requests::release(&set.context, &self.name, self.lease_id, remembered)
                .within(self.deadline)
        };
        let reply =
            if for_good { server.call_in_full(call).await? } else { server.call(call).await? };
        replies::released(&reply)
    }

    /// Sends the undo to a node whose connection does not answer: behind an unanswered request of
    /// the id, or to be run when the node continues. The latter only if the id is `given_up`: an
    /// undo that comes late would end a later grant under it.
    async fn send_to_silent(
        &self,
        set: &NodeSet,
        node: usize,
        tombstone: bool,
        given_up: bool,
    ) -> Result<ReleaseReply, LockError> {
        let server = set.members[node].link();
        if server.has_unanswered(self.lease_id.as_bytes()) {
            return self.send_now(set, node, tombstone).await;
        }
        if given_up && set.unfenced.is_none() {
            server.leave_behind(|| self.call(set, tombstone));
        }
        Err(unavailable("does not answer", Certainty::NotApplied))
    }

    /// Sends the undo behind the requests of the id that are not answered yet.
    async fn send_now(
        &self,
        set: &NodeSet,
        node: usize,
        tombstone: bool,
    ) -> Result<ReleaseReply, LockError> {
        let server = set.members[node].link();
        if let Some(unfenced) = &set.unfenced {
            return unfenced.commands.free(server, self, tombstone).await;
        }
        replies::released(&server.call_in_full(|| self.call(set, tombstone)).await?)
    }

    fn call(&self, set: &NodeSet, tombstone: bool) -> Call {
        let remembered = tombstone.then(|| self.remember_for());
        requests::undo(&set.context, &self.name, self.lease_id, remembered).within(self.deadline)
    }
}

/// How far the requests of a lost attempt have come on one node.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// The node has answered the request, and no other is on its way.
    Answered,
    /// The request was put on this connection, and no other is on its way.
    Sent(Arc<SentOn>),
    /// Requests may arrive on any connection.
    MayArrive,
}

/// Sends the undo to these nodes in the background, as soon as they answer.
pub(super) fn queue_undo(
    set: &Arc<NodeSet>,
    undo: &Arc<Undo>,
    nodes: impl IntoIterator<Item = usize>,
) {
    let end = set.clock.now().after(undo.remember_for());
    for node in nodes {
        if set.members[node].undo_queue.add(end, undo.clone()) {
            let weak = Arc::downgrade(set);
            set.members[node].link().spawn(Box::pin(retry_undos(weak, node)));
        }
    }
}

/// Sends one node its queued undos, until none is left.
async fn retry_undos(set: Weak<NodeSet>, node: usize) {
    let mut pauses = Backoff::new(RETRY_BACKOFF.0, RETRY_BACKOFF.1);
    // How many undos failed since the last pause or success.
    let mut failures = 0;
    loop {
        let Some(here) = set.upgrade() else { return };
        let undo_queue = &here.members[node].undo_queue;
        let Some(undo) = undo_queue.first(here.clock.now()) else { return };
        if here.answers(node) {
            if retry_undo(&here, node, &undo).await {
                undo_queue.remove(&undo);
                here.background_undos.notify();
                pauses.reset();
                failures = 0;
                continue;
            }
            failures += 1;
            if failures < undo_queue.postpone(&undo) {
                continue;
            }
        }
        failures = 0;
        let pause = pauses.next_pause(here.members[node].link().random());
        let sleep = here.clock.sleep_until(here.clock.now().after(pause));
        let retry_now = here.background_undos.retry_now.clone();
        drop((here, undo));
        tokio::select! {
            biased;
            () = sleep => {}
            () = retry_now.notified() => {}
        }
    }
}

/// Sends a queued undo again. Returns whether the node has carried it out, or never will.
async fn retry_undo(set: &NodeSet, node: usize, undo: &Undo) -> bool {
    // It was written behind the request there, and both are still to be answered.
    if set.members[node].link().is_unanswered_on_good(undo.lease_id.as_bytes()) {
        return false;
    }
    match undo.send(set, node, Progress::MayArrive).await {
        Ok(_) => true,
        // The data of another program stand there, and nothing of ours.
        Err(error) => matches!(error.kind(), ErrorKind::Foreign { .. }),
    }
}

/// Undoes an attempt on these nodes. When this ends, the nodes that answer soon have undone it; the
/// others receive the undo in the background.
pub(super) async fn undo_attempt(
    set: &Arc<NodeSet>,
    undo: Arc<Undo>,
    nodes: Vec<(usize, Progress)>,
) {
    let mut in_flight = InFlight::with_capacity(nodes.len());
    for (node, progress) in nodes {
        let set = set.clone();
        let undo = undo.clone();
        in_flight.push(node, async move { undo.send(&set, node, progress).await });
    }
    let end = set.clock.now().after(UNDO_TIMEOUT);
    // The first poll sends all requests.
    while let Some((node, answer)) = in_flight.next_before(end, &*set.clock).await {
        if answer.is_err() {
            queue_undo(set, &undo, [node]);
        }
    }
    finish_in_background(set, &undo, in_flight);
}

/// Waits in the background for the nodes that have not answered yet.
pub(super) fn finish_in_background(
    set: &Arc<NodeSet>,
    undo: &Arc<Undo>,
    mut in_flight: InFlight<'static, Result<ReleaseReply, LockError>>,
) {
    if in_flight.is_empty() {
        return;
    }
    let counted = BackgroundUndo::new(set);
    let undo = undo.clone();
    set.members[0].link().spawn(Box::pin(async move {
        while let Some((node, answer)) = in_flight.next().await {
            if answer.is_err() {
                queue_undo(&counted.0, &undo, [node]);
            }
        }
    }));
}
