//! Records what clients and the world do, and checks the promises after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline::Held;
use holdline_core::Moment;
use parking_lot::Mutex;

use crate::world::tasks::Process;

/// A broken promise, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
    pub(crate) at: Moment,
}

/// A running attempt.
struct Attempt {
    process: Process,
    name: &'static str,
    what: &'static str,
    started: Moment,
    /// Its time limit, without the pauses of its process.
    within: Duration,
    /// How long its process had been paused before.
    paused: Duration,
}

/// A grant that a process holds, or held.
struct HeldLock {
    process: Process,
    name: &'static str,
    token: u64,
    id: String,
    /// When its attempt began.
    began: Moment,
    held: Held,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessState {
    pub(crate) paused_since: Option<Moment>,
    /// The total time of its pauses.
    pub(crate) paused_for: Duration,
}

/// The fenced store's record of a name.
#[derive(Default)]
struct FencedRecord {
    /// The largest accepted token.
    mark: u64,
    /// The value: each writer adds one to what it has read.
    value: u64,
    /// The number of acknowledged writes.
    acknowledged: u64,
}

/// Everything that is recorded.
#[derive(Default)]
pub(crate) struct Recorder {
    /// The log; `None` if it is not wanted.
    pub(crate) log: Option<String>,
    next: u64,
    attempts: BTreeMap<u64, Attempt>,
    holds: BTreeMap<u64, HeldLock>,
    pub(crate) lives: BTreeMap<Process, ProcessState>,
    tokens: BTreeMap<String, BTreeSet<u64>>,
    /// The largest known token of each name.
    largest: BTreeMap<String, u64>,
    /// The process of each client id.
    pub(crate) clients: BTreeMap<String, Process>,
    stores: BTreeMap<&'static str, FencedRecord>,
    pub(crate) violation: Option<Violation>,
    /// How often each event happened.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Grants from before have no promise of exclusion: too many nodes lost their data, or a clock
    /// was set.
    pub(crate) excused: Option<Moment>,
    /// A client got the error that the servers belong to two sets: an operator must separate them.
    pub(crate) two_sets: bool,
    /// Processes that could not begin, since servers had no slot: an operator must readmit these.
    pub(crate) could_not_begin: Vec<Process>,
    /// One server belongs to another set, and stays so.
    pub(crate) odd: bool,
    /// Tokens of grants that an operator has revoked.
    pub(crate) taken_now: BTreeSet<u64>,
    pub(crate) stopping: bool,
}

pub(crate) type SharedRecorder = Arc<Mutex<Recorder>>;

impl Recorder {
    pub(crate) fn new(log: Option<String>) -> Recorder {
        Recorder { log, ..Recorder::default() }
    }

