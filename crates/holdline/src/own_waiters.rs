//! The queued attempts of this client, by name: a release wakes the next one itself.
//!
//! If the next holder is an attempt of the client that releases, its claim follows the release at
//! once, over the same connection, and the hand-off takes one round trip. Otherwise it would wait
//! for the store's message.
//!
//! Invariant O1: the wake-up is a hint. The attempt asks the store, which decides.
//! Invariant O2: an attempt is woken only if its last position shows that no attempt of another
//! client was before it. So clients that take turns send no request in vain.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use holdline_core::{LockName, Mode};
use parking_lot::Mutex;

use crate::queue::QueueCell;

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
        let (waiters, name, cell) = (self.clone(), name.clone(), cell.clone());
        OwnPlace { waiters, name, cell, only_own_before: false }
    }

    /// Sends a release by its first poll, wakes the attempt whose claim is to follow, and returns
    /// the answer.
    pub(crate) async fn wake_behind<T>(
        &self,
        release: impl Future<Output = T>,
        (name, mode): (&LockName, Mode),
    ) -> T {
        let mut release = pin!(release);
        let first = poll_fn(|context| Poll::Ready(release.as_mut().poll(context))).await;
        if mode == Mode::Exclusive {
            self.wake_next(name);
        }
        match first {
            Poll::Ready(answer) => answer,
            Poll::Pending => release.await,
        }
    }

    /// Wakes the attempt that gets this name next, if it is one of this client.
    fn wake_next(&self, name: &LockName) {
        let waiters = self.0.lock();
        let first = waiters.get(name).and_then(VecDeque::front);
        if let Some(first) = first.filter(|first| first.only_own_before) {
            first.cell.look();
        }
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
