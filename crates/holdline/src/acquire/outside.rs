//! Waiting for a name of an engine that keeps no queue: in line with those of this process, and by
//! asking again.
//!
//! Whoever is first in line asks, and hears what the engine tells; the others stand behind, in the
//! order in which they came, and the turn is passed on when the lock of the first is released. If
//! all asked at once where votes are counted, nobody might get enough of them.
//! Invariant L1: the drop of a [`Turn`] passes it on, whatever ends it.
//! Invariant L2: who stands behind asks at the pace of a poll all the same. A guard that is leaked
//! or outlives its lease costs the line its speed, and nobody the name.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::select;
use holdline_core::{Certainty, ErrorKind, LockName, Mode, Moment};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Attempt, Next, POLL_PAUSE, Wait};
use crate::core::Shared;
use crate::guard::Guard;
use crate::observer::Subject;
use crate::plan::Plan;
use crate::progress::Progress;

/// Who of this process is in line, by name. A name that nobody wants or holds is not in it.
#[derive(Default)]
pub(crate) struct Lines(Mutex<HashMap<LockName, Line>>);

#[derive(Default)]
struct Line {
    joined: u64,
    places: VecDeque<Place>,
}

struct Place {
    number: u64,
    holds: bool,
    told: Arc<Notify>,
}

/// A place in line, until it is dropped: first of one that waits, then of its guard.
pub(crate) struct Turn {
    lines: Arc<Lines>,
    name: LockName,
    number: u64,
    told: Arc<Notify>,
}

impl Lines {
    /// Goes to the end of a line.
    fn join(self: &Arc<Self>, name: &LockName) -> Turn {
        let mut lines = self.0.lock();
        let line = lines.entry(name.clone()).or_default();
        line.joined += 1;
        let (number, told) = (line.joined, Arc::new(Notify::new()));
        line.places.push_back(Place { number, holds: false, told: told.clone() });
        Turn { lines: self.clone(), name: name.clone(), number, told }
    }
}

impl Turn {
    fn is_first(&self) -> bool {
        self.with_line(|line| line.places.front().is_some_and(|one| one.number == self.number))
    }

    /// Tells whether somebody before it wants the name, too.
    fn is_behind(&self) -> bool {
        self.with_line(|line| {
            let mut before = line.places.iter().take_while(|one| one.number != self.number);
            before.any(|one| !one.holds)
        })
    }

    /// It has what it wanted: who comes next may ask who that is.
    fn holds(&self) {
        self.with_line(|line| {
            let own = line.places.iter_mut().find(|one| one.number == self.number);
            own.into_iter().for_each(|one| one.holds = true);
        });
    }

    fn with_line<T: Default>(&self, look: impl FnOnce(&mut Line) -> T) -> T {
        self.lines.0.lock().get_mut(&self.name).map(look).unwrap_or_default()
    }

    /// Resolves when the one before has gone.
    ///
    /// # Cancel safety
    /// Dropping the future keeps the place.
    async fn comes(&self) {
        self.told.notified().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = self.lines.0.lock();
        let Some(line) = lines.get_mut(&self.name) else { return };
        let was_first = line.places.front().is_some_and(|one| one.number == self.number);
        line.places.retain(|one| one.number != self.number);
        match line.places.front() {
            Some(next) if was_first => next.told.notify_one(),
            Some(_) => {}
            None => drop(lines.remove(&self.name)),
        }
    }
}

/// Stands in line where the engine keeps no queue, before anything is asked.
pub(super) fn join(shared: &Shared, plan: &Plan, wait: Wait) -> Option<Turn> {
    let lines =
        wait != Wait::Try && plan.mode == Mode::Exclusive && !shared.engine.capabilities().queue;
    lines.then(|| shared.lines.join(&plan.name))
}

/// Waits behind those who want the name too, no longer than a poll; tells whether there were any.
pub(super) async fn behind_others(
    shared: &Shared,
    progress: &Progress<'_>,
    subject: Subject<'_>,
    (turn, wait): (&Turn, Wait),
) -> bool {
    if !turn.is_behind() {
        return false;
    }
    progress.wait();
    shared.observe(|observer| observer.queued(subject, None, None));
    let end = shared.clock.now().after(POLL_PAUSE.1).min(wait.deadline());
    select(shared.clock.sleep_until(end), pin!(turn.comes())).await;
    true
}

/// Goes on standing in line for the guard, whose drop passes the turn on.
pub(super) fn held(turn: Option<Turn>, guard: Guard) -> Guard {
    match turn {
        Some(turn) => {
            turn.holds();
            guard.with_turn(turn)
        }
        None => guard,
    }
}

impl Attempt<'_> {
    /// Waits before asking an engine again that has no queue, or that did not let us queue.
    pub(super) async fn wait_outside(&mut self, next_look: Duration, held: bool) -> Next {
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
        if !std::mem::replace(&mut self.waits, true) {
            let holder = self.holder.as_deref();
            self.progress.wait();
            self.shared.observe(|observer| observer.queued(self.subject(), None, holder));
        }
        match self.turn.take_if(|turn| !turn.is_first()) {
            Some(turn) => {
                let pause = now.after(POLL_PAUSE.1.min(next_look)).min(deadline);
                select(self.shared.clock.sleep_until(pause), pin!(turn.comes())).await;
                self.turn = Some(turn);
            }
            None => self.listen(now, next_look, held).await,
        }
        if self.plan.lease_id.is_some() { Next::Ask } else { Next::Anew }
    }

    /// Waits for word of the engine, and no longer than a poll.
    async fn listen(&mut self, now: Moment, next_look: Duration, held: bool) {
        let pause = self.poll_pause.next_pause(self.shared.entropy.number());
        let end = now.after(pause.min(next_look)).min(self.wait.deadline());
        let pause = self.shared.clock.sleep_until(end);
        // A name that several have a part of and nobody all is asked for again after a pause that
        // chance gives each of them: what they tell each other would bring them together again.
        if held {
            select(pause, pin!(self.hear_outside())).await;
        } else {
            pause.await;
        }
    }

    /// Waits for word that the name may be free, from an engine that knows no queue.
    async fn hear_outside(&mut self) {
        let shared = self.shared;
        if shared.engine.capabilities().queue {
            return std::future::pending().await;
        }
        let hints = self.outside.get_or_insert_with(|| {
            shared.home.within(|| shared.engine.watch(&self.plan.name, self.ticket.lease_id))
        });
        let heard = poll_fn(|context| shared.home.within(|| hints.poll_next_unpin(context))).await;
        if heard.is_none() {
            self.outside = None;
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
        let lines = Arc::new(Lines::default());
        let first = lines.join(&name("a"));
        let (second, third) = (lines.join(&name("a")), lines.join(&name("a")));
        let other = lines.join(&name("b"));
        assert!(first.is_first() && other.is_first());
        assert!(!second.is_first() && !third.is_first());
        drop(second);
        assert!(!third.is_first(), "one that gave up moves nobody past the first");
        drop(first);
        third.comes().await;
        assert!(third.is_first());
        drop((third, other));
        assert!(lines.0.lock().is_empty(), "nothing is left of a line");
    }

    #[test]
    fn whoever_comes_behind_a_holder_alone_may_ask_who_it_is() {
        let lines = Arc::new(Lines::default());
        let first = lines.join(&name("a"));
        let second = lines.join(&name("a"));
        assert!(!first.is_behind() && second.is_behind());
        first.holds();
        assert!(!second.is_behind() && !second.is_first());
        assert!(lines.join(&name("a")).is_behind());
    }
}