    pub(crate) fn note(&mut self, now: Moment, line: fmt::Arguments<'_>) {
        use fmt::Write;
        let Some(log) = &mut self.log else { return };
        let micros = now.as_nanos() / 1_000;
        let _ = writeln!(log, "{:>5}.{:06} {line}", micros / 1_000_000, micros % 1_000_000);
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn count_more(&mut self, what: &'static str, more: u64) {
        *self.counts.entry(what).or_default() += more;
    }

    pub(crate) fn counted(&self, what: &'static str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Keeps the first violation: later ones may be its consequence.
    pub(crate) fn record_violation(&mut self, now: Moment, promise: &'static str, what: String) {
        if self.violation.is_none() {
            self.note(now, format_args!("BROKEN {promise}: {what}"));
            self.violation = Some(Violation { promise, what, at: now });
        }
    }

    pub(crate) fn begin(
        &mut self,
        now: Moment,
        process: Process,
        (name, what): (&'static str, &'static str),
        within: Duration,
    ) -> u64 {
        self.next += 1;
        let number = self.next;
        let paused = self.paused(process);
        let attempt = Attempt { process, name, what, started: now, within, paused };
        self.attempts.insert(number, attempt);
        self.note(now, format_args!("{process} begins {what} {name} #{number}"));
        number
    }

    fn paused(&self, process: Process) -> Duration {
        self.lives.get(&process).map_or(Duration::ZERO, |life| life.paused_for)
    }

    pub(crate) fn end(&mut self, now: Moment, attempt: u64, how: fmt::Arguments<'_>) {
        if let Some(of) = self.attempts.remove(&attempt) {
            self.note(now, format_args!("{} ends #{attempt}: {how}", of.process));
        }
    }

    /// Returns the largest known token.
    pub(crate) fn floor(&self, name: &str) -> u64 {
        self.largest.get(name).copied().unwrap_or(0)
    }

    /// Records a new grant; `floor` was the largest known token when its first request was sent.
    pub(crate) fn granted(&mut self, now: Moment, name: &str, token: u64, floor: u64) {
        self.count("acquisitions");
        if !self.tokens.entry(name.to_owned()).or_default().insert(token) {
            self.record_violation(now, "P2", format!("{name}: token {token} was given twice"));
        }
        if token <= floor {
            let what = format!("{name}: asked for after {floor} was known, granted {token}");
            self.record_violation(now, "P2", what);
        }
        let largest = self.largest.entry(name.to_owned()).or_default();
        *largest = token.max(*largest);
    }

    /// Records an attempt that ended with a guard.
    pub(crate) fn grant(&mut self, now: Moment, attempt: u64, held: Held) {
        let Some(of) = self.attempts.remove(&attempt) else { return };
        let (name, process, token) = (of.name, of.process, held.fencing_token().get());
        self.count("guards");
        self.note(now, format_args!("{process} holds {name} #{attempt} token {token}"));
        let id = held.lease_id().to_hex();
        self.holds.insert(attempt, HeldLock { process, name, token, id, began: of.started, held });
    }

    /// Records that a holder has let its lock go, in any way.
    pub(crate) fn released(&mut self, now: Moment, hold: u64, how: &str) {
        if let Some(of) = self.holds.remove(&hold) {
            self.note(now, format_args!("{} {how} {} #{hold}", of.process, of.name));
        }
    }

    /// Returns whether a grant has a holder, or its process may be about to hold it.
    pub(crate) fn stands_for(&self, id: &str, owner: Option<Process>, name: &str) -> bool {
        let asks = |attempt: &Attempt| Some(attempt.process) == owner && attempt.name == name;
        let paused = |life: &ProcessState| life.paused_since.is_some();
        self.holds.values().any(|hold| hold.id == id && hold.held.is_valid())
            || self.attempts.values().any(asks)
            || owner.and_then(|owner| self.lives.get(&owner)).is_some_and(paused)
    }

    /// Returns whether a grant was held and not released.
    pub(crate) fn was_held(&self, id: &str) -> bool {
        self.holds.values().any(|hold| hold.id == id)
    }

    /// Records the end of a process.
    pub(crate) fn process_ended(&mut self, process: Process) {
        self.lives.remove(&process);
        self.attempts.retain(|_, attempt| attempt.process != process);
        self.holds.retain(|_, hold| hold.process != process);
    }

    /// Returns the current holders, with name and token.
    pub(crate) fn holders(&self) -> Vec<(Process, &'static str, u64)> {
        let holds = self.holds.values().filter(|hold| hold.held.is_valid());
        holds.map(|hold| (hold.process, hold.name, hold.token)).collect()
    }

    pub(crate) fn forget_holds(&mut self) {
        self.holds.clear();
    }

    /// Reads from the fenced store, and raises its token; `None` if it has accepted a larger one.
    pub(crate) fn read(&mut self, name: &'static str, token: u64) -> Option<u64> {
        let kept = self.stores.entry(name).or_default();
        if token < kept.mark {
            self.count("reads refused by the fence");
            return None;
        }
        kept.mark = token;
        Some(kept.value)
    }

    /// Writes the value read plus one. Returns whether the store accepted it.
    pub(crate) fn write(&mut self, name: &'static str, token: u64, value: u64) -> bool {
        let kept = self.stores.entry(name).or_default();
        if token < kept.mark {
            self.count("writes refused by the fence");
            return false;
        }
        (kept.mark, kept.value) = (token, value);
        true
    }

    /// Records an acknowledged write.
    pub(crate) fn acknowledge(&mut self, now: Moment, name: &'static str, token: u64) {
        self.count("writes acknowledged");
        let kept = self.stores.entry(name).or_default();
        kept.acknowledged += 1;
        let (value, acknowledged) = (kept.value, kept.acknowledged);
        if value < acknowledged {
            let what = format!(
                "{name}: {acknowledged} writes were acknowledged and {value} are there, \
                 the last by {token}"
            );
            self.record_violation(now, "P3", what);
        }
    }

    /// Checks all promises. `passed`: time has advanced.
    pub(crate) fn check(&mut self, now: Moment, passed: bool) {
        self.check_exclusion(now);
        if passed {
            self.check_bounds(now);
        }
    }

    /// P1: at most one client holds a name.
    fn check_exclusion(&mut self, now: Moment) {
        if self.holds.len() < 2 {
            return;
        }
        let mut names: Vec<_> = self.holds.values().map(|hold| hold.name).collect();
        names.sort_unstable();
        if names.windows(2).all(|pair| pair[0] != pair[1]) {
            return;
        }
        let (mut violation, mut allowed) = (None, 0);
        let valid: Vec<&HeldLock> =
            self.holds.values().filter(|hold| hold.held.is_valid()).collect();
        let excused = |hold: &HeldLock| {
            self.excused.is_some_and(|last| hold.began <= last)
                || self.taken_now.contains(&hold.token)
        };
        for (at, one) in valid.iter().enumerate() {
            for other in valid[at + 1..].iter().filter(|other| other.name == one.name) {
                if excused(one) || excused(other) {
                    allowed += 1;
                    continue;
                }
                let (name, who, with) = (one.name, one.process, one.token);
                let (also, by) = (other.process, other.token);
                violation = Some(format!("{name}: {who} with token {with} and {also} with {by}"));
            }
        }
        if allowed > 0 {
            self.count_more("steps with two excused holders", allowed);
        }
        if let Some(what) = violation {
            self.record_violation(now, "P1", what);
        }
    }

    /// P7: every attempt ends by its bound.
    fn check_bounds(&mut self, now: Moment) {
        let late = self.attempts.iter().find(|(_, attempt)| {
            let Some(life) = self.lives.get(&attempt.process) else { return false };
            let stood = life.paused_for.saturating_sub(attempt.paused);
            life.paused_since.is_none() && attempt.started.after(attempt.within).after(stood) < now
        });
        if let Some((number, attempt)) = late {
            let (what, name) = (attempt.what, attempt.name);
            let since = attempt.started.until(now);
            let what = format!("{name}: {what} #{number} has not ended after {since:?}");
            self.record_violation(now, "P7", what);
        }
    }

    /// P7: at the end no attempt is running.
    pub(crate) fn check_all_ended(&mut self, now: Moment) {
        if let Some(attempt) = self.attempts.values().next() {
            let what = format!("{}: {} never ended", attempt.name, attempt.what);
            self.record_violation(now, "P7", what);
        }
    }
}
