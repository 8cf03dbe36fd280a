//! Contenders of both sides on one name, and the judgement of all their holds.
//!
//! Each side notes when it acquired and when it began to release, by the machine's monotonic clock,
//! which both processes read. So a noted hold is shorter than the real one, and two that overlap
//! were granted at once.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Guard, LockError, Mutex, RwLock, Semaphore};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use super::java::Java;
use crate::ours::message_of;

/// How long each holds.
const HOLD: Duration = Duration::from_micros(500);

/// One hold, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) ours: bool,
    start: u64,
    end: u64,
    /// How much of the capacity it takes.
    weight: u64,
    token: Option<u64>,
}

/// What a task of ours wants.
#[derive(Clone)]
pub(crate) enum Wanted {
    Mutex(Box<Mutex>),
    Read(RwLock),
    Write(RwLock),
    Permit(Box<Semaphore>),
}

impl Wanted {
    async fn acquire(&self) -> Result<Guard, LockError> {
        match self {
            Wanted::Mutex(mutex) => mutex.lock().await,
            Wanted::Read(rwlock) => rwlock.read().await,
            Wanted::Write(rwlock) => rwlock.write().await,
            Wanted::Permit(semaphore) => semaphore.acquire().await,
        }
    }
}

/// Contenders of one kind.
pub(crate) struct Party {
    pub(crate) kind: &'static str,
    pub(crate) ours: Wanted,
    /// How many there are of each side.
    pub(crate) count: usize,
    /// How much of the capacity each hold takes.
    pub(crate) weight: u64,
}

/// How long a storm lasts, and with which leases.
#[derive(Clone, Copy)]
pub(crate) struct Storm {
    pub(crate) lasts: Duration,
    pub(crate) lease: Duration,
    /// Requests may fail, as while a slot moves.
    pub(crate) may_fail: bool,
}

/// All holds of a storm.
pub(crate) struct History {
    holds: Vec<Hold>,
    /// How many requests failed, and the first failure.
    pub(crate) failures: (usize, String),
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.expect("after the boot") * 1_000_000_000 + nanos.expect("after the second")
}

impl Storm {
    /// Some seconds without faults.
    pub(crate) const CALM: Storm =
        Storm { lasts: Duration::from_secs(3), lease: Duration::from_secs(30), may_fail: false };

    /// Lets all contend, and returns what each held.
    pub(crate) async fn run(
        self,
        java: &Arc<Java>,
        name: &str,
        parties: &[Party],
    ) -> Result<History, String> {
        let mut theirs = Vec::new();
        for party in parties {
            let thread = java.thread(format!("{name}/storm-{}", party.kind));
            let times = [self.lasts, self.lease].map(|time| time.as_millis());
            let (Party { kind, count, .. }, hold) = (party, HOLD.as_micros());
            thread
                .send(&format!("storm {kind} {name} {count} {} {hold} {}", times[0], times[1]))?;
            theirs.push((thread, party.weight));
        }
        let end = tokio::time::Instant::now() + self.lasts;
        let mut running = JoinSet::new();
        for party in parties {
            for _ in 0..party.count {
                running.spawn(contend(party.ours.clone(), party.weight, end, self.may_fail));
            }
        }
        let mut history = History { holds: Vec::new(), failures: (0, String::new()) };
        while let Some(done) = running.join_next().await {
            history.add(done.map_err(message_of)??);
        }
        for (mut thread, weight) in theirs {
            while !history.add_line(&thread.answer().await?, weight)? {}
        }
        let (count, first) = &history.failures;
        ensure!(self.may_fail || *count == 0, "{count} requests failed: {first}");
        Ok(history)
    }
}

/// Returns the holds of a task of ours, and how many of its requests failed.
async fn contend(
    wanted: Wanted,
    weight: u64,
    end: tokio::time::Instant,
    may_fail: bool,
) -> Result<History, String> {
    let mut history = History { holds: Vec::new(), failures: (0, String::new()) };
    while let Ok(attempt) = tokio::time::timeout_at(end, wanted.acquire()).await {
        let guard = match attempt {
            Ok(guard) => guard,
            Err(error) => {
                history.fail(&error.to_string());
                ensure!(may_fail, "our contender: {error}");
                continue;
            }
        };
        let start = now();
        tokio::time::sleep(HOLD).await; // event: the time of a hold
        let ended = now();
        let token = Some(guard.fencing_token().get());
        if guard.is_valid() {
            history.holds.push(Hold { ours: true, start, end: ended, weight, token });
        }
        let outcome = guard.release().await;
        if !outcome.is_released() {
            history.fail(&format!("{outcome:?}"));
        }
    }
    Ok(history)
}

