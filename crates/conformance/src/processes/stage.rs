//! The stage of a case: worker processes, orders to them, and the messages that they send.
//!
//! Every wait is for a message of a worker, or for its end, with a deadline that a slow machine
//! meets easily.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdline_core::LockName;
use rustix::process::{Pid, Signal, kill_process};

use super::Reachable;
use crate::checker::{Event, Seen};
use crate::failure::{Failure, ensure};
use crate::orders::{Order, WorkerMessage};
use crate::recorder::Recorder;

/// How long to wait for what must happen: far longer than it takes, and far shorter than the
/// lease that nothing outlives, so that what only the end of such a lease brings about fails.
const DEADLINE: Duration = Duration::from_secs(120);

/// The environment of one case: a name, a file, and the messages of all its workers.
pub(super) struct Stage {
    pub(super) store: Reachable,
    pub(super) name: LockName,
    pub(super) file: PathBuf,
    pub(super) messages: Arc<Messages>,
    clock: Recorder,
}

/// The messages of workers.
#[derive(Default)]
pub(super) struct Messages {
    messages: Mutex<Received>,
    more: Condvar,
}

#[derive(Default)]
pub(super) struct Received {
    pub(super) events: Vec<Event>,
    ready: usize,
    pub(super) done: usize,
    failures: Vec<String>,
    /// How many workers may still say something.
    open: usize,
}

impl Messages {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn receive(&self, message: WorkerMessage) {
        let mut received = self.lock();
        match message {
            WorkerMessage::Ready => received.ready += 1,
            WorkerMessage::Saw(event) => received.events.push(event),
            WorkerMessage::Done => received.done += 1,
            WorkerMessage::Failed(why) => received.failures.push(why),
        }
        drop(received);
        self.more.notify_all();
    }

    /// Waits until all messages that workers sent before they ended have arrived.
    pub(super) fn drained(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + DEADLINE;
        let mut received = self.lock();
        while received.open > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "{} workers did not end within {DEADLINE:?}", received.open);
            let waited = self.more.wait_timeout(received, left);
            received = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        ensure!(received.failures.is_empty(), "a worker: {}", received.failures.join("; "));
        Ok(())
    }

    pub(super) fn events(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Waits until the workers' messages contain what is wanted.
    #[track_caller]
    pub(super) fn wait<T>(
        &self,
        wanted: &str,
        found: impl Fn(&Received) -> Option<T>,
    ) -> Result<T, Failure> {
        let deadline = Instant::now() + DEADLINE;
        let mut received = self.lock();
        loop {
            if let Some(failure) = received.failures.first() {
                return Err(Failure::new(format_args!("a worker: {failure}")));
            }
            if let Some(found) = found(&received) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::new(format_args!("not within {DEADLINE:?}: {wanted}")));
            }
            let waited = self.more.wait_timeout(received, left);
            received = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until an attempt has seen something.
    #[track_caller]
    pub(super) fn saw(
        &self,
        attempt: u64,
        wanted: &str,
        is: impl Fn(&Seen) -> bool,
    ) -> Result<(), Failure> {
        self.wait(&format!("attempt {attempt} {wanted}"), |received| {
            let mut events = received.events.iter();
            events.any(|event| event.attempt == attempt && is(&event.seen)).then_some(())
        })
    }

    #[track_caller]
    pub(super) fn granted(&self, attempt: u64) -> Result<(), Failure> {
        self.saw(attempt, "is granted", |seen| matches!(seen, Seen::Granted { .. }))
    }

    #[track_caller]
    pub(super) fn queued(&self, attempt: u64) -> Result<(), Failure> {
        self.saw(attempt, "is queued", |seen| matches!(seen, Seen::Queued))
    }

    #[track_caller]
    pub(super) fn wrote(&self, attempt: u64, right: bool) -> Result<(), Failure> {
        let wanted = if right { "writes" } else { "writes and is refused" };
        self.saw(
            attempt,
            wanted,
            |seen| matches!(seen, Seen::Wrote { accepted, .. } if *accepted == right),
        )
    }
}

