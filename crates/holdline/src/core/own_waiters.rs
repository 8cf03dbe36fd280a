//! The queued attempts of this client, by name: a release wakes the next one itself.
//!
//! Only where waiters ask for their grant. If the next holder is an attempt of the client that
//! releases, its request follows the release at once, and the hand-off takes one round trip.
//! Otherwise it would wait for the store's message.
//!
//! Invariant O1: the wake-up is a hint. The attempt asks the store, which decides. If the store
//! does not answer, the attempt waits on as if it had not asked.
//! Invariant O2: only the release of a grant wakes, and only an attempt that had no attempt of
//! another client before it when its position was last known. So clients that take turns send
//! hardly any request in vain.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use holdline_core::{LockError, LockName, ReleaseReply};
use parking_lot::Mutex;

use super::queue_cell::QueueCell;

/// The queued attempts for exclusive locks. A name without any has no entry.
#[derive(Default)]
pub(crate) struct OwnWaiters(Mutex<HashMap<LockName, VecDeque<OwnWaiter>>>);

struct OwnWaiter {
    cell: Arc<QueueCell>,
    /// No attempt of another client is before it.
    only_own_before: bool,
}

/// The place of an attempt, until it is dropped.
pub(crate) struct OwnPlace {
    waiters: Arc<OwnWaiters>,
    name: LockName,
    cell: Arc<QueueCell>,
    only_own_before: bool,
}

impl OwnWaiters {
    /// Adds an attempt that has just been queued.
    pub(crate) fn join(self: &Arc<Self>, name: &LockName, cell: &Arc<QueueCell>) -> OwnPlace {
        let waiter = OwnWaiter { cell: cell.clone(), only_own_before: false };
        self.0.lock().entry(name.clone()).or_default().push_back(waiter);
        let waiters = self.clone();
        let name = name.clone();
        let cell = cell.clone();
        OwnPlace { waiters, name, cell, only_own_before: false }
    }

    /// Returns the attempt that gets this name next, if it is one of this client.
    fn next(&self, name: &LockName) -> Option<Arc<QueueCell>> {
        let waiters = self.0.lock();
        let first = waiters.get(name)?.front()?;
        first.only_own_before.then(|| first.cell.clone())
    }

    /// Waits for the answer to a release that frees a name, and wakes the next attempt of this
    /// client: as soon as the release is sent if the engine executes requests `in_order`, or else
    /// when it has succeeded.
    pub(crate) async fn await_release(
        &self,
        in_order: bool,
        answer: impl Future<Output = Option<Result<ReleaseReply, LockError>>>,
        name: &LockName,
    ) -> Option<Result<ReleaseReply, LockError>> {
        let mut answer = pin!(answer);
        // The store's message may wake it before the reply: then nobody else is woken by the reply.
        let next = self.next(name);
        let wake_next = || next.iter().for_each(|next| next.look());
        // The first poll sends it.
        let first = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
        if in_order && first.is_pending() {
            wake_next();
        }
        let (early, answer) = match first {
            Poll::Pending => (in_order, answer.await),
            Poll::Ready(answer) => (false, answer),
        };
        if !early && matches!(answer, Some(Ok(ReleaseReply::Released { .. }))) {
            wake_next();
        }
        answer
    }
}

impl OwnPlace {
    /// Records how many attempts of all clients are before this one, if the store has said so.
    pub(crate) fn record_position(&mut self, position: Option<usize>) {
        let Some(position) = position.filter(|_| !self.only_own_before) else { return };
        let mut waiters = self.waiters.0.lock();
        let Some(queue) = waiters.get_mut(&self.name) else { return };
        // The usual caller is the last one, and most others have too many before them.
        if position >= queue.len() {
            return;
        }
        let own = queue.iter().rposition(|waiter| Arc::ptr_eq(&waiter.cell, &self.cell));
        if let Some(own) = own.filter(|own| position <= *own) {
            queue[own].only_own_before = true;
            self.only_own_before = true;
        }
    }
}

impl Drop for OwnPlace {
    fn drop(&mut self) {
        let mut waiters = self.waiters.0.lock();
        let Some(queue) = waiters.get_mut(&self.name) else { return };
        // The usual one is the first.
        let own = queue.iter().position(|waiter| Arc::ptr_eq(&waiter.cell, &self.cell));
        own.and_then(|own| queue.remove(own));
        if queue.is_empty() {
            waiters.remove(&self.name);
        }
    }
}