impl History {
    fn fail(&mut self, why: &str) {
        self.failures.0 += 1;
        if self.failures.1.is_empty() {
            why.clone_into(&mut self.failures.1);
        }
    }

    fn add(&mut self, other: History) {
        self.holds.extend(other.holds);
        self.failures.0 += other.failures.0;
        if self.failures.1.is_empty() {
            self.failures.1 = other.failures.1;
        }
    }

    /// Adds a line of Java's; returns whether it was the last one.
    fn add_line(&mut self, line: &str, weight: u64) -> Result<bool, String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["hold", _, _, start, end, _, token] => {
                let (start, end) = (start.parse(), end.parse());
                let (start, end) = (start.map_err(message_of)?, end.map_err(message_of)?);
                let token = token.parse().ok();
                self.holds.push(Hold { ours: false, start, end, weight, token });
                Ok(false)
            }
            ["done", _, errors, ref first @ ..] => {
                let errors: usize = errors.parse().map_err(message_of)?;
                self.add(History { holds: Vec::new(), failures: (errors, first.join(" ")) });
                Ok(true)
            }
            _ => Err(format!("Java's storm: {line}")),
        }
    }

    /// Fails if at any moment more was held than there is.
    pub(crate) fn fits(&self, capacity: u64) -> Result<(), String> {
        let starts = self.holds.iter().map(|hold| (hold.start, true, hold.weight));
        let ends = self.holds.iter().map(|hold| (hold.end, false, hold.weight));
        let mut edges: Vec<_> = starts.chain(ends).collect();
        // At one moment an end comes before a start.
        edges.sort_unstable();
        let mut held = 0;
        for (at, starts, weight) in edges {
            held = if starts { held + weight } else { held - weight };
            ensure!(held <= capacity, "{held} of {capacity} are held at {at}");
        }
        Ok(())
    }

    /// Fails unless each hold has a larger token than the one before it.
    pub(crate) fn has_rising_tokens(&self) -> Result<(), String> {
        let mut holds: Vec<&Hold> = self.holds.iter().collect();
        holds.sort_unstable_by_key(|hold| hold.start);
        match holds
            .windows(2)
            .find(|pair| pair[0].token.is_none() || pair[0].token >= pair[1].token)
        {
            None => Ok(()),
            Some(pair) => Err(format!("the tokens do not rise: {pair:?}")),
        }
    }

    /// How many holds were ours, and how many Java's.
    pub(crate) fn shares(&self) -> (usize, usize) {
        let ours = self.holds.iter().filter(|hold| hold.ours).count();
        (ours, self.holds.len() - ours)
    }

    /// Fails unless both sides held it, and often.
    pub(crate) fn is_mixed(&self) -> Result<(), String> {
        let (ours, theirs) = self.shares();
        ensure!(ours > 0 && theirs > 0 && ours + theirs > 20, "{ours} of ours, {theirs} of Java's");
        Ok(())
    }
}

#[test]
fn overlaps_and_tokens_that_fall_are_found() {
    let hold = |start, end, token| Hold { ours: true, start, end, weight: 1, token: Some(token) };
    let failures = (0, String::new());
    let history = |holds: &[Hold]| History { holds: holds.to_vec(), failures: failures.clone() };
    let good = history(&[hold(20, 30, 5), hold(0, 10, 3), hold(10, 20, 4)]);
    assert_eq!((good.fits(1), good.has_rising_tokens()), (Ok(()), Ok(())));
    let overlapping = history(&[hold(0, 11, 3), hold(10, 20, 4)]);
    assert_eq!(overlapping.fits(1), Err("2 of 1 are held at 10".to_owned()));
    assert_eq!(overlapping.fits(2), Ok(()));
    let equal = history(&[hold(0, 10, 3), hold(10, 20, 3)]);
    assert!(equal.has_rising_tokens().is_err());
    let writer = Hold { weight: 100, ..hold(5, 6, 1) };
    assert!(history(&[hold(0, 10, 1), writer]).fits(100).is_err());
}
