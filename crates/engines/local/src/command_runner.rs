//! The state that all clones of an engine share; runs commands and sends wake-ups.
//!
//! A command runs at once, on the caller's thread, if nobody is inside and no other program uses
//! the database; otherwise on the waiting thread. After the commit, outside both locks, the
//! affected clients are notified.

use std::sync::Arc;

use holdline_core::hints::Watches;
use holdline_core::table::WakeUp;
use holdline_core::{Answer, Capabilities, ClientId, Clock, Hint, LockError, LockName, Moment};
use tokio::sync::oneshot;

use crate::error::Fault;
use crate::housekeeping::Housekeeping;
use crate::machine;
use crate::step::{DeadHolders, Effects, Step, StoreState};
use crate::transaction_lock::{TransactionGuard, TransactionLock};
use crate::wait_thread::WaitThread;
use crate::wake_socket::{Sent, WakeSocket};

/// The most dead waiters that one command skips.
const ROUNDS: usize = 10_000;

#[derive(Debug)]
pub(crate) struct CommandRunner {
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) transaction_lock: Arc<TransactionLock>,
    pub(crate) wait_thread: Arc<WaitThread>,
    pub(crate) watches: Arc<Watches>,
    pub(crate) wake_socket: Arc<WakeSocket>,
    pub(crate) housekeeping: Housekeeping,
}

/// The result of a command inside a transaction.
pub(crate) type Done<T> = Result<(T, Effects), Fault>;

