//! The local queues of a process: attempts for a name of an engine without a queue, in the order of
//! their arrival.
//!
//! Invariant L1: dropping a [`Turn`] always passes it on.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use holdline_core::LockName;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The local queues of this process, by lock name. A name without attempts and holders has no
/// entry.
#[derive(Default)]
pub(crate) struct LocalQueues(Mutex<HashMap<LockName, LocalQueue>>);

#[derive(Default)]
struct LocalQueue {
    joined: u64,
    entries: VecDeque<LocalEntry>,
}

struct LocalEntry {
    number: u64,
    holds: bool,
    became_first: Arc<Notify>,
}

/// A position in a local queue, until it is dropped. It belongs to the attempt, and later to its
/// guard.
pub(crate) struct Turn {
    queues: Arc<LocalQueues>,
    name: LockName,
    number: u64,
    became_first: Arc<Notify>,
}

impl LocalQueues {
    /// Appends an attempt to a queue.
    pub(crate) fn join(self: &Arc<Self>, name: &LockName) -> Turn {
        let mut queues = self.0.lock();
        let queue = queues.entry(name.clone()).or_default();
        queue.joined += 1;
        let number = queue.joined;
        let became_first = Arc::new(Notify::new());
        queue.entries.push_back(LocalEntry {
            number,
            holds: false,
            became_first: became_first.clone(),
        });
        Turn { queues: self.clone(), name: name.clone(), number, became_first }
    }
}

impl Turn {
    pub(crate) fn is_first(&self) -> bool {
        self.with_queue(|queue| queue.entries.front().is_some_and(|one| one.number == self.number))
    }

    /// Returns whether an earlier attempt still waits for the name.
    pub(crate) fn has_waiters_before(&self) -> bool {
        self.with_queue(|queue| {
            let mut before = queue.entries.iter().take_while(|one| one.number != self.number);
            before.any(|one| !one.holds)
        })
    }

    /// Records that this attempt holds the name, so that the next one may send a request.
    pub(crate) fn mark_holding(&self) {
        self.with_queue(|queue| {
            let own = queue.entries.iter_mut().find(|one| one.number == self.number);
            own.into_iter().for_each(|one| one.holds = true);
        });
    }

    fn with_queue<T: Default>(&self, read: impl FnOnce(&mut LocalQueue) -> T) -> T {
        self.queues.0.lock().get_mut(&self.name).map(read).unwrap_or_default()
    }

    /// Resolves when this turn becomes the first.
    ///
    /// # Cancel safety
    /// Dropping the future keeps the position.
    pub(crate) async fn wait_for_first(&self) {
        self.became_first.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut queues = self.queues.0.lock();
        let Some(queue) = queues.get_mut(&self.name) else { return };
        let was_first = queue.entries.front().is_some_and(|one| one.number == self.number);
        queue.entries.retain(|one| one.number != self.number);
        match queue.entries.front() {
            Some(next) if was_first => next.became_first.notify_one(),
            Some(_) => {}
            None => drop(queues.remove(&self.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> LockName {
        LockName::new(text).expect("a good name")
    }

    #[tokio::test]
    async fn the_turn_is_passed_on_in_order_by_drop() {
        let queues = Arc::new(LocalQueues::default());
        let first = queues.join(&name("a"));
        let second = queues.join(&name("a"));
        let third = queues.join(&name("a"));
        let other = queues.join(&name("b"));
        assert!(first.is_first() && other.is_first());
        assert!(!second.is_first() && !third.is_first());
        drop(second);
        assert!(!third.is_first(), "one that gave up moves nobody past the first");
        drop(first);
        third.wait_for_first().await;
        assert!(third.is_first());
        drop((third, other));
        assert!(queues.0.lock().is_empty(), "no queue is left");
    }

    #[test]
    fn the_first_attempt_behind_a_holder_may_send_a_request() {
        let queues = Arc::new(LocalQueues::default());
        let first = queues.join(&name("a"));
        let second = queues.join(&name("a"));
        assert!(!first.has_waiters_before() && second.has_waiters_before());
        first.mark_holding();
        assert!(!second.has_waiters_before() && !second.is_first());
        assert!(queues.join(&name("a")).has_waiters_before());
    }
}
