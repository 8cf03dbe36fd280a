//! Contenders in processes of their own, which are stopped and killed.
//!
//! A worker takes orders and tells what it sees ([`crate::orders`]); all that the workers of a
//! case tell is one history, which must also please the checker. Nothing here sleeps: every step
//! waits for something to be told, with a deadline that a slow machine meets easily.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdline_core::{Capabilities, Expiry, LockName};
use rustix::process::{Pid, Signal, kill_process};

use crate::case::{Feature, Promise};
use crate::checker::{Event, Seen};
use crate::failure::{Failure, ensure};
use crate::orders::{Order, Told};
use crate::recorder::Recorder;
use crate::report::{Line, Report, Status};
use crate::storm::judge;

/// How long to wait for what must happen: far longer than it takes, and far shorter than
/// [`LONG`], so that what only the end of a long lease brings about does not pass.
const DEADLINE: Duration = Duration::from_secs(30);
/// A lease that nothing here outlives.
const LONG: Duration = Duration::from_secs(300);
/// A lease that is outlived on purpose.
const SHORT: Duration = Duration::from_secs(1);
/// How many processes contend, and how often each takes the name.
const CONTENDERS: u64 = 50;
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
        name: "a holder stopped past its lease is told, and its late write is refused",
        needs: Feature::Fencing,
        timed: true,
        run: holder_stopped,
    },
    Case {
        promise: Promise::P8,
        name: "a waiter that was stopped is passed over, and served after it queued anew",
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
    let lines = CASES.iter().map(|case| Line {
        promise: Some(case.promise),
        name: case.name.to_owned(),
        status: run_case(store, case),
    });
    Report {
        store: format!("{}, processes", store.capabilities.engine),
        command: store.command.clone(),
        lines: lines.collect(),
    }
}

/// Runs the one case of this name; `None` when there is none. Blocks.
pub fn run_one(store: &Reachable, name: &str) -> Option<Status> {
    CASES.iter().find(|case| case.name == name).map(|case| run_case(store, case))
}

fn run_case(store: &Reachable, case: &Case) -> Status {
    if !case.needs.is_in(&store.capabilities) {
        // Whether asking for it is refused is asserted where one process suffices.
        return Status::Unsupported(vec![case.needs]);
    }
    if case.timed && store.capabilities.expiry == Expiry::Live {
        return Status::Impossible("no lease here ends by time");
    }
    let stage = match Stage::new(store, case.name) {
        Ok(stage) => stage,
        Err(failure) => return Status::Failed(failure.to_string()),
    };
    // All workers of the case have ended with it, and nobody waited any more; what they said last
    // may still be in a pipe.
    let done = (case.run)(&stage).and_then(|()| stage.told.drained());
    let events = stage.told.events();
    // What the checker sees is told beside what the case sees; attempts that a case which failed
    // has left under way are no news.
    let judged = judge(&events, store.capabilities.fair);
    match (done, judged) {
        (Ok(()), Ok(())) => Status::Ran(format!("{} events", events.len())),
        (Err(failure), Ok(())) | (Ok(()), Err(failure)) => Status::Failed(failure.to_string()),
        (Err(failure), Err(judged)) => Status::Failed(format!("{failure}; {judged}")),
    }
}

/// Where one case happens: a name, a file, and what all its workers have told.
struct Stage {
    store: Reachable,
    name: LockName,
    file: PathBuf,
    told: Arc<Board>,
    clock: Recorder,
}

/// What workers have told.
#[derive(Default)]
struct Board {
    told: Mutex<Heard>,
    more: Condvar,
}

