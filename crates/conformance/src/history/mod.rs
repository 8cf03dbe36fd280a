//! Random command histories, compared with the lock table as oracle.
//!
//! A history is a small script for a few actors on one fresh name, one command in flight. Every
//! command goes to the engine and, with the engine's own capabilities as its profile, to the
//! lock table; what the engine answers must be *equal* to what the table answers.
//!
//! **Equal** means (each rule is a function in `equal`):
//! - lease ids by actor: both get the same ids, and shown ids are compared by their first digits;
//! - fencing tokens by rank among the name's grants: one token of the table is one token of the
//!   engine, and exclusive grants stand in the same order;
//! - durations: above zero for a grant, and at most what the table has left plus the engine's step
//!   and lag (a real clock adds how late a command may be carried out);
//! - positions only if the engine is fair and reports them;
//! - holders as a set, the queue as a sequence where the engine is fair and as a set elsewhere;
//! - every wake-up of the table has a hint of the engine's watch, or a next look that is no later
//!   than the next heartbeat; more hints are always allowed;
//! - errors by kind and certainty;
//! - no ages, no texts, no times of day.
//!
//! **Commands and deadlines never touch.** Time moves only between commands, at most twice on a
//! real clock and then by more than a lease and the lag; and only by amounts after which no
//! deadline that any earlier command may have set is near (`script` checks that by
//! arithmetic). A history whose commands came too late for that is *void*: neither equal nor not.
//!
//! **An unknown outcome** (a request or its reply was lost, which the suite does on purpose) is
//! a set of states, at most eight: with and without the command. Later answers thin it out; only
//! an answer that fits none of them is a difference.
//!
//! A difference is shrunk to a small script and printed as readable steps, with the seed and the
//! command that replays it.

mod equal;
mod oracle;
mod play;
mod script;
mod shrink;

use std::fmt;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::bench::Bench;
use crate::report::{Row, Status};
use crate::stalls;
use play::End;
pub use script::Script;

/// The environment variable that holds the seed of the one history to replay.
pub const SEED: &str = "HOLDLINE_CONFORMANCE_SEED";
/// The environment variable that holds how many histories to try in place of the usual number.
pub const HISTORIES: &str = "HOLDLINE_CONFORMANCE_HISTORIES";
/// The first seed, unless [`SEED`] sets another. Fixed, so that a failing run fails again.
const FIRST_SEED: u64 = 1;
/// How much later than the one before it each of the first histories begins on a real clock.
const STAGGER: Duration = Duration::from_millis(40);
/// How long one history may take by a real clock.
const HISTORY_LIMIT: Duration = Duration::from_secs(60);

/// A history in which engine and table differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed that made the history.
    pub seed: u64,
    /// How many histories were tried until then, this one included.
    pub tried: usize,
    /// The history, shrunk.
    pub script: Script,
    /// What was sent and seen in the shrunk history, step by step.
    pub steps: Vec<String>,
    /// How engine and table differ at its end.
    pub why: String,
}

/// How a hunt for differences ended.
#[derive(Clone, Debug)]
pub enum Hunt {
    /// No history differed.
    Equal {
        /// How many histories were equal from beginning to end.
        histories: usize,
        /// How many commands they sent.
        commands: usize,
        /// How many more were void.
        void: usize,
    },
    /// A difference.
    Found(Box<Difference>),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} (history {}): {}", self.seed, self.tried, self.why)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "    {:>2}. {step}", number + 1)?;
        }
        Ok(())
    }
}

/// Runs as many histories as the store's scale sets, as one row of the report.
pub(crate) async fn run(bench: &Bench) -> Row {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, count) = match number(SEED) {
        Some(seed) => (seed, 1),
        None => {
            let count = number(HISTORIES).and_then(|count| usize::try_from(count).ok());
            (FIRST_SEED, count.unwrap_or(bench.scale().histories))
        }
    };
    let status = match hunt(bench, first, count).await {
        Hunt::Equal { histories, .. } if histories * 2 < count => Status::NotRun(format!(
            "only {histories} of {count} histories were carried out in time: is the machine busy?"
        )),
        Hunt::Equal { histories, commands, void } => Status::Ran(format!(
            "{histories} histories, {commands} commands, {void} void, seeds from {first}"
        )),
        Hunt::Found(difference) => Status::Failed(format!(
            "{difference}    replay: {SEED}={} {}",
            difference.seed,
            bench.factory().command()
        )),
    };
    Row { promise: None, name: "random histories equal the lock table".into(), status }
}