/// A worker process; it is ended when this is dropped.
pub(super) struct Worker {
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
    fn start(store: &Reachable, messages: &Arc<Messages>) -> Result<Worker, Failure> {
        let mut child = Command::new(&store.worker)
            .arg(&store.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new(format_args!("{}: {error}", store.worker.display())))?;
        let (Some(orders), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("a worker without pipes"));
        };
        messages.lock().open += 1;
        let messages = messages.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                messages.receive(serde_json::from_str(&line).unwrap_or_else(|error| {
                    WorkerMessage::Failed(format!("{error} in its message: {line}"))
                }));
            }
            messages.lock().open -= 1;
            messages.more.notify_all();
        });
        Ok(Worker { child, orders: Some(orders) })
    }

    pub(super) fn order(&mut self, order: &Order) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(order).map_err(Failure::new)?;
        line.push(b'\n');
        let Some(orders) = &mut self.orders else {
            return Err(Failure::new("a worker that has ended"));
        };
        orders.write_all(&line).and_then(|()| orders.flush()).map_err(Failure::new)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("a worker without a process id"))?;
        kill_process(pid, signal).map_err(Failure::new)
    }
}

impl Stage {
    /// Sets the stage for the case of this number.
    pub(super) fn new(store: &Reachable, number: usize) -> Result<Stage, Failure> {
        let name = LockName::new(format!("processes/{}/{number}", std::process::id()));
        Ok(Stage {
            name: name.map_err(Failure::new)?,
            file: store.directory.join(format!("written-{number}")),
            store: store.clone(),
            messages: Arc::default(),
            clock: Recorder::new(drop).map_err(Failure::new)?,
        })
    }

    /// Starts workers and waits until all are connected.
    pub(super) fn workers<const COUNT: usize>(&self) -> Result<[Worker; COUNT], Failure> {
        let all = self.messages.lock().ready + COUNT;
        let mut workers = Vec::with_capacity(COUNT);
        for _ in 0..COUNT {
            workers.push(Worker::start(&self.store, &self.messages)?);
        }
        self.messages
            .wait("all workers are ready", |received| (received.ready == all).then_some(()))?;
        workers.try_into().map_err(|_| Failure::new("not as many workers as were started"))
    }

    pub(super) fn lock(
        &self,
        worker: &mut Worker,
        attempt: u64,
        lease: Duration,
    ) -> Result<(), Failure> {
        let lease_ms = Some(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
        worker.order(&Order::Lock { attempt, name: self.name.clone(), lease_ms })
    }

    pub(super) fn lock_live(&self, worker: &mut Worker, attempt: u64) -> Result<(), Failure> {
        worker.order(&Order::Lock { attempt, name: self.name.clone(), lease_ms: None })
    }

    pub(super) fn write(&self, worker: &mut Worker, attempt: u64) -> Result<(), Failure> {
        worker.order(&Order::Write { attempt, path: self.file.clone() })
    }

    /// Kills a worker. What it held was certain until just before.
    pub(super) fn kill(&self, mut worker: Worker, attempt: u64) -> Result<(), Failure> {
        let at = self.clock.now();
        worker.child.kill().map_err(Failure::new)?;
        worker.child.wait().map_err(Failure::new)?;
        self.messages.receive(WorkerMessage::Saw(Event { at, attempt, seen: Seen::Killed }));
        Ok(())
    }
}

pub(super) fn release(worker: &mut Worker, attempt: u64) -> Result<(), Failure> {
    worker.order(&Order::Release { attempt })
}

pub(super) fn lines_of(file: &Path) -> Result<usize, Failure> {
    let text = std::fs::read_to_string(file).map_err(Failure::new)?;
    // The first line is the fence's own.
    Ok(text.lines().count().saturating_sub(1))
}
