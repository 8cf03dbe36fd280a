//! What clients and the world write down, and what must be so after every step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdline::Held;
use holdline_core::Moment;
use parking_lot::Mutex;

use crate::world::tasks::Process;

/// A promise that was broken, and how it showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) promise: &'static str,
    pub(crate) what: String,
    pub(crate) at: Moment,
}

/// One attempt under way.
struct Attempt {
    process: Process,
    name: &'static str,
    what: &'static str,
    started: Moment,
    /// How long it may take, beside the pauses of its process.
    within: Duration,
    /// How long its process had stood still before.
    paused: Duration,
}

/// One grant that a process believes in, or did.
struct Hold {
    process: Process,
    name: &'static str,
    token: u64,
    id: String,
    /// When its attempt began.
    began: Moment,
    held: Held,
}

/// How a process fares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub(crate) paused_since: Option<Moment>,
    /// How long it stood still so far.
    pub(crate) paused_for: Duration,
}

/// What the fenced store keeps of a name.
#[derive(Default)]
struct Kept {
    /// The largest token that it has seen.
    mark: u64,
    /// How often it was written to: each writer adds one to what it has read.
    value: u64,
    /// How many writes were acknowledged.
    acknowledged: u64,
}

/// Everything that is written down.
#[derive(Default)]
pub(crate) struct Book {
    /// What happened, line by line; `None` when nobody wants to read it.
    pub(crate) log: Option<String>,
    next: u64,
    attempts: BTreeMap<u64, Attempt>,
    holds: BTreeMap<u64, Hold>,
    pub(crate) lives: BTreeMap<Process, Life>,
    tokens: BTreeMap<String, BTreeSet<u64>>,
    /// The largest token of each name that anybody knows of.
    largest: BTreeMap<String, u64>,
    /// Which process a client of a record belongs to.
    pub(crate) clients: BTreeMap<String, Process>,
    stores: BTreeMap<&'static str, Kept>,
    pub(crate) broken: Option<Broken>,
    /// How often each thing happened.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Of what began before, no exclusion is promised: more have forgotten than may, or a clock
    /// was set.
    pub(crate) excused: Option<Moment>,
    /// Somebody was told that the servers are of two sets: an operator has to part them.
    pub(crate) two_sets: bool,
    /// One server is of another set, and stays so.
    pub(crate) odd: bool,
    /// Tokens of grants that an operator took away now.
    pub(crate) taken_now: BTreeSet<u64>,
    pub(crate) stopping: bool,
}

pub(crate) type SharedBook = Arc<Mutex<Book>>;