/// The work of a command inside a transaction; it may run more than once.
pub(crate) trait Work<T>: FnMut(&mut Step<'_>) -> Result<T, Fault> + Send + 'static {}

impl<T, F: FnMut(&mut Step<'_>) -> Result<T, Fault> + Send + 'static> Work<T> for F {}

impl CommandRunner {
    pub(crate) fn now(&self) -> Moment {
        self.clock.as_ref().map_or_else(machine::now, |clock| clock.now())
    }

    /// Runs a command on a name, and converts the reply into an answer.
    pub(crate) fn command<T: Send + 'static, A: Send + Unpin + 'static>(
        self: &Arc<Self>,
        name: &LockName,
        mut work: impl Work<Result<T, LockError>>,
        map: impl FnOnce(Result<T, LockError>) -> A + Send + 'static,
    ) -> Answer<'static, A> {
        let name = name.clone();
        self.enter(
            move |runner, inside| {
                let now = runner.now();
                inside.carry_out(&runner.capabilities, now, &mut work)
            },
            move |done| map(done.unwrap_or_else(|fault| Err(fault.about(&name)))),
        )
    }

    /// Runs `work` inside a transaction, now or later, and converts the result into an answer.
    pub(crate) fn enter<T: Send + 'static, A: Send + Unpin + 'static>(
        self: &Arc<Self>,
        mut work: impl FnMut(&CommandRunner, &mut StoreState) -> Done<T> + Send + 'static,
        map: impl FnOnce(Result<T, Fault>) -> A + Send + 'static,
    ) -> Answer<'static, A> {
        match self.transaction_lock.enter_soon() {
            Ok(Some(entered)) => match self.run(entered, &mut work) {
                Err(fault) if fault.is_busy() => {}
                done => return Answer::ready(map(done)),
            },
            Ok(None) => {}
            Err(fault) => return Answer::ready(map(Err(fault))),
        }
        let (sender, receiver) = oneshot::channel();
        let runner = self.clone();
        let job = move |entered: Result<TransactionGuard<'_>, Fault>| {
            // The caller has dropped its future: nothing was done.
            if sender.is_closed() {
                return;
            }
            let done = entered.and_then(|entered| runner.run(entered, &mut work));
            // If the caller drops its future now, only the reply is lost (rule G3).
            let _ = sender.send(done);
        };
        WaitThread::add(&self.wait_thread, &self.transaction_lock, Box::new(job));
        Answer::later(async move {
            map(receiver.await.unwrap_or_else(|_| Err(Fault::protocol("a command panicked"))))
        })
    }

    fn run<T>(
        self: &Arc<Self>,
        mut entered: TransactionGuard<'_>,
        work: &mut impl FnMut(&CommandRunner, &mut StoreState) -> Done<T>,
    ) -> Result<T, Fault> {
        let done = work(self, &mut entered)
            .map_err(|fault| fault.in_file(&entered.clients.liveness.files.database));
        if self.housekeeping.is_due() {
            self.housekeeping.look(&entered, &self.transaction_lock);
        }
        drop(entered);
        let (reply, effects) = done?;
        if !effects.wake_ups.is_empty() {
            self.notify(effects.wake_ups);
        }
        Ok(reply)
    }

    /// Notifies the clients that a command affects. A hand-off to a dead process is passed on at
    /// once; if another command is inside, the waiting thread does it.
    fn notify(self: &Arc<Self>, mut wake_ups: Vec<(LockName, WakeUp)>) {
        for _ in 0..ROUNDS {
            let names = self.send(wake_ups);
            if names.is_empty() {
                return;
            }
            if let Ok(Some(mut entered)) = self.transaction_lock.enter_soon() {
                match self.settle(&mut entered, &names) {
                    Err(fault) if fault.is_busy() => {}
                    Err(fault) => return log_not_skipped(fault),
                    Ok(more) => {
                        wake_ups = more;
                        continue;
                    }
                }
            }
            let runner = self.clone();
            let job = move |entered: Result<TransactionGuard<'_>, Fault>| {
                let settled = entered.and_then(|mut entered| runner.settle(&mut entered, &names));
                settled.map_or_else(log_not_skipped, |wake_ups| runner.notify(wake_ups));
            };
            return WaitThread::add(&self.wait_thread, &self.transaction_lock, Box::new(job));
        }
    }

    fn settle(
        &self,
        inside: &mut StoreState,
        names: &[LockName],
    ) -> Result<Vec<(LockName, WakeUp)>, Fault> {
        let mut work = |step: &mut Step<'_>| {
            names.iter().try_for_each(|name| step.on(name, DeadHolders::Find, |t| t.settle()))
        };
        let ((), effects) = inside.carry_out(&self.capabilities, self.now(), &mut work)?;
        Ok(effects.wake_ups)
    }

    /// Sends wake-ups, one datagram for each client, and returns the names that were handed over to
    /// a client without an open socket.
    fn send(&self, wake_ups: Vec<(LockName, WakeUp)>) -> Vec<LockName> {
        let mut elsewhere: Vec<(ClientId, Vec<(LockName, WakeUp)>)> = Vec::new();
        for (name, wake_up) in wake_ups {
            if self.watches.notify(wake_up.lease_id, wake_up.hint) {
                continue;
            }
            match elsewhere.iter_mut().find(|(client, _)| *client == wake_up.client) {
                Some((_, list)) => list.push((name, wake_up)),
                None => elsewhere.push((wake_up.client, vec![(name, wake_up)])),
            }
        }
        let mut not_notified = Vec::new();
        for (client, list) in elsewhere {
            let hints: Vec<WakeUp> = list.iter().map(|(_, wake_up)| *wake_up).collect();
            if self.wake_socket.send(client, &hints) == Sent::Sent {
                continue;
            }
            let handed = list.into_iter().filter(|(_, wake_up)| wake_up.hint != Hint::CheckLease);
            not_notified.extend(handed.map(|(name, _)| name));
        }
        not_notified.sort_unstable();
        not_notified.dedup();
        not_notified
    }
}

/// The lease of the hand-off ends at the dead waiter instead.
fn log_not_skipped(fault: Fault) {
    tracing::debug!(error = %fault.into_error(), "a dead waiter was not skipped");
}

impl Drop for CommandRunner {
    fn drop(&mut self) {
        self.wake_socket.close();
        // If another command is inside, other processes sweep our files.
        if let Ok(Some(mut entered)) = self.transaction_lock.enter_now() {
            entered.clients.remove_all();
        }
    }
}
