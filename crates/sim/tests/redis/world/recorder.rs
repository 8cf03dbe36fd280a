//! Records what clients and the world do, and checks the promises after every step.
//!
//! The observer sees more than any client: what each holds, and the server's keys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdline::Held;
use holdline_core::{Mode, Moment};
use parking_lot::Mutex;

use super::tasks::Process;
use super::view::{NameView, Record};

/// A broken promise, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
    pub(crate) at: Moment,
}

/// A running attempt.
pub(crate) struct Attempt {
    pub(crate) process: Process,
    pub(crate) name: &'static str,
    pub(crate) started: Moment,
    /// It must have ended by then, unless its process was paused.
    pub(crate) due: Moment,
    pub(crate) what: &'static str,
    /// The largest token that was known for the name when it began.
    pub(crate) floor: u64,
}

/// A grant that a process holds, or held.
pub(crate) struct HeldLock {
    pub(crate) process: Process,
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    pub(crate) id: String,
    pub(crate) token: u64,
    pub(crate) began: Moment,
    pub(crate) held: Held,
    /// `lost()` has reported its loss.
    pub(crate) is_loss_reported: bool,
    pub(crate) invalid_since: Option<Moment>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessState {
    pub(crate) paused_since: Option<Moment>,
    /// The total time of its pauses.
    pub(crate) paused_for: Duration,
    pub(crate) awake_since: Moment,
    pub(crate) killed: Option<Moment>,
}

/// Everything that is recorded.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) log: String,
    next: u64,
    pub(crate) attempts: BTreeMap<u64, Attempt>,
    pub(crate) holds: BTreeMap<u64, HeldLock>,
    pub(crate) lives: BTreeMap<Process, ProcessState>,
    /// The process of each client id.
    pub(crate) clients: BTreeMap<String, Process>,
    tokens: BTreeMap<&'static str, BTreeSet<u64>>,
    /// The largest exclusive token of each name that was known to a holder.
    largest: BTreeMap<&'static str, u64>,
    pub(crate) violation: Option<Violation>,
    pub(crate) grants: u64,
    /// When the server last lost its data.
    pub(crate) forgot: Option<Moment>,
    /// When the server last got old data back. What it lacks ends grants, and lets nobody in.
    pub(crate) restored: Option<Moment>,
    /// When the server's clock was last set.
    pub(crate) clock_set: Option<Moment>,
    /// Tokens of grants that an operator has revoked.
    pub(crate) taken_now: BTreeSet<u64>,
    pub(crate) stopping: bool,
    /// The error of the server's clock rate.
    pub(crate) skew_ppm: i64,
}

pub(crate) type SharedRecorder = Arc<Mutex<Recorder>>;

impl Recorder {
    pub(crate) fn note(&mut self, now: Moment, line: &str) {
        use std::fmt::Write;
        let micros = now.as_nanos() / 1_000;
        let _ = writeln!(self.log, "{:>5}.{:06} {line}", micros / 1_000_000, micros % 1_000_000);
    }

    /// Keeps the first violation: later ones may be its consequence.
    pub(crate) fn record_violation(&mut self, now: Moment, promise: &'static str, what: String) {
        if self.violation.is_none() {
            self.note(now, &format!("BROKEN {promise}: {what}"));
            self.violation = Some(Violation { promise, what, at: now });
        }
    }

    pub(crate) fn begin(
        &mut self,
        now: Moment,
        process: Process,
        name: &'static str,
        what: &'static str,
        within: Duration,
    ) -> u64 {
        self.next += 1;
        let floor = self.largest.get(name).copied().unwrap_or(0);
        let paused = self.lives.get(&process).map_or(Duration::ZERO, |life| life.paused_for);
        // The checks subtract the pauses so far.
        let due = now.after(within).before(paused);
        let attempt = Attempt { process, name, started: now, due, what, floor };
        self.attempts.insert(self.next, attempt);
        self.note(now, &format!("{process} begins {what} {name} #{}", self.next));
        self.next
    }

    pub(crate) fn end(&mut self, now: Moment, attempt: u64, how: &str) {
        if let Some(attempt_of) = self.attempts.remove(&attempt) {
            let process = attempt_of.process;
            self.note(now, &format!("{process} ends #{attempt}: {how}"));
        }
    }

    /// Records an attempt that ended with a grant.
    pub(crate) fn grant(&mut self, now: Moment, attempt: u64, mode: Mode, held: Held, id: String) {
        let Some(of) = self.attempts.remove(&attempt) else { return };
        let (name, process, token) = (of.name, of.process, held.fencing_token().get());
        self.grants += 1;
        self.note(now, &format!("{process} holds {name} #{attempt} token {token}"));
        if !self.tokens.entry(name).or_default().insert(token) {
            self.record_violation(now, "P2", format!("{name}: token {token} was given twice"));
        }
        if mode == Mode::Exclusive {
            if token <= of.floor {
                let floor = of.floor;
                let what = format!("{name}: asked for after {floor} was known, granted {token}");
                self.record_violation(now, "P2", what);
            }
            let forgotten = self.excuses(of.started);
            let largest = self.largest.entry(name).or_default();
            if token < *largest && forgotten {
                // Two at once: the server has lost one or ended it too soon, and the order of
                // holding with it.
            } else if token < *largest {
                let largest = *largest;
                let what = format!("{name}: held after {largest}, granted {token}");
                self.record_violation(now, "P2", what);
            } else {
                *largest = token;
            }
        }
        let began = of.started;
        let hold = HeldLock {
            process,
            name,
            mode,
            id,
            token,
            began,
            held,
            is_loss_reported: false,
            invalid_since: None,
        };
        self.holds.insert(attempt, hold);
    }