#[derive(Default)]
struct Heard {
    events: Vec<Event>,
    ready: usize,
    done: usize,
    failures: Vec<String>,
    /// How many workers may still say something.
    open: usize,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, told: Told) {
        let mut heard = self.lock();
        match told {
            Told::Ready => heard.ready += 1,
            Told::Saw(event) => heard.events.push(event),
            Told::Done => heard.done += 1,
            Told::Failed(why) => heard.failures.push(why),
        }
        drop(heard);
        self.more.notify_all();
    }

    /// Waits until everything that workers said before they ended is heard.
    fn drained(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + DEADLINE;
        let mut heard = self.lock();
        while heard.open > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "{} workers did not end within {DEADLINE:?}", heard.open);
            let waited = self.more.wait_timeout(heard, left);
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        ensure!(heard.failures.is_empty(), "a worker: {}", heard.failures.join("; "));
        Ok(())
    }

    fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Waits until the workers have told what is wanted.
    #[track_caller]
    fn wait<T>(&self, wanted: &str, found: impl Fn(&Heard) -> Option<T>) -> Result<T, Failure> {
        let deadline = Instant::now() + DEADLINE;
        let mut heard = self.lock();
        loop {
            if let Some(failure) = heard.failures.first() {
                return Err(Failure::new(format_args!("a worker: {failure}")));
            }
            if let Some(found) = found(&heard) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::new(format_args!("not within {DEADLINE:?}: {wanted}")));
            }
            let waited = self.more.wait_timeout(heard, left);
            heard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until an attempt has seen something.
    #[track_caller]
    fn saw(&self, attempt: u64, wanted: &str, is: impl Fn(&Seen) -> bool) -> Result<(), Failure> {
        self.wait(&format!("attempt {attempt} {wanted}"), |heard| {
            let mut events = heard.events.iter();
            events.any(|event| event.attempt == attempt && is(&event.seen)).then_some(())
        })
    }

    #[track_caller]
    fn granted(&self, attempt: u64) -> Result<(), Failure> {
        self.saw(attempt, "is granted", |seen| matches!(seen, Seen::Granted { .. }))
    }

    #[track_caller]
    fn queued(&self, attempt: u64) -> Result<(), Failure> {
        self.saw(attempt, "is queued", |seen| matches!(seen, Seen::Queued))
    }

    #[track_caller]
    fn wrote(&self, attempt: u64, right: bool) -> Result<(), Failure> {
        let wanted = if right { "writes" } else { "writes and is refused" };
        self.saw(
            attempt,
            wanted,
            |seen| matches!(seen, Seen::Wrote { accepted, .. } if *accepted == right),
        )
    }
}

/// A worker process; it is ended when this is dropped.
struct Worker {
    child: Child,
    /// `None` when it is to end.
    orders: Option<ChildStdin>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It ends by itself when no more orders can come; a stopped one never does.
        self.orders = None;
        let deadline = Instant::now() + DEADLINE / 3;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(store: &Reachable, board: &Arc<Board>) -> Result<Worker, Failure> {
        let mut child = Command::new(&store.worker)
            .arg(&store.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(format_args!("{}: {error}", store.worker.display())))?;
        let (Some(orders), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("a worker without pipes"));
        };
        board.lock().open += 1;
        let board = board.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                board.hear(serde_json::from_str(&line).unwrap_or_else(|error| {
                    Told::Failed(format!("{error} in what it said: {line}"))
                }));
            }
            board.lock().open -= 1;
            board.more.notify_all();
        });
        Ok(Worker { child, orders: Some(orders) })
    }

    fn order(&mut self, order: &Order) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(order).map_err(Failure::new)?;
        line.push(b'\n');
        let Some(orders) = &mut self.orders else {
            return Err(Failure::new("a worker that has ended"));
        };
        orders.write_all(&line).and_then(|()| orders.flush()).map_err(Failure::new)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("a worker without a process id"))?;
        kill_process(pid, signal).map_err(Failure::new)
    }
}

