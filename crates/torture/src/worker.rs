//! A worker: acquires names, reads, waits, writes and releases, until it gets the order to end.
//!
//! It never checks its lease before it writes: a process can be stopped between any check and any
//! write, so a check would only make the run find less. It records until when it may rely on the
//! lease, for the checker.
//!
//! Invariant W1: it dies with the process that runs it, even while it is stopped.

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, ClientOptions, Guard, LockOptions};
use holdline_core::{ErrorKind, LockError, LockName, Mode, Moment};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::Plant;
use crate::checker::{Event, Seen};
use crate::pipes::{self, send};
use crate::plan::{READY, RELEASE};
use crate::recorder::Recorder;
use crate::register::Answer;
use crate::wire::{Assignment, Order, WorkerMessage};

/// How long a failed connection is left alone.
const NEXT_TRY: Duration = Duration::from_millis(100);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Is a worker of [`crate::run()`]: reads orders from standard input and says on standard output
/// what it sees. The one argument is the process id of its parent.
pub fn work(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|word| word.to_str()?.parse().ok());
    let Some(parent) = parent.and_then(Pid::from_raw) else {
        eprintln!("holdline: a worker is started by the run that it belongs to");
        return ExitCode::from(64);
    };
    let done = die_with(parent).and_then(|()| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(Box::pin(obey()))
    });
    match done {
        Ok(left) => {
            send(&WorkerMessage::Ended { left });
            ExitCode::SUCCESS
        }
        Err(error) => {
            send(&WorkerMessage::Failed(error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// Requests the kernel's signal first and then checks the parent: an earlier death sends no signal.
fn die_with(parent: Pid) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() == Some(parent) { Ok(()) } else { Err("the parent process is gone".into()) }
}

/// How an attempt goes about it.
#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    /// Waits, holds for a moment, releases.
    Hold,
    /// Holds for longer than a lease, which must be renewed.
    Stay,
    /// Drops its guard instead of releasing it.
    Drop,
    /// Gives up half-way.
    GiveUp,
}

struct Worker {
    assignment: Assignment,
    client: Client,
    recorder: Arc<Recorder>,
    answers: mpsc::Receiver<Answer>,
    ending: watch::Receiver<bool>,
    random: StdRng,
}

/// Carries the assignment out, and returns how many grants it could not release.
async fn obey() -> Result<usize, Failure> {
    let (orders, mut ordered) = mpsc::channel(4);
    std::thread::Builder::new().name("orders".into()).spawn(move || read_orders(&orders))?;
    let Some(Order::Begin(assignment)) = ordered.recv().await else {
        return Err("the first order must be to begin".into());
    };
    let (sender, answers) = mpsc::channel(1);
    let (end, ending) = watch::channel(false);
    tokio::spawn(async move {
        while let Some(order) = ordered.recv().await {
            match order {
                // Nobody waits any more only when the worker has ended.
                Order::Answer(answer) => drop(sender.send(answer).await),
                _ => drop(end.send(true)),
            }
        }
    });
    let recorder = Arc::new(Recorder::new(|event| send(&WorkerMessage::Saw(event)))?);
    let client = connect(&assignment, &recorder).await?;
    send(&WorkerMessage::Ready);
    let random = StdRng::seed_from_u64(assignment.seed);
    let mut worker = Worker { assignment, client, recorder, answers, ending, random };
    worker.contend().await
}

/// Reads orders until the parent is gone; then nothing is left to do.
fn read_orders(orders: &mpsc::Sender<Order>) {
    for order in pipes::orders() {
        match order {
            Ok(order) => {
                if orders.blocking_send(order).is_err() {
                    return;
                }
            }
            Err(error) => {
                return send(&WorkerMessage::Failed(format!("an order makes no sense: {error}")));
            }
        }
    }
    std::process::exit(1);
}

/// Connects, again and again while the store is away.
async fn connect(assignment: &Assignment, recorder: &Arc<Recorder>) -> Result<Client, Failure> {
    let url = if assignment.plant == Some(Plant::SplitBrain) { "memory:" } else { &assignment.url };
    let connected = timeout(READY, async {
        loop {
            let options = ClientOptions::default().with_observer(recorder.clone());
            match Client::connect_with(url, options).await {
                Err(error) if is_away(error.kind()) => tokio::time::sleep(NEXT_TRY).await,
                answer => return answer,
            }
        }
    });
    Ok(connected.await.map_err(|_| format!("no connection within {READY:?}"))??)
}

fn is_away(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unavailable { .. }
            | ErrorKind::NoQuorum { .. }
            | ErrorKind::Quarantined { .. }
            | ErrorKind::NotInitialised
    )
}

/// Returns whether an attempt may fail so under faults.
fn may_be(kind: &ErrorKind) -> bool {
    let refused = matches!(
        kind,
        ErrorKind::Busy { .. } | ErrorKind::TimedOut { .. } | ErrorKind::TooManyWaiters { .. }
    );
    refused || is_away(kind) || matches!(kind, ErrorKind::Lost { .. })
}

impl Worker {
    async fn contend(&mut self) -> Result<usize, Failure> {
        let mut attempt = self.assignment.first;
        while !*self.ending.borrow() {
            let name = self.random.random_range(0..self.assignment.names.len());
            let name = self.assignment.names[name].clone();
            let behaviour = match self.random.random_range(0..100) {
                0..=2 => Behaviour::Stay,
                3..=12 => Behaviour::Drop,
                13..=24 => Behaviour::GiveUp,
                _ => Behaviour::Hold,
            };
            if !self.attempt(attempt, &name, behaviour).await? {
                // A hanging call is reported once; its later effects are ignored.
                return Ok(0);
            }
            attempt += 1;
        }
        if self.assignment.plant == Some(Plant::Orphan) {
            return self.leave_an_orphan().await;
        }
        let report = self.client.shutdown(self.assignment.slack).await;
        Ok(report.left() + report.held() + report.under_way())
    }

    /// Makes one attempt; false if a call of the library did not come back.
    async fn attempt(
        &mut self,
        attempt: u64,
        name: &LockName,
        behaviour: Behaviour,
    ) -> Result<bool, Failure> {
        let pause = Duration::from_millis(self.random.random_range(1..40));
        let slack = Duration::from_millis(self.random.random_range(0..300));
        let options = LockOptions::default().with_lease_duration(self.assignment.lease);
        let mutex = self.client.mutex_with(name, &options.with_wait(self.assignment.wait))?;
        self.recorder.called(attempt, name, Mode::Exclusive);
        let hangs = self.assignment.plant == Some(Plant::Hang);
        let lock = async {
            if hangs {
                std::future::pending::<()>().await;
            }
            mutex.lock().await
        };
        let lock = Box::pin(lock);
        let answer = if behaviour == Behaviour::GiveUp {
            timeout(slack, lock).await.ok()
        } else {
            let limit = self.assignment.wait + self.assignment.slack;
            let Some(answer) = self.within(limit, attempt, "lock", lock).await else {
                return Ok(false);
            };
            Some(answer)
        };
        match answer {
            Some(Ok(guard)) => return self.hold(attempt, guard, behaviour, pause).await,
            Some(Err(error)) => {
                self.recorder.failed(attempt);
                erred(attempt, &error);
                // A worker whose requests fail at once must not retry without a pause.
                tokio::time::sleep(pause).await;
            }
            None => self.recorder.failed(attempt),
        }
        Ok(true)
    }

    async fn hold(
        &mut self,
        attempt: u64,
        guard: Guard,
        behaviour: Behaviour,
        pause: Duration,
    ) -> Result<bool, Failure> {
        self.recorder.granted(attempt, &guard);
        let believes_for_ever = self.assignment.plant == Some(Plant::BelieveForEver);
        if believes_for_ever {
            let seen = Seen::Renewed { valid_until: Moment::NEVER };
            send(&WorkerMessage::Saw(Event { at: self.recorder.now(), attempt, seen }));
        }
        let token = guard.fencing_token();
        let base = self.ask(&WorkerMessage::Read { attempt, token }).await?;
        self.think(attempt, &guard, behaviour, pause).await;
        self.ask(&WorkerMessage::Write { attempt, token, base }).await?;
        if guard.is_valid() || believes_for_ever {
            self.recorder.renewed(attempt, &guard);
            self.recorder.released(attempt);
        } else {
            self.recorder.lost(attempt);
        }
        if behaviour == Behaviour::Drop {
            drop(guard);
            return Ok(true);
        }
        let limit = RELEASE + self.assignment.slack;
        let outcome = self.within(limit, attempt, "release", Box::pin(guard.release())).await;
        Ok(outcome.is_some())
    }

    /// Holds for a while, and writes down how the lease is renewed meanwhile.
    async fn think(&self, attempt: u64, guard: &Guard, behaviour: Behaviour, pause: Duration) {
        if behaviour != Behaviour::Stay {
            return tokio::time::sleep(pause).await;
        }
        for _ in 0..6 {
            tokio::time::sleep(self.assignment.lease / 4).await;
            self.recorder.renewed(attempt, guard);
        }
    }

    /// Asks the resource.
    async fn ask(&mut self, question: &WorkerMessage) -> Result<Answer, Failure> {
        send(question);
        self.answers.recv().await.ok_or_else(|| "the resource is gone".into())
    }

    /// Gives a call of the library its own limit and a good while more.
    async fn within<T>(
        &self,
        limit: Duration,
        attempt: u64,
        call: &str,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let answer = timeout(limit, future).await.ok();
        if answer.is_none() {
            send(&WorkerMessage::Hung { attempt, call: call.to_owned() });
        }
        answer
    }

    /// A planted bug: holds a name for long, and ends.
    async fn leave_an_orphan(&self) -> Result<usize, Failure> {
        let options = LockOptions::default().with_lease_duration(Duration::from_secs(30));
        // One is enough, and there must be one: what a worker that ended before had queued for may
        // still be handed to it.
        let options = options.with_wait(self.assignment.wait);
        let grant = self.client.mutex_with(&self.assignment.names[0], &options)?.lock().await;
        if let Ok(grant) = &grant {
            // The short lease of a hand-off would end by itself.
            grant.renew().await?;
        }
        std::mem::forget(grant);
        Ok(0)
    }
}

fn erred(attempt: u64, error: &LockError) {
    let expected = may_be(error.kind());
    // All others are reported in full.
    let kind = if expected { error.kind().word() } else { "other" }.to_owned();
    send(&WorkerMessage::Erred { attempt, kind, message: error.to_string(), expected });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_errors_under_faults_are_distinguished_from_others() {
        for (kind, may) in [
            (ErrorKind::Unavailable { message: String::new() }, true),
            (ErrorKind::TimedOut { waited: Duration::ZERO, holder: None }, true),
            (ErrorKind::NotInitialised, true),
            (ErrorKind::Foreign { found: String::new() }, false),
            (ErrorKind::Protocol { message: String::new() }, false),
            (ErrorKind::Refused { message: String::new() }, false),
        ] {
            assert_eq!(may_be(&kind), may, "{kind:?}");
        }
    }
}
