//! Waits for a name of an engine without a queue: the attempts of this process queue locally, and
//! the first of them polls.
//!
//! The first attempt of the local queue sends requests and receives the engine's hints. The others
//! wait in the order of their arrival, and the next one's turn comes when the lock of the first is
//! released. If all sent requests at once to an engine that counts votes, no attempt might get a
//! majority.
//! Invariant L1: dropping a [`Turn`] always passes it on.
//! Invariant L2: attempts that are not first still send requests at the polling pace. A guard that
//! is leaked or outlives its lease delays the others, but blocks none of them.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use holdline_core::{Certainty, ErrorKind, LockName, Mode, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Attempt, Next, POLL_PAUSE, Wait};
use crate::core::Shared;
use crate::guard::Guard;
use crate::observer::Subject;
use crate::plan::Plan;
use crate::progress::Progress;

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
    fn join(self: &Arc<Self>, name: &LockName) -> Turn {
        let mut queues = self.0.lock();
        let queue = queues.entry(name.clone()).or_default();
        queue.joined += 1;
        let (number, became_first) = (queue.joined, Arc::new(Notify::new()));
        queue.entries.push_back(LocalEntry {
            number,
            holds: false,
            became_first: became_first.clone(),
        });
        Turn { queues: self.clone(), name: name.clone(), number, became_first }
    }
}

impl Turn {
    fn is_first(&self) -> bool {
        self.with_queue(|queue| queue.entries.front().is_some_and(|one| one.number == self.number))
    }

    /// Returns whether an earlier attempt still waits for the name.
    fn has_waiters_before(&self) -> bool {
        self.with_queue(|queue| {
            let mut before = queue.entries.iter().take_while(|one| one.number != self.number);
            before.any(|one| !one.holds)
        })
    }

    /// Records that this attempt holds the name, so that the next one may send a request.
    fn mark_holding(&self) {
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
    async fn wait_for_first(&self) {
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

/// Joins the local queue before the first request, if the engine has no queue.
pub(super) fn join(shared: &Shared, plan: &Plan, wait: Wait) -> Option<Turn> {
    let joins = wait != Wait::Try && plan.mode == Mode::Exclusive && !plan.queues;
    joins.then(|| shared.local_queues.join(&plan.name))
}

/// Waits for earlier attempts, at most for a polling pause; returns whether there were any.
pub(super) async fn wait_behind_others(
    shared: &Shared,
    progress: &Progress<'_>,
    subject: Subject<'_>,
    (turn, wait): (&Turn, Wait),
) -> bool {
    if !turn.has_waiters_before() {
        return false;
    }
    progress.wait();
    shared.observe(|observer| observer.queued(subject, None, None));
    let end = shared.clock.now().after(POLL_PAUSE.1).min(wait.deadline());
    select(shared.clock.sleep_until(end), pin!(turn.wait_for_first())).await;
    true
}

/// Moves the turn to the guard, whose drop passes it on.
pub(super) fn held(turn: Option<Turn>, guard: Guard) -> Guard {
    match turn {
        Some(turn) => {
            turn.mark_holding();
            guard.with_turn(turn)
        }
        None => guard,
    }
}

/// Returns whether the second of two futures was ready first.
fn is_second<A, B>(ready: &Either<A, B>) -> bool {
    matches!(ready, Either::Right(_))
}

impl Attempt<'_> {
    /// Waits before the next request to an engine that has no queue, or that did not queue us.
    pub(super) async fn wait_unqueued(&mut self, next_look: Duration, held: bool) -> Next {
        self.repeats = 0;
        if self.wait == Wait::Try || self.is_spent() {
            let kind = ErrorKind::Busy { holder: self.holder.take() };
            return Next::Fail(self.shared.error(kind, Certainty::NotApplied));
        }
        let deadline = self.wait.deadline();
        let now = self.shared.clock.now();
        if now >= deadline {
            return Next::TimedOut;
        }
        if !std::mem::replace(&mut self.reported_wait, true) {
            let holder = self.holder.as_deref();
            self.progress.wait();
            self.shared.observe(|observer| observer.queued(self.subject(), None, holder));
        }
        let woken = match self.turn.take_if(|turn| !turn.is_first()) {
            Some(turn) => {
                let end = now.after(POLL_PAUSE.1.min(next_look)).min(deadline);
                let pause = self.shared.clock.sleep_until(end);
                let is_first = is_second(&select(pause, pin!(turn.wait_for_first())).await);
                self.turn = Some(turn);
                is_first
            }
            None => self.listen(now, next_look, held).await,
        };
        // Others ask without a pause, too. Where votes are counted, that would split them.
        let at_once = woken && !self.shared.engine.capabilities().splits;
        match self.plan.lease_id {
            Some(_) => Next::Ask,
            None if at_once => Next::NewIdAtOnce,
            None => Next::NewId,
        }
    }

    /// Waits for a hint of the engine, at most for a polling pause. Returns whether a hint came.
    async fn listen(&mut self, now: Moment, next_look: Duration, held: bool) -> bool {
        let pause = self.poll_pause.next_pause(self.shared.entropy.number());
        let end = now.after(pause.min(next_look)).min(self.wait.deadline());
        let pause = self.shared.clock.sleep_until(end);
        // If several attempts have votes and none has a majority, each waits for a random pause. A
        // hint would make them collide again.
        if held {
            return is_second(&select(pause, pin!(self.next_hint())).await);
        }
        pause.await;
        false
    }

    /// Waits for a hint that the name may be free, from an engine without a queue.
    async fn next_hint(&mut self) {
        let shared = self.shared;
        if self.plan.queues {
            return std::future::pending().await;
        }
        let hints = self.unqueued_hints.get_or_insert_with(|| {
            shared.runtime.within(|| shared.engine.watch(&self.plan.name, self.ticket.lease_id))
        });
        let hint =
            poll_fn(|context| shared.runtime.within(|| hints.poll_next_unpin(context))).await;
        if hint.is_none() {
            self.unqueued_hints = None;
            std::future::pending::<()>().await;
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
        let (second, third) = (queues.join(&name("a")), queues.join(&name("a")));
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