impl Book {
    pub(crate) fn new(log: Option<String>) -> Book {
        Book { log, ..Book::default() }
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

    /// Keeps the first broken promise: what follows it may be its consequence.
    pub(crate) fn break_promise(&mut self, now: Moment, promise: &'static str, what: String) {
        if self.broken.is_none() {
            self.note(now, format_args!("BROKEN {promise}: {what}"));
            self.broken = Some(Broken { promise, what, at: now });
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

    /// Returns the largest token that anybody knows of.
    pub(crate) fn floor(&self, name: &str) -> u64 {
        self.largest.get(name).copied().unwrap_or(0)
    }

    /// A grant became known; its first request had left when `floor` was the largest known.
    pub(crate) fn given(&mut self, now: Moment, name: &str, token: u64, floor: u64) {
        self.count("acquisitions");
        if !self.tokens.entry(name.to_owned()).or_default().insert(token) {
            self.break_promise(now, "P2", format!("{name}: token {token} was given twice"));
        }
        if token <= floor {
            let what = format!("{name}: asked for after {floor} was known, granted {token}");
            self.break_promise(now, "P2", what);
        }
        let largest = self.largest.entry(name.to_owned()).or_default();
        *largest = token.max(*largest);
    }

    /// An attempt ended with a guard.
    pub(crate) fn grant(&mut self, now: Moment, attempt: u64, held: Held) {
        let Some(of) = self.attempts.remove(&attempt) else { return };
        let (name, process, token) = (of.name, of.process, held.fencing_token().get());
        self.count("guards");
        self.note(now, format_args!("{process} holds {name} #{attempt} token {token}"));
        let id = held.lease_id().to_hex();
        self.holds.insert(attempt, Hold { process, name, token, id, began: of.started, held });
    }

    /// A holder lets go, in whatever way.
    pub(crate) fn let_go(&mut self, now: Moment, hold: u64, how: &str) {
        if let Some(of) = self.holds.remove(&hold) {
            self.note(now, format_args!("{} {how} {} #{hold}", of.process, of.name));
        }
    }

    /// Tells whether a grant has a holder, or its process may be about to have it.
    pub(crate) fn stands_for(&self, id: &str, owner: Option<Process>, name: &str) -> bool {
        let asks = |attempt: &Attempt| Some(attempt.process) == owner && attempt.name == name;
        let paused = |life: &Life| life.paused_since.is_some();
        self.holds.values().any(|hold| hold.id == id && hold.held.is_valid())
            || self.attempts.values().any(asks)
            || owner.and_then(|owner| self.lives.get(&owner)).is_some_and(paused)
    }

    /// Tells whether somebody believed in a grant, and has not let it go.
    pub(crate) fn was_held(&self, id: &str) -> bool {
        self.holds.values().any(|hold| hold.id == id)
    }

    /// A process is gone.
    pub(crate) fn bury(&mut self, process: Process) {
        self.lives.remove(&process);
        self.attempts.retain(|_, attempt| attempt.process != process);
        self.holds.retain(|_, hold| hold.process != process);
    }

    /// Returns who believes validly to hold something, its name and token.
    pub(crate) fn holders(&self) -> Vec<(Process, &'static str, u64)> {
        let holds = self.holds.values().filter(|hold| hold.held.is_valid());
        holds.map(|hold| (hold.process, hold.name, hold.token)).collect()
    }

    pub(crate) fn forget_holds(&mut self) {
        self.holds.clear();
    }

    /// Whoever reads from the fenced store raises its mark; `None` when it was raised above.
    pub(crate) fn read(&mut self, name: &'static str, token: u64) -> Option<u64> {
        let kept = self.stores.entry(name).or_default();
        if token < kept.mark {
            self.count("reads refused by the fence");
            return None;
        }
        kept.mark = token;
        Some(kept.value)
    }

    /// Writes what is one more than was read. Tells whether the store took it.
    pub(crate) fn write(&mut self, name: &'static str, token: u64, value: u64) -> bool {
        let kept = self.stores.entry(name).or_default();
        if token < kept.mark {
            self.count("writes refused by the fence");
            return false;
        }
        (kept.mark, kept.value) = (token, value);
        true
    }

    /// A writer hears that its write was taken.
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
            self.break_promise(now, "P3", what);
        }
    }

    /// Looks whether all is as it must be. `passed`: time has moved on.
    pub(crate) fn check(&mut self, now: Moment, passed: bool) {
        self.check_exclusion(now);
        if passed {
            self.check_bounds(now);
        }
    }

    /// P1: whoever believes to hold is alone in that.
    fn check_exclusion(&mut self, now: Moment) {
        if self.holds.len() < 2 {
            return;
        }
        let mut names: Vec<_> = self.holds.values().map(|hold| hold.name).collect();
        names.sort_unstable();
        if names.windows(2).all(|pair| pair[0] != pair[1]) {
            return;
        }
        let (mut broken, mut allowed) = (None, 0);
        let valid: Vec<&Hold> = self.holds.values().filter(|hold| hold.held.is_valid()).collect();
        let excused = |hold: &Hold| {
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
                broken = Some(format!("{name}: {who} with token {with} and {also} with {by}"));
            }
        }
        if allowed > 0 {
            self.count_more("steps in which two held, as may be", allowed);
        }
        if let Some(what) = broken {
            self.break_promise(now, "P1", what);
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
            self.break_promise(now, "P7", what);
        }
    }

    /// P7: when all is over, nobody waits any more.
    pub(crate) fn check_all_ended(&mut self, now: Moment) {
        if let Some(attempt) = self.attempts.values().next() {
            let what = format!("{}: {} never ended", attempt.name, attempt.what);
            self.break_promise(now, "P7", what);
        }
    }
}
