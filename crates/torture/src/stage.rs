//! The state of the process that runs the torture: the registers, the workers' messages, and what
//! each worker is doing.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdline::clock::SystemClock;
use holdline_core::{Clock, ClockKind, FencingToken, LockName, Moment};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Notify;

use crate::checker::{Event, Seen};
use crate::history::{ATTEMPTS, Note};
use crate::register::{Answer, Contender, Register};
use crate::wire::WorkerMessage;

/// How many messages of one kind are kept in full.
const MESSAGES: usize = 5;

/// What everybody who runs the torture shares.
pub(crate) struct Stage {
    pub(crate) clock: SystemClock,
    pub(crate) names: Vec<LockName>,
    state: Mutex<TortureState>,
    changed: Notify,
}

/// What a worker is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// It connects, or has ended.
    Away,
    /// It waits for a name, or is between two.
    Contending,
    /// It has read, and has not written.
    Thinking { attempt: u64, name: usize },
    /// It has given back what it held.
    Ended,
}

/// A slot: its workers run one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerSlot {
    pub(crate) at: At,
    /// The process, as long as it is unreaped: its number cannot be anybody else's.
    pub(crate) pid: Option<Pid>,
    /// The number of this worker, counted over all slots.
    pub(crate) serial: u64,
}

/// An attempt that has not ended.
#[derive(Clone, Copy, Debug)]
struct OpenAttempt {
    name: usize,
    called: Moment,
    granted: Option<Moment>,
}

/// What is known of the run so far.
#[derive(Default)]
pub(crate) struct TortureState {
    pub(crate) registers: Vec<Register>,
    pub(crate) events: Vec<Event>,
    pub(crate) notes: Vec<Note>,
    pub(crate) slots: Vec<WorkerSlot>,
    open: HashMap<u64, OpenAttempt>,
    pub(crate) acquisitions: u64,
    /// By name, who wrote last.
    pub(crate) last_writer: Vec<Option<u64>>,
    /// How often attempts failed, by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Failures that no fault explains.
    pub(crate) unexpected: Vec<String>,
    pub(crate) hung: Vec<String>,
    /// Grants that a worker could not give back, as far as it knows.
    pub(crate) left: usize,
    /// Failures of the run itself.
    pub(crate) failures: Vec<String>,
}

