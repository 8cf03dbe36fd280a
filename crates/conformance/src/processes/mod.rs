//! Contenders in processes of their own, which are stopped and killed.
//!
//! A worker takes orders and reports what it sees ([`crate::orders`]). The reports of all workers
//! of a case are one history, which the checker judges too. Nothing here sleeps: every step waits
//! for a message, with a deadline that a slow machine meets easily.

mod stage;

use std::path::PathBuf;
use std::time::Duration;

use holdline_core::{Capabilities, Expiry};
use rustix::process::Signal;

use crate::case::{Feature, Promise};
use crate::checker::{Event, Rules, Seen};
use crate::failure::{Failure, ensure};
use crate::orders::Order;
use crate::report::{Report, Row, Status};
use crate::storm::judge;
use stage::{Stage, lines_of, release};

/// A lease that nothing here outlives: the stage waits for much less.
const LONG: Duration = Duration::from_secs(300);
/// A lease that is outlived on purpose.
const SHORT: Duration = Duration::from_secs(1);
/// How many processes contend, and how often each takes the name.
const CONTENDERS: usize = 50;
const CYCLES: u64 = 4;

/// A store that other processes reach by URL, and what is needed to judge it so.
#[derive(Clone, Debug)]
pub struct Reachable {
    /// The binary `holdline-conformance-worker`.
    pub worker: PathBuf,
    /// The store. Every process may open it.
    pub url: String,
    /// An empty directory of this machine, for the files that are written under the lock.
    pub directory: PathBuf,
    /// What the engine can do.
    pub capabilities: Capabilities,
    /// The store sees at once that a process has died, and not only when its leases end.
    pub sees_death: bool,
    /// The one command that runs this again.
    pub command: String,
}

impl Reachable {
    /// Returns a lease that no case outlives, if the store supports one that long.
    fn long(&self) -> Duration {
        LONG.min(self.capabilities.lease.max)
    }

    /// Returns the lease of a waiter that is to fall silent: where leases end by session, it keeps
    /// its place as long as that lasts.
    fn of_waiter(&self) -> Duration {
        match self.capabilities.expiry {
            Expiry::Session => SHORT * 4,
            Expiry::Lease | Expiry::Live => self.long(),
        }
    }
}

/// One case with processes.
struct Case {
    promise: Promise,
    name: &'static str,
    needs: Feature,
    /// Whether it is about a lease that ends by time.
    timed: bool,
    run: fn(&Stage) -> Result<(), Failure>,
}

const CASES: [Case; 7] = [
    Case {
        promise: Promise::P1,
        name: "of 50 processes one holds at a time, and no write is lost",
        needs: Feature::Fencing,
        timed: false,
        run: fifty_contend,
    },
    Case {
        promise: Promise::P3,
        name: "kill -9 of the holder frees the name",
        needs: Feature::Fencing,
        timed: false,
        run: holder_killed,
    },
    Case {
        promise: Promise::P3,
        name: "kill -9 of its only process ends a live grant",
        needs: Feature::Live,
        timed: false,
        run: live_holder_killed,
    },
    Case {
        promise: Promise::P8,
        name: "kill -9 of a waiter costs the next one little",
        needs: Feature::Queue,
        timed: false,
        run: waiter_killed,
    },
    Case {
        promise: Promise::P6,
        name: "a holder stopped past its lease is notified, and its late write is rejected",
        needs: Feature::Fencing,
        timed: true,
        run: holder_stopped,
    },
    Case {
        promise: Promise::P8,
        name: "a waiter that was stopped is skipped, and served after it queued anew",
        needs: Feature::Queue,
        timed: false,
        run: waiter_stopped,
    },
    Case {
        promise: Promise::P8,
        name: "processes are served in the order in which they queued",
        needs: Feature::Fair,
        timed: false,
        run: served_in_order,
    },
];

/// Runs the cases with processes. Blocks: call it outside of async code.
pub fn run(store: &Reachable) -> Report {
    let rows = CASES.iter().enumerate().map(|(number, case)| Row {
        promise: Some(case.promise),
        name: case.name.to_owned(),
        status: run_case(store, number, case),
    });
    Report {
        store: format!("{}, processes", store.capabilities.engine),
        command: store.command.clone(),
        rows: rows.collect(),
    }
}

/// Runs the one case of this name; `None` when there is none. Blocks.
pub fn run_one(store: &Reachable, name: &str) -> Option<Status> {
    let found = CASES.iter().enumerate().find(|(_, case)| case.name == name);
    found.map(|(number, case)| run_case(store, number, case))
}

fn run_case(store: &Reachable, number: usize, case: &Case) -> Status {
    if !case.needs.is_in(&store.capabilities) {
        // Whether asking for it is refused is asserted where one process suffices.
        return Status::Unsupported(vec![case.needs]);
    }
    if case.timed && store.capabilities.expiry == Expiry::Live {
        return Status::Impossible("no lease here ends by time");
    }
    let stage = match Stage::new(store, number) {
        Ok(stage) => stage,
        Err(failure) => return Status::Failed(failure.to_string()),
    };
    // All workers of the case have ended with it, and none waited any more; their last messages
    // may still be in a pipe.
    let done = (case.run)(&stage).and_then(|()| stage.messages.drained());
    let events = stage.messages.events();
    // The checker's findings are reported beside the case's; attempts that a failed case
    // has left under way are no news.
    let judged = judge(&events, Rules::of(&store.capabilities));
    match (done, judged) {
        (Ok(()), Ok(())) => Status::Ran(format!("{} events", events.len())),
        (Err(failure), Ok(())) | (Ok(()), Err(failure)) => Status::Failed(failure.to_string()),
        (Err(failure), Err(judged)) => Status::Failed(format!("{failure}; {judged}")),
    }
}