/// Tries `count` histories from seed `first` on, until one differs. That one is shrunk.
pub async fn hunt(bench: &Bench, first: u64, count: usize) -> Hunt {
    let at_once = bench.scale().at_once.max(1);
    let manual = bench.time().is_manual();
    let mut tally = Tally { strict: manual, ..Tally::default() };
    tally.try_seeds(bench, (first..).take(count).collect(), at_once).await;
    if !manual {
        // What came too late when many ran may come in time when few do.
        let slower = bench.slower();
        let mut again = std::mem::take(&mut tally.spoilt);
        again.append(&mut tally.void);
        tally.try_seeds(&slower, again, at_once.div_ceil(4)).await;
        let mut again = std::mem::take(&mut tally.spoilt);
        if tally.histories * 2 < count {
            again.append(&mut tally.void);
        }
        tally.strict = true;
        tally.try_seeds(&slower.slower(), again, 1).await;
    }
    let Some(found) = tally.found else {
        let void = tally.void.len();
        return Hunt::Equal { histories: tally.histories, commands: tally.commands, void };
    };
    let script = shrink::shrink(bench, found.script.clone()).await;
    match play_within(bench, &script).await {
        (End::Differs(why), steps) => {
            Hunt::Found(Box::new(Difference { script, steps, why, ..found }))
        }
        // The smaller one does not show it every time: what was seen first stands.
        (End::Equal | End::Void, _) => Hunt::Found(Box::new(found)),
    }
}

/// How the histories ended so far.
#[derive(Default)]
struct Tally {
    histories: usize,
    commands: usize,
    /// The seeds of those that were void.
    void: Vec<u64>,
    /// The seeds of those that differed while there was a stall.
    spoilt: Vec<u64>,
    /// Whether a stall excuses nothing.
    strict: bool,
    found: Option<Difference>,
}

impl Tally {
    /// Plays the histories of these seeds until one differs.
    async fn try_seeds(&mut self, bench: &Bench, seeds: Vec<u64>, at_once: usize) {
        let mut seeds = seeds.into_iter().enumerate();
        let mut running = JoinSet::new();
        loop {
            while running.len() < at_once
                && self.found.is_none()
                && let Some((place, seed)) = seeds.next()
            {
                let bench = bench.clone();
                running.spawn(async move {
                    if place < at_once && !bench.time().is_manual() {
                        // The first ones would otherwise march in step, all commands at one time.
                        tokio::time::sleep(STAGGER * u32::try_from(place).unwrap_or(0)).await;
                    }
                    let script = Script::generate(seed, bench.capabilities(), bench.scale());
                    let stalls = stalls::seen();
                    let (end, steps) = play_within(&bench, &script).await;
                    (seed, script, end, steps, stalls::seen() > stalls)
                });
            }
            let Some(done) = running.join_next().await else { return };
            let (seed, script, end, steps, stalled) = match done {
                Ok(done) => done,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            match end {
                End::Equal => {
                    self.histories += 1;
                    self.commands += script.commands();
                }
                End::Void => self.void.push(seed),
                End::Differs(_) if stalled && !self.strict => self.spoilt.push(seed),
                End::Differs(why) if self.found.is_none() => {
                    let tried = self.histories + 1;
                    self.found = Some(Difference { seed, tried, script, steps, why });
                }
                End::Differs(_) => {}
            }
        }
    }
}

/// Plays a script; one that hangs differs.
async fn play_within(bench: &Bench, script: &Script) -> (End, Vec<String>) {
    let play = Box::pin(play::play(bench, script));
    match tokio::time::timeout(HISTORY_LIMIT, play).await {
        Ok(played) => played,
        Err(_) => (End::Differs(format!("no end within {HISTORY_LIMIT:?}")), Vec::new()),
    }
}
