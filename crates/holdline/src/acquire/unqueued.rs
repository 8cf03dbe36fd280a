//! Waits for a name of an engine without a queue: the attempts of this process queue locally, and
//! the first of them polls.
//!
//! The first attempt of the local queue sends requests and receives the engine's hints. The others
//! wait in the order of their arrival, and the next one's turn comes when the lock of the first is
//! released. If all sent requests at once to an engine that counts votes, no attempt might get a
//! majority.
//! Invariant L1 of `local_queues`: dropping a [`Turn`] always passes it on.
//! Invariant L2: attempts that are not first still send requests at the polling pace. A guard that
//! is leaked or outlives its lease delays the others, but blocks none of them.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{Either, select};
use holdline_core::{Certainty, ErrorKind, Mode, Moment};

use super::progress::Progress;
use super::{Attempt, Next, POLL_PAUSE, Wait};
use crate::core::ClientState;
use crate::core::local_queues::Turn;
use crate::guard::Guard;
use crate::observer::Subject;
use crate::plan::Plan;

/// Joins the local queue before the first request, if the engine has no queue.
pub(super) fn join(state: &ClientState, plan: &Plan, wait: Wait) -> Option<Turn> {
    let joins = wait != Wait::Try && plan.mode == Mode::Exclusive && !plan.queues;
    joins.then(|| state.local_queues.join(&plan.name))
}

/// Waits for earlier attempts, at most for a polling pause; returns whether there were any.
pub(super) async fn wait_behind_others(
    state: &ClientState,
    progress: &Progress<'_>,
    subject: Subject<'_>,
    turn: &Turn,
    wait: Wait,
) -> bool {
    if !turn.has_waiters_before() {
        return false;
    }
    progress.wait();
    state.observe(|observer| observer.queued(subject, None, None));
    let end = state.clock.now().after(POLL_PAUSE.1).min(wait.deadline());
    select(state.clock.sleep_until(end), pin!(turn.wait_for_first())).await;
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
            return Next::Fail(self.state.error(kind, Certainty::NotApplied));
        }
        let deadline = self.wait.deadline();
        let now = self.state.clock.now();
        if now >= deadline {
            return Next::TimedOut;
        }
        if !std::mem::replace(&mut self.reported_wait, true) {
            let holder = self.holder.as_deref();
            self.progress.wait();
            self.state.observe(|observer| observer.queued(self.subject(), None, holder));
        }
        let woken = match self.turn.take_if(|turn| !turn.is_first()) {
            Some(turn) => {
                let end = now.after(POLL_PAUSE.1.min(next_look)).min(deadline);
                let pause = self.state.clock.sleep_until(end);
                let is_first = is_second(&select(pause, pin!(turn.wait_for_first())).await);
                self.turn = Some(turn);
                is_first
            }
            None => self.listen(now, next_look, held).await,
        };
        // Others ask without a pause, too. Where votes are counted, that would split them.
        let at_once = woken && !self.state.engine.capabilities().splits;
        match self.plan.lease_id {
            Some(_) => Next::Ask,
            None if at_once => Next::NewIdAtOnce,
            None => Next::NewId,
        }
    }

    /// Waits for a hint of the engine, at most for a polling pause. Returns whether a hint came.
    async fn listen(&mut self, now: Moment, next_look: Duration, held: bool) -> bool {
        let pause = self.poll_pause.next_pause(self.state.entropy.number());
        let end = now.after(pause.min(next_look)).min(self.wait.deadline());
        let pause = self.state.clock.sleep_until(end);
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
        let state = self.state;
        if self.plan.queues {
            return std::future::pending().await;
        }
        let hints = self.unqueued_hints.get_or_insert_with(|| {
            state.runtime.within(|| state.engine.watch(&self.plan.name, self.ticket.lease_id))
        });
        let hint = poll_fn(|context| state.runtime.within(|| hints.poll_next_unpin(context))).await;
        if hint.is_none() {
            self.unqueued_hints = None;
            std::future::pending::<()>().await;
        }
    }
}