impl Stage {
    pub(crate) fn new(names: Vec<LockName>, slots: usize, accepts_all: bool) -> io::Result<Stage> {
        let state = TortureState {
            registers: names.iter().map(|_| Register::new(accepts_all)).collect(),
            last_writer: vec![None; names.len()],
            slots: vec![WorkerSlot { at: At::Away, pid: None, serial: 0 }; slots],
            ..TortureState::default()
        };
        let clock = SystemClock::new(ClockKind::Boottime)?;
        Ok(Stage { clock, names, state: Mutex::new(state), changed: Notify::new() })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, TortureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the results after all workers have ended.
    pub(crate) fn take(&self) -> TortureState {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Handles a message of a worker; returns the resource's reply.
    pub(crate) fn receive(&self, slot: usize, message: WorkerMessage) -> Option<Answer> {
        let now = self.now();
        let answer = self.lock().receive(&self.names, slot, message, now);
        self.changed.notify_waiters();
        answer
    }

    /// Notes that a worker has begun, or was reaped.
    pub(crate) fn slot(&self, slot: usize, pid: Option<Pid>, serial: u64) {
        self.lock().slots[slot] = WorkerSlot { at: At::Away, pid, serial };
        self.changed.notify_waiters();
    }

    pub(crate) fn note(&self, note: Note) {
        self.lock().notes.push(note);
    }

    pub(crate) fn failed(&self, why: String) {
        self.lock().failures.push(why);
        self.changed.notify_waiters();
    }

    /// Sends a signal to the worker of a slot; false if it has none.
    pub(crate) fn signal(&self, slot: usize, signal: Signal) -> bool {
        let state = self.lock();
        let pid = state.slots[slot].pid;
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Waits until something is so; `None` if it was not within the limit.
    pub(crate) async fn until<T>(
        &self,
        limit: Duration,
        mut found: impl FnMut(&TortureState) -> Option<T>,
    ) -> Option<T> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so that a change in between is not missed.
            changed.as_mut().enable();
            if let Some(found) = found(&self.lock()) {
                return Some(found);
            }
            tokio::time::timeout_at(end, changed).await.ok()?;
        }
    }

    /// Ends the attempts of a worker that was killed; what it held was certain until `at`.
    pub(crate) fn killed(&self, serial: u64, at: Moment) {
        let mut state = self.lock();
        let of_it = |attempt: &u64| attempt / ATTEMPTS == serial;
        let mut attempts: Vec<u64> = state.open.keys().copied().filter(of_it).collect();
        attempts.sort_unstable();
        for attempt in attempts {
            state.open.remove(&attempt);
            state.events.push(Event { at, attempt, seen: Seen::Killed });
        }
    }
}

impl TortureState {
    fn receive(
        &mut self,
        names: &[LockName],
        slot: usize,
        message: WorkerMessage,
        now: Moment,
    ) -> Option<Answer> {
        match message {
            WorkerMessage::Ready => self.slots[slot].at = At::Contending,
            WorkerMessage::Saw(event) => self.saw(names, event),
            WorkerMessage::Read { attempt, token } => return Some(self.read(slot, attempt, token)),
            WorkerMessage::Write { attempt, token, base } => {
                return Some(self.write(slot, attempt, token, base, now));
            }
            WorkerMessage::Erred { kind, message, expected, attempt } => {
                *self.errors.entry(kind).or_default() += 1;
                if !expected && self.unexpected.len() < MESSAGES {
                    self.unexpected.push(format!("attempt {attempt}: {message}"));
                }
            }
            WorkerMessage::Hung { attempt, call } => {
                self.hung.push(format!("attempt {attempt}: {call} did not come back"));
            }
            WorkerMessage::Ended { left } => {
                self.slots[slot].at = At::Ended;
                self.left += left;
            }
            WorkerMessage::Failed(why) => self.failures.push(format!("a worker: {why}")),
        }
        None
    }

    fn saw(&mut self, names: &[LockName], event: Event) {
        match &event.seen {
            Seen::Called { name, .. } => {
                let Some(name) = names.iter().position(|known| known == name) else {
                    return self.failures.push(format!("a worker asked for {name}"));
                };
                let open = OpenAttempt { name, called: event.at, granted: None };
                self.open.insert(event.attempt, open);
            }
            Seen::Granted { .. } => {
                self.acquisitions += 1;
                if let Some(open) = self.open.get_mut(&event.attempt) {
                    open.granted = Some(event.at);
                }
            }
            Seen::Failed | Seen::Released | Seen::Lost => {
                self.open.remove(&event.attempt);
            }
            _ => {}
        }
        self.events.push(event);
    }

    fn contender(&mut self, attempt: u64, token: FencingToken) -> Option<(usize, Contender)> {
        let open = self.open.get(&attempt);
        let found = open.and_then(|open| Some((open.name, open.called, open.granted?)));
        if found.is_none() {
            self.failures.push(format!("attempt {attempt} is at the resource and holds nothing"));
        }
        let (name, called, granted) = found?;
        Some((name, Contender { attempt, token, called, granted }))
    }

    fn read(&mut self, slot: usize, attempt: u64, token: FencingToken) -> Answer {
        let Some((name, contender)) = self.contender(attempt, token) else { return NOTHING };
        self.slots[slot].at = At::Thinking { attempt, name };
        self.registers[name].read(contender)
    }

    fn write(
        &mut self,
        slot: usize,
        attempt: u64,
        token: FencingToken,
        base: Answer,
        now: Moment,
    ) -> Answer {
        let Some((name, contender)) = self.contender(attempt, token) else { return NOTHING };
        self.slots[slot].at = At::Contending;
        self.last_writer[name] = Some(attempt);
        if let Some(accepted) = self.registers[name].write(contender, base, now) {
            let seen = Seen::Wrote { sent: now, token, accepted };
            self.events.push(Event { at: now, attempt, seen });
        }
        NOTHING
    }
}

/// The answer to a write, which needs none but that it has arrived.
const NOTHING: Answer = Answer { fenced: None, unfenced: 0 };