    /// Records that a holder has let its lock go, in any way.
    pub(crate) fn released(&mut self, now: Moment, hold: u64, how: &str) {
        if let Some(of) = self.holds.remove(&hold) {
            let process = of.process;
            self.note(now, &format!("{process} {how} {} #{hold}", of.name));
        }
    }

    /// Records the end of a process.
    pub(crate) fn process_ended(&mut self, process: Process) {
        self.attempts.retain(|_, attempt| attempt.process != process);
        self.holds.retain(|_, hold| hold.process != process);
    }

    /// Returns whether the server has lost its data since then, or its clock was set.
    fn excuses(&self, began: Moment) -> bool {
        self.forgot.max(self.clock_set).is_some_and(|last| began <= last)
    }

    /// Returns whether exclusion is no longer promised for a grant.
    fn is_excused(&self, hold: &HeldLock) -> bool {
        self.excuses(hold.began) || self.taken_now.contains(&hold.token)
    }

    /// P1: holders exclude each other as their modes require.
    fn check_exclusion(&mut self, now: Moment) {
        let mut violation = None;
        let valid: Vec<&HeldLock> =
            self.holds.values().filter(|hold| hold.held.is_valid()).collect();
        for (at, one) in valid.iter().enumerate() {
            for other in valid[at + 1..].iter().filter(|other| other.name == one.name) {
                let excludes = one.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
                if excludes && !self.is_excused(one) && !self.is_excused(other) {
                    violation = Some(format!(
                        "{}: {} with token {} and {} with token {}",
                        one.name, one.process, one.token, other.process, other.token
                    ));
                }
            }
            if let Mode::Permits { of, .. } = one.mode {
                let same = valid.iter().filter(|hold| hold.name == one.name);
                let same = same.filter(|hold| !self.is_excused(hold));
                let used: u32 = same
                    .map(|hold| match hold.mode {
                        Mode::Permits { count, .. } => count,
                        _ => 0,
                    })
                    .sum();
                if used > of {
                    violation = Some(format!("{}: {used} permits of {of}", one.name));
                }
            }
        }
        if let Some(what) = violation {
            self.record_violation(now, "P1", what);
        }
    }

    /// P6: a holder is in the store, and a lost lock is reported.
    fn check_belief(
        &mut self,
        now: Moment,
        server_ms: i64,
        views: &BTreeMap<&'static str, NameView>,
    ) {
        let mut violation = None;
        for (number, hold) in &self.holds {
            let is_lacking = self.restored.is_some_and(|last| hold.began <= last);
            if !hold.held.is_valid() || self.is_excused(hold) || is_lacking {
                continue;
            }
            let kept = views.get(hold.name).and_then(|view| view.holder(&hold.id));
            let what = match kept {
                None => "is not in the store",
                Some(record) if record.at_ms < server_ms => "is over in the store",
                Some(record) if self.outlives(now, server_ms, hold, record) => {
                    "ends sooner in the store"
                }
                Some(_) => continue,
            };
            let (process, name, token) = (hold.process, hold.name, hold.token);
            violation =
                Some(format!("{name}: {process} believes in #{number}, {token}: it {what}"));
        }
        let lives = &self.lives;
        for (number, hold) in &mut self.holds {
            if hold.held.is_valid() {
                continue;
            }
            let since = *hold.invalid_since.get_or_insert(now);
            let Some(life) = lives.get(&hold.process) else { continue };
            let since = since.max(life.awake_since);
            let late = since.after(Duration::from_millis(50)) < now;
            if late && !hold.is_loss_reported && life.paused_since.is_none() {
                let name = hold.name;
                violation = Some(format!("{name}: #{number} was lost, and that was not reported"));
            }
        }
        if let Some(what) = violation {
            self.record_violation(now, "P6", what);
        }
    }

    /// Returns whether a holder would rely on its grant longer than the store keeps it.
    fn outlives(&self, now: Moment, server_ms: i64, hold: &HeldLock, record: &Record) -> bool {
        // The server shows whole milliseconds, and its clock has a rate of its own.
        let micros = (record.at_ms - server_ms + 2) * 1_000;
        let left = i128::from(micros) * 1_000_000 / i128::from(1_000_000 + self.skew_ppm);
        let end = now.after(Duration::from_micros(u64::try_from(left).unwrap_or(0)));
        hold.held.valid_until() > end
    }

    /// P7: every attempt ends by its bound.
    fn check_bounds(&mut self, now: Moment) {
        let mut violation = None;
        for (number, attempt) in &self.attempts {
            let Some(life) = self.lives.get(&attempt.process) else { continue };
            if life.paused_since.is_none() && attempt.due.after(life.paused_for) < now {
                let (what, name) = (attempt.what, attempt.name);
                let since = attempt.started.until(now);
                violation = Some(format!("{name}: {what} #{number} has not ended after {since:?}"));
            }
        }
        if let Some(what) = violation {
            self.record_violation(now, "P7", what);
        }
    }

    pub(crate) fn check(
        &mut self,
        now: Moment,
        server_ms: i64,
        views: &BTreeMap<&'static str, NameView>,
    ) {
        self.check_exclusion(now);
        self.check_belief(now, server_ms, views);
        self.check_bounds(now);
    }
}
