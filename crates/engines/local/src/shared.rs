//! What all copies of an engine share: the way from a command to its answer.
//!
//! A command is carried out at once, on the caller's thread, when nobody is inside and no other
//! program keeps the database; otherwise the waiting thread does it. After the commit, outside both
//! locks, those whom it concerns are notified.

use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::table::WakeUp;
use holdline_core::{Answer, Capabilities, ClientId, Clock, Hint, LockError, LockName, Moment};
use tokio::sync::oneshot;

use crate::error::Fault;
use crate::housekeeping::Housekeeping;
use crate::inbox::{Inbox, Sent};
use crate::machine;
use crate::room::{Entered, Room};
use crate::step::{Effects, Inside, Look, Step};
use crate::waiting::Waiting;

/// How many dead waiters one command skips at most; each of them was handed the name in vain.
const ROUNDS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) room: Arc<Room>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) housekeeping: Housekeeping,
}

/// What comes of a command inside.
pub(crate) type Done<T> = Result<(T, Effects), Fault>;

/// What a command does inside; it may be run more than once.
pub(crate) trait Work<T>: FnMut(&mut Step<'_>) -> Result<T, Fault> + Send + 'static {}

impl<T, F: FnMut(&mut Step<'_>) -> Result<T, Fault> + Send + 'static> Work<T> for F {}

impl Shared {
    pub(crate) fn now(&self) -> Moment {
        self.clock.as_ref().map_or_else(machine::now, |clock| clock.now())
    }

    /// Carries out a command about a name, and turns the reply into an answer.
    pub(crate) fn command<T: Send + 'static, A: Send + Unpin + 'static>(
        self: &Arc<Self>,
        name: &LockName,
        mut work: impl Work<Result<T, LockError>>,
        map: impl FnOnce(Result<T, LockError>) -> A + Send + 'static,
    ) -> Answer<'static, A> {
        let name = name.clone();
        self.enter(
            move |shared, inside| {
                let now = shared.now();
                inside.carry_out(&shared.capabilities, now, &mut work)
            },
            move |done| map(done.unwrap_or_else(|fault| Err(fault.about(&name)))),
        )
    }

    /// Goes inside with `work`, now or later, and turns what comes of it into an answer.
    pub(crate) fn enter<T: Send + 'static, A: Send + Unpin + 'static>(
        self: &Arc<Self>,
        mut work: impl FnMut(&Shared, &mut Inside) -> Done<T> + Send + 'static,
        map: impl FnOnce(Result<T, Fault>) -> A + Send + 'static,
    ) -> Answer<'static, A> {
        match self.room.enter_soon() {
            Ok(Some(entered)) => match self.run(entered, &mut work) {
                Err(fault) if fault.is_busy() => {}
                done => return Answer::ready(map(done)),
            },
            Ok(None) => {}
            Err(fault) => return Answer::ready(map(Err(fault))),
        }
        let (sender, receiver) = oneshot::channel();
        let shared = self.clone();
        let job = move |entered: Result<Entered<'_>, Fault>| {
            // Whoever asked has gone away: nothing was done, and nothing need be undone.
            if sender.is_closed() {
                return;
            }
            let done = entered.and_then(|entered| shared.run(entered, &mut work));
            // If it goes away now it has lost the reply only (rule G3).
            let _ = sender.send(done);
        };
        Waiting::add(&self.waiting, &self.room, Box::new(job));
        Answer::later(async move {
            map(receiver.await.unwrap_or_else(|_| Err(Fault::protocol("a command panicked"))))
        })
    }

    fn run<T>(
        self: &Arc<Self>,
        mut entered: Entered<'_>,
        work: &mut impl FnMut(&Shared, &mut Inside) -> Done<T>,
    ) -> Result<T, Fault> {
        let done = work(self, &mut entered)
            .map_err(|fault| fault.in_file(&entered.clients.liveness.files.database));
        if self.housekeeping.is_due() {
            self.housekeeping.look(&entered, &self.room);
        }
        drop(entered);
        let (reply, effects) = done?;
        if !effects.wake_ups.is_empty() {
            self.tell(effects.wake_ups);
        }
        Ok(reply)
    }

    /// Tells those whom a command concerns. A name that was handed to a dead process is handed
    /// on at once; if somebody is inside, the waiting thread sees to it.
    fn tell(self: &Arc<Self>, mut wake_ups: Vec<(LockName, WakeUp)>) {
        for _ in 0..ROUNDS {
            let names = self.send(wake_ups);
            if names.is_empty() {
                return;
            }
            if let Ok(Some(mut entered)) = self.room.enter_soon() {
                match self.settle(&mut entered, &names) {
                    Err(fault) if fault.is_busy() => {}
                    Err(fault) => return not_skipped(fault),
                    Ok(more) => {
                        wake_ups = more;
                        continue;
                    }
                }
            }
            let shared = self.clone();
            let job = move |entered: Result<Entered<'_>, Fault>| {
                let settled = entered.and_then(|mut entered| shared.settle(&mut entered, &names));
                settled.map_or_else(not_skipped, |wake_ups| shared.tell(wake_ups));
            };
            return Waiting::add(&self.waiting, &self.room, Box::new(job));
        }
    }

    fn settle(
        &self,
        inside: &mut Inside,
        names: &[LockName],
    ) -> Result<Vec<(LockName, WakeUp)>, Fault> {
        let mut work = |step: &mut Step<'_>| {
            names.iter().try_for_each(|name| step.on(name, Look::ForTheDead, |t| t.settle()))
        };
        let ((), effects) = inside.carry_out(&self.capabilities, self.now(), &mut work)?;
        Ok(effects.wake_ups)
    }

    /// Sends wake-ups, one datagram for each client, and returns the names that were handed to
    /// somebody whose socket nobody has open.
    fn send(&self, wake_ups: Vec<(LockName, WakeUp)>) -> Vec<LockName> {
        let mut elsewhere: Vec<(ClientId, Vec<(LockName, WakeUp)>)> = Vec::new();
        for (name, wake_up) in wake_ups {
            if self.watches.tell(wake_up.lease_id, wake_up.hint) {
                continue;
            }
            match elsewhere.iter_mut().find(|(client, _)| *client == wake_up.client) {
                Some((_, list)) => list.push((name, wake_up)),
                None => elsewhere.push((wake_up.client, vec![(name, wake_up)])),
            }
        }
        let mut unheard = Vec::new();
        for (client, list) in elsewhere {
            let hints: Vec<WakeUp> = list.iter().map(|(_, wake_up)| *wake_up).collect();
            if self.inbox.send(client, &hints) == Sent::Told {
                continue;
            }
            let handed = list.into_iter().filter(|(_, w)| w.hint == Hint::LookAgain);
            unheard.extend(handed.map(|(name, _)| name));
        }
        unheard.sort_unstable();
        unheard.dedup();
        unheard
    }
}

/// The claim window of a dead waiter ends its hand-off instead.
fn not_skipped(fault: Fault) {
    tracing::debug!(error = %fault.into_error(), "a dead waiter was not skipped");
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.inbox.close();
        // If somebody is inside, what is left of us is swept by others.
        if let Ok(Some(mut entered)) = self.room.enter_now() {
            entered.clients.leave();
        }
    }
}