impl Stage {
    fn new(store: &Reachable, case: &str) -> Result<Stage, Failure> {
        let number = CASES.iter().position(|one| one.name == case).unwrap_or_default();
        let name = LockName::new(format!("processes/{}/{number}", std::process::id()));
        Ok(Stage {
            name: name.map_err(Failure::new)?,
            file: store.directory.join(format!("written-{number}")),
            store: store.clone(),
            told: Arc::default(),
            clock: Recorder::new(drop).map_err(Failure::new)?,
        })
    }

    /// Starts workers and waits until all are connected.
    fn workers(&self, count: u64) -> Result<Vec<Worker>, Failure> {
        let ready = self.told.lock().ready;
        let workers: Result<Vec<Worker>, Failure> =
            (0..count).map(|_| Worker::start(&self.store, &self.told)).collect();
        let all = ready + usize::try_from(count).unwrap_or(usize::MAX);
        self.told.wait("all workers are ready", |heard| (heard.ready == all).then_some(()))?;
        workers
    }

    fn lock(&self, worker: &mut Worker, attempt: u64, lease: Duration) -> Result<(), Failure> {
        let lease_ms = Some(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        worker.order(&Order::Lock { attempt, name: self.name.clone(), lease_ms })
    }

    fn lock_live(&self, worker: &mut Worker, attempt: u64) -> Result<(), Failure> {
        worker.order(&Order::Lock { attempt, name: self.name.clone(), lease_ms: None })
    }

    fn write(&self, worker: &mut Worker, attempt: u64) -> Result<(), Failure> {
        worker.order(&Order::Write { attempt, path: self.file.clone() })
    }

    /// Kills a worker. What it held was certain until just before.
    fn kill(&self, mut worker: Worker, attempt: u64) -> Result<(), Failure> {
        let at = self.clock.now();
        worker.child.kill().map_err(Failure::new)?;
        worker.child.wait().map_err(Failure::new)?;
        self.told.hear(Told::Saw(Event { at, attempt, seen: Seen::Killed }));
        Ok(())
    }
}

fn release(worker: &mut Worker, attempt: u64) -> Result<(), Failure> {
    worker.order(&Order::Release { attempt })
}

fn lines_of(file: &Path) -> Result<usize, Failure> {
    let text = std::fs::read_to_string(file).map_err(Failure::new)?;
    // The first line is the fence's own.
    Ok(text.lines().count().saturating_sub(1))
}

fn fifty_contend(stage: &Stage) -> Result<(), Failure> {
    let mut workers = stage.workers(CONTENDERS)?;
    let lease_ms = u64::try_from(LONG.as_millis()).unwrap_or(u64::MAX);
    for (worker, number) in workers.iter_mut().zip(0..) {
        let (name, path) = (stage.name.clone(), stage.file.clone());
        let first = number * CYCLES;
        worker.order(&Order::Cycle { first, count: CYCLES, name, lease_ms, path })?;
    }
    let all = workers.len();
    stage.told.wait("all 50 are done", |heard| (heard.done == all).then_some(()))?;
    let (written, expected) = (lines_of(&stage.file)?, CONTENDERS * CYCLES);
    ensure!(written as u64 == expected, "{written} of {expected} writes are in the file");
    Ok(())
}

fn holder_killed(stage: &Stage) -> Result<(), Failure> {
    let Ok([mut holder, mut next]) = <[Worker; 2]>::try_from(stage.workers(2)?) else {
        return Err(Failure::new("two workers were wanted"));
    };
    // With a long lease only the death itself can free the name in time.
    let lease = if stage.store.sees_death { LONG } else { SHORT };
    stage.lock(&mut holder, 1, lease)?;
    stage.told.granted(1)?;
    stage.lock(&mut next, 2, LONG)?;
    stage.told.queued(2)?;
    stage.kill(holder, 1)?;
    stage.told.granted(2)
}

fn live_holder_killed(stage: &Stage) -> Result<(), Failure> {
    let Ok([mut holder, mut next]) = <[Worker; 2]>::try_from(stage.workers(2)?) else {
        return Err(Failure::new("two workers were wanted"));
    };
    stage.lock_live(&mut holder, 1)?;
    stage.told.granted(1)?;
    stage.lock(&mut next, 2, LONG)?;
    stage.told.queued(2)?;
    stage.kill(holder, 1)?;
    stage.told.granted(2)
}

fn waiter_killed(stage: &Stage) -> Result<(), Failure> {
    let Ok([mut holder, mut dead, mut next]) = <[Worker; 3]>::try_from(stage.workers(3)?) else {
        return Err(Failure::new("three workers were wanted"));
    };
    stage.lock(&mut holder, 1, LONG)?;
    stage.told.granted(1)?;
    stage.lock(&mut dead, 2, LONG)?;
    stage.told.queued(2)?;
    stage.lock(&mut next, 3, LONG)?;
    stage.told.queued(3)?;
    stage.kill(dead, 2)?;
    release(&mut holder, 1)?;
    stage.told.granted(3)
}

fn holder_stopped(stage: &Stage) -> Result<(), Failure> {
    let Ok([mut stopped, mut next]) = <[Worker; 2]>::try_from(stage.workers(2)?) else {
        return Err(Failure::new("two workers were wanted"));
    };
    stage.lock(&mut stopped, 1, SHORT)?;
    stage.told.granted(1)?;
    stage.write(&mut stopped, 1)?;
    stage.told.wrote(1, true)?;
    stopped.signal(Signal::STOP)?;
    stage.lock(&mut next, 2, LONG)?;
    stage.told.granted(2)?;
    stage.write(&mut next, 2)?;
    stage.told.wrote(2, true)?;
    stopped.signal(Signal::CONT)?;
    stage.write(&mut stopped, 1)?;
    stage.told.wrote(1, false)?;
    stage.told.saw(1, "is told that it lost the lease", |seen| matches!(seen, Seen::Lost))?;
    let written = lines_of(&stage.file)?;
    ensure!(written == 2, "two writes were accepted, and {written} are in the file");
    Ok(())
}

fn waiter_stopped(stage: &Stage) -> Result<(), Failure> {
    let Ok([mut holder, mut stopped, mut next]) = <[Worker; 3]>::try_from(stage.workers(3)?) else {
        return Err(Failure::new("three workers were wanted"));
    };
    stage.lock(&mut holder, 1, LONG)?;
    stage.told.granted(1)?;
    stage.lock(&mut stopped, 2, LONG)?;
    stage.told.queued(2)?;
    stage.lock(&mut next, 3, LONG)?;
    stage.told.queued(3)?;
    stopped.signal(Signal::STOP)?;
    release(&mut holder, 1)?;
    stage.told.granted(3)?;
    stopped.signal(Signal::CONT)?;
    stage.told.wait("attempt 2 queues anew", |heard| {
        let queued = |event: &&Event| event.attempt == 2 && event.seen == Seen::Queued;
        (heard.events.iter().filter(queued).count() == 2).then_some(())
    })?;
    release(&mut next, 3)?;
    stage.told.granted(2)
}

fn served_in_order(stage: &Stage) -> Result<(), Failure> {
    let mut workers = stage.workers(10)?;
    for (worker, attempt) in workers.iter_mut().zip(1..) {
        stage.lock(worker, attempt, LONG)?;
        if attempt == 1 {
            stage.told.granted(attempt)?;
        } else {
            stage.told.queued(attempt)?;
        }
    }
    for (worker, attempt) in workers.iter_mut().zip(1..) {
        stage.told.granted(attempt)?;
        release(worker, attempt)?;
    }
    let order: Vec<u64> = stage
        .told
        .events()
        .iter()
        .filter(|event| matches!(event.seen, Seen::Granted { .. }))
        .map(|event| event.attempt)
        .collect();
    ensure!(order.is_sorted(), "served in the order {order:?}");
    Ok(())
}
