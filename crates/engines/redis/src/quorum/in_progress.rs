//! What this process has yet to finish for its leases: undos that nodes have not received, renewals
//! whose answers are missing, and the tokens of leases that have not ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::{FencingToken, LeaseId, LockName, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The undo of a lease id.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    pub(super) name: LockName,
    pub(super) lease_id: LeaseId,
    /// The requested lease: no grant under the id outlasts it.
    pub(super) lease: Duration,
    pub(super) deadline: Duration,
}

impl Undo {
    /// Returns how long a request under the id may still have an effect. It may begin a lease when
    /// it arrives, and arrives no later than its connection may be silent.
    pub(super) fn remember_for(&self) -> Duration {
        self.lease.max(MIN_TOMBSTONE)
    }
}

/// The undos that one node has yet to receive. Bounded: what is dropped ends with its lease.
#[derive(Debug, Default)]
pub(super) struct UndoQueue(Mutex<VecDeque<(Moment, Arc<Undo>)>>);

/// The largest number of queued undos of a node.
const MAX_QUEUED_UNDOS: usize = 4_096;

impl UndoQueue {
    /// Adds an undo; returns whether it is the first.
    pub(super) fn add(&self, end: Moment, undo: Arc<Undo>) -> bool {
        let mut undo_queue = self.0.lock();
        if undo_queue.len() == MAX_QUEUED_UNDOS {
            undo_queue.pop_front();
        }
        undo_queue.push_back((end, undo));
        undo_queue.len() == 1
    }

    /// Returns the first undo that still matters.
    pub(super) fn first(&self, now: Moment) -> Option<Arc<Undo>> {
        let mut undo_queue = self.0.lock();
        while undo_queue.front().is_some_and(|(end, _)| *end <= now) {
            undo_queue.pop_front();
        }
        undo_queue.front().map(|(_, undo)| undo.clone())
    }

    /// Removes the first undo, if it is this one.
    pub(super) fn remove(&self, undo: &Undo) {
        let mut undo_queue = self.0.lock();
        if undo_queue.front().is_some_and(|(_, first)| first.lease_id == undo.lease_id) {
            undo_queue.pop_front();
        }
    }

    /// Moves the first undo behind the others, if it is this one. Returns how many there are.
    pub(super) fn postpone(&self, undo: &Undo) -> usize {
        let mut undo_queue = self.0.lock();
        if undo_queue.front().is_some_and(|(_, first)| first.lease_id == undo.lease_id) {
            undo_queue.rotate_left(1);
        }
        undo_queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// The undos that are sent in the background.
#[derive(Debug, Default)]
pub(super) struct BackgroundUndos {
    /// The number of tasks that wait for nodes slower than a majority.
    pub(super) tasks: AtomicUsize,
    /// An undo was delivered or queued.
    pub(super) changed: Notify,
    /// Ends the pauses of the tasks that retry.
    pub(super) retry_now: Arc<Notify>,
}

impl BackgroundUndos {
    /// Wakes those that wait for the end of undos.
    pub(super) fn notify(&self) {
        self.changed.notify_waiters();
    }
}

/// How many renewals and healings of each lease may still have messages in flight.
#[derive(Debug, Default)]
pub(super) struct RenewalsInFlight(pub(super) Mutex<BTreeMap<LeaseId, usize>>);

impl RenewalsInFlight {
    /// Returns whether a message that heals this lease may still arrive.
    pub(super) fn contains(&self, lease_id: LeaseId) -> bool {
        self.0.lock().contains_key(&lease_id)
    }

    /// Returns whether no message is in flight for any lease.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

/// The tokens of the leases that were granted to this process and, as far as it knows, have not
/// ended. They decide where the nodes that kept a lease have different tokens on record.
#[derive(Debug, Default)]
pub(super) struct Tokens(Mutex<BTreeMap<LeaseId, FencingToken>>);

impl Tokens {
    /// Records the token of a grant.
    pub(super) fn granted(&self, lease_id: LeaseId, token: FencingToken) {
        self.0.lock().insert(lease_id, token);
    }

    /// Forgets the token of a lease that has ended.
    pub(super) fn ended(&self, lease_id: LeaseId) {
        self.0.lock().remove(&lease_id);
    }

    /// Returns the token of a lease.
    pub(super) fn of(&self, lease_id: LeaseId) -> Option<FencingToken> {
        self.0.lock().get(&lease_id).copied()
    }
}