fn fifty_contend(stage: &Stage) -> Result<(), Failure> {
    let mut workers = stage.workers::<CONTENDERS>()?;
    let lease_ms = u64::try_from(stage.store.long().as_millis()).unwrap_or(u64::MAX);
    for (worker, number) in workers.iter_mut().zip(0..) {
        let name = stage.name.clone();
        let path = stage.file.clone();
        let first = number * CYCLES;
        worker.order(&Order::Cycle { first, count: CYCLES, name, lease_ms, path })?;
    }
    let all = workers.len();
    stage.messages.wait("all 50 are done", |received| (received.done == all).then_some(()))?;
    let written = lines_of(&stage.file)?;
    let expected = CONTENDERS as u64 * CYCLES;
    ensure!(written as u64 == expected, "{written} of {expected} writes are in the file");
    Ok(())
}

fn holder_killed(stage: &Stage) -> Result<(), Failure> {
    let [mut holder, mut next] = stage.workers()?;
    // With a long lease only the death itself can free the name in time.
    let lease = if stage.store.sees_death { stage.store.long() } else { SHORT };
    stage.lock(&mut holder, 1, lease)?;
    stage.messages.granted(1)?;
    stage.lock(&mut next, 2, stage.store.long())?;
    stage.messages.queued(2)?;
    stage.kill(holder, 1)?;
    stage.messages.granted(2)
}

fn live_holder_killed(stage: &Stage) -> Result<(), Failure> {
    let [mut holder, mut next] = stage.workers()?;
    stage.lock_live(&mut holder, 1)?;
    stage.messages.granted(1)?;
    stage.lock(&mut next, 2, stage.store.long())?;
    stage.messages.queued(2)?;
    stage.kill(holder, 1)?;
    stage.messages.granted(2)
}

fn waiter_killed(stage: &Stage) -> Result<(), Failure> {
    let [mut holder, mut dead, mut next] = stage.workers()?;
    stage.lock(&mut holder, 1, stage.store.long())?;
    stage.messages.granted(1)?;
    stage.lock(&mut dead, 2, stage.store.of_waiter())?;
    stage.messages.queued(2)?;
    stage.lock(&mut next, 3, stage.store.long())?;
    stage.messages.queued(3)?;
    stage.kill(dead, 2)?;
    release(&mut holder, 1)?;
    stage.messages.granted(3)
}

fn holder_stopped(stage: &Stage) -> Result<(), Failure> {
    let [mut stopped, mut next] = stage.workers()?;
    stage.lock(&mut stopped, 1, SHORT)?;
    stage.messages.granted(1)?;
    stage.write(&mut stopped, 1)?;
    stage.messages.wrote(1, true)?;
    stopped.signal(Signal::STOP)?;
    stage.lock(&mut next, 2, stage.store.long())?;
    stage.messages.granted(2)?;
    stage.write(&mut next, 2)?;
    stage.messages.wrote(2, true)?;
    stopped.signal(Signal::CONT)?;
    stage.write(&mut stopped, 1)?;
    stage.messages.wrote(1, false)?;
    stage.messages.saw(1, "learns that it lost the lease", |seen| matches!(seen, Seen::Lost))?;
    let written = lines_of(&stage.file)?;
    ensure!(written == 2, "two writes were accepted, and {written} are in the file");
    Ok(())
}

fn waiter_stopped(stage: &Stage) -> Result<(), Failure> {
    let [mut holder, mut stopped, mut next] = stage.workers()?;
    stage.lock(&mut holder, 1, stage.store.long())?;
    stage.messages.granted(1)?;
    stage.lock(&mut stopped, 2, stage.store.of_waiter())?;
    stage.messages.queued(2)?;
    stage.lock(&mut next, 3, stage.store.long())?;
    stage.messages.queued(3)?;
    stopped.signal(Signal::STOP)?;
    release(&mut holder, 1)?;
    stage.messages.granted(3)?;
    stopped.signal(Signal::CONT)?;
    stage.messages.wait("attempt 2 queues anew", |received| {
        let queued = |event: &&Event| event.attempt == 2 && event.seen == Seen::Queued;
        (received.events.iter().filter(queued).count() == 2).then_some(())
    })?;
    release(&mut next, 3)?;
    stage.messages.granted(2)
}

fn served_in_order(stage: &Stage) -> Result<(), Failure> {
    let mut workers = stage.workers::<10>()?;
    for (worker, attempt) in workers.iter_mut().zip(1..) {
        stage.lock(worker, attempt, stage.store.long())?;
        if attempt == 1 {
            stage.messages.granted(attempt)?;
        } else {
            stage.messages.queued(attempt)?;
        }
    }
    for (worker, attempt) in workers.iter_mut().zip(1..) {
        stage.messages.granted(attempt)?;
        release(worker, attempt)?;
    }
    let order: Vec<u64> = stage
        .messages
        .events()
        .iter()
        .filter(|event| matches!(event.seen, Seen::Granted { .. }))
        .map(|event| event.attempt)
        .collect();
    ensure!(order.is_sorted(), "served in the order {order:?}");
    Ok(())
}
