//! Contenders of both sides on one name, and the judgement of all their holds.
//!
//! Each side notes when it acquired and when it began to release, by the machine's monotonic clock,
//! which both processes read. So a noted hold is shorter than the real one, and two that overlap
//! were granted at once.

use std::time::Duration;

use holdline::{Guard, LockError, Mutex, RwLock, Semaphore};
use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use super::world::World;
use crate::ours::message_of;

/// How long contenders contend.
const LASTS: Duration = Duration::from_secs(3);
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
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore),
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

/// All holds of a storm.
pub(crate) struct History {
    pub(crate) holds: Vec<Hold>,
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.expect("after the boot") * 1_000_000_000 + nanos.expect("after the second")
}

/// Lets all contend, and returns what each held.
pub(crate) async fn storm(
    world: &World<'_>,
    name: &str,
    parties: &[Party],
) -> Result<History, String> {
    let mut theirs = Vec::new();
    for party in parties {
        let thread = world.thread(name, &format!("storm of {}", party.kind).replace(' ', "-"));
        let (millis, micros) = (LASTS.as_millis(), HOLD.as_micros());
        let Party { kind, count, .. } = party;
        thread.send(&format!("storm {kind} {name} {count} {millis} {micros} 30000"))?;
        theirs.push((thread, party.weight));
    }
    let end = tokio::time::Instant::now() + LASTS;
    let mut running = JoinSet::new();
    for party in parties {
        for _ in 0..party.count {
            running.spawn(contend(party.ours.clone(), party.weight, end));
        }
    }
    let mut holds = Vec::new();
    while let Some(done) = running.join_next().await {
        holds.extend(done.map_err(message_of)??);
    }
    for (mut thread, weight) in theirs {
        loop {
            let line = thread.answer().await?;
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["hold", _, _, start, end, _, token] => holds.push(Hold {
                    ours: false,
                    start: start.parse().map_err(message_of)?,
                    end: end.parse().map_err(message_of)?,
                    weight,
                    token: token.parse().ok(),
                }),
                ["done", _, "0", ..] => break,
                _ => return Err(format!("Java's storm: {line}")),
            }
        }
    }
    Ok(History { holds })
}

async fn contend(
    wanted: Wanted,
    weight: u64,
    end: tokio::time::Instant,
) -> Result<Vec<Hold>, String> {
    let mut holds = Vec::new();
    while let Ok(guard) = tokio::time::timeout_at(end, wanted.acquire()).await {
        let guard = guard.map_err(message_of)?;
        let start = now();
        tokio::time::sleep(HOLD).await; // event: the time of a hold
        let ended = now();
        let token = Some(guard.fencing_token().get());
        holds.push(Hold { ours: true, start, end: ended, weight, token });
        let outcome = guard.release().await;
        ensure!(outcome.is_released(), "our release: {outcome:?}");
    }
    Ok(holds)
}

impl History {
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
    let history = |holds: &[Hold]| History { holds: holds.to_vec() };
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
