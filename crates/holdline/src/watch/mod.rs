//! Watching a store from outside: which names are held and waited for, and what changes.
//!
//! A [`StoreWatch`] lists the store in rounds and compares each with the one before. It needs no
//! right but to list, works on every engine that can list, and sees the locks of all clients.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), holdline::LockError> {
//! use holdline::Client;
//! use holdline::watch::{LockEvent, NamePattern, StoreWatch, WatchOptions};
//!
//! let client = Client::connect("memory:watch").await?;
//! let pattern = NamePattern::new("deploy/*")?;
//! let mut watch = StoreWatch::new(client.clone(), pattern, WatchOptions::default())?;
//! let guard = client.mutex("deploy/eu")?.lock().await?;
//!
//! let round = watch.next_round().await;
//! let change = &round.changes[0];
//! assert!(change.found && matches!(change.event, LockEvent::Granted { .. }));
//! assert_eq!(watch.names().count(), 1);
//! guard.release().await.into_result()?;
//! # Ok(())
//! # }
//! ```
//!
//! - Invariant O1: a round changes the state only when it is complete. So a round that is cancelled
//!   or fails loses nothing, and the next one is compared with the last complete one.
//! - Invariant O2: a name that the round before did not cover yields only changes that are marked
//!   `found`. So no change is made up at the edge of what a round covers.
//! - Invariant O3: a round keeps at most `max_names` names and `max_entries` holders and waiters.
//!
//! Read next: `compare`, which finds the changes; `listing`, which reads one round.

mod change;
mod compare;
mod listing;
mod options;
mod pattern;

pub use change::{Change, EndedWhen, LockEvent};
pub use compare::WatchedName;
pub use options::WatchOptions;
pub use pattern::NamePattern;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use holdline_core::{LockError, LockName, Moment};

use crate::client::Client;
use compare::{Names, Precision};
use listing::Listing;

/// The longest pause after a failed round, unless the interval is longer.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Watches the names of a store that match a pattern.
///
/// It sees what its rounds see. A grant or a wait that begins and ends between two rounds leaves no
/// trace, and it cannot distinguish a release from an expiry or a revocation, unless the lease was
/// certain to last longer ([`EndedWhen`]). Nothing that depends on who holds a lock may rely on it.
pub struct StoreWatch {
    client: Client,
    pattern: NamePattern,
    options: WatchOptions,
    names: Names,
    coverage: Option<Coverage>,
    /// When the last complete round was asked.
    asked: Moment,
    due: Moment,
    rounds: u64,
    failing: Option<Failing>,
}

/// How much of the store a round covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every name that matches.
    All,
    /// The names up to this one, in byte order; the rest is more than the options allow.
    UpTo(LockName),
}

impl Coverage {
    /// Returns whether a name was covered.
    pub fn covers(&self, name: &LockName) -> bool {
        match self {
            Coverage::All => true,
            Coverage::UpTo(last) => name <= last,
        }
    }
}

/// Why rounds fail.
#[derive(Clone, Debug)]
pub struct Failing {
    /// The error of the last round.
    pub error: Arc<LockError>,
    /// How many rounds have failed, one after the other.
    pub rounds: u64,
    /// When the first of them failed, by the machine's time of day; for display only.
    pub since: SystemTime,
}

/// What one round has shown.
#[derive(Clone, Debug)]
pub struct Round {
    /// The number of the round, from 1.
    pub number: u64,
    /// When it was complete, by the machine's time of day; for display only.
    pub at: SystemTime,
    /// How long the store took for it.
    pub took: Duration,
    /// The changes since the last complete round, in the byte order of the names. None if this
    /// round failed.
    pub changes: Vec<Change>,
    /// How much of the store it covers; `None` if it failed.
    pub coverage: Option<Coverage>,
    /// Why it failed; the state is that of the last complete round then.
    pub failing: Option<Failing>,
    /// For how long the rounds before this one have failed, if this is the first complete one after
    /// them.
    pub recovered_after: Option<Duration>,
}

impl StoreWatch {
    /// Watches through a client. No request is sent yet.
    ///
    /// # Errors
    /// `Unsupported` if the engine cannot list and the pattern is more than one exact name;
    /// `Invalid` for options out of range.
    pub fn new(
        client: Client,
        pattern: NamePattern,
        options: WatchOptions,
    ) -> Result<StoreWatch, LockError> {
        options.validate()?;
        if !client.capabilities().list && pattern.exact().is_none() {
            return Err(client.capabilities().lacks("listing; give one exact name"));
        }
        Ok(StoreWatch {
            client,
            pattern,
            options,
            names: BTreeMap::new(),
            coverage: None,
            asked: Moment::ORIGIN,
            due: Moment::ORIGIN,
            rounds: 0,
            failing: None,
        })
    }

    /// Waits until the next round is due, lists the store, and returns what has changed. The first
    /// round is due at once; all that it shows is marked as found.
    ///
    /// The pause between two rounds is the interval of the options, or longer, so that the store
    /// spends at most the options' share of its time on rounds of this watch. After failures it
    /// doubles, up to 10 s.
    ///
    /// # Cancel safety
    /// Dropping the future loses the round in progress only: the next one reports its changes.
    pub async fn next_round(&mut self) -> Round {
        self.until_due().await;
        let clock = self.client.clock().clone();
        let asked = clock.now();
        let listed = listing::read(&self.client, &self.pattern, &self.options).await;
        let answered = clock.now();
        self.rounds += 1;
        let took = answered.since(asked);
        let round = match listed {
            Ok(listing) => self.complete(listing, asked, answered),
            Err(error) => self.failed(error, took),
        };
        self.due = answered.after(self.pause(took));
        round
    }

    /// Waits until the next round is due. [`StoreWatch::next_round`] does that too: this is for
    /// callers that end the pause early with [`StoreWatch::hurry`], and never a round in progress.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn until_due(&self) {
        let clock = self.client.clock();
        if clock.now() < self.due {
            clock.sleep_until(self.due).await;
        }
    }

    /// Makes the next round due at once, such as after an operator's command.
    pub fn hurry(&mut self) {
        self.due = Moment::ORIGIN;
    }

    /// Returns the names of the last complete round, in byte order.
    pub fn names(&self) -> impl Iterator<Item = &WatchedName> {
        self.names.values()
    }

    /// Returns a name as the last complete round has shown it; `None` if it was neither held nor
    /// waited for, or not covered.
    pub fn name(&self, name: &LockName) -> Option<&WatchedName> {
        self.names.get(name)
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    fn complete(&mut self, listing: Listing, asked: Moment, answered: Moment) -> Round {
        let Listing { mut names, coverage } = listing;
        let precision = Precision {
            step: self.client.capabilities().lease.step,
            asked_before: self.asked,
            answered,
        };
        let known = |name: &LockName| self.coverage.as_ref().is_some_and(|c| c.covers(name));
        let mut changes = Vec::new();
        compare::compare(&self.names, &mut names, &coverage, &known, &precision, &mut changes);
        let recovered = self.failing.take();
        let at = SystemTime::now();
        self.names = names;
        self.coverage = Some(coverage.clone());
        self.asked = asked;
        Round {
            number: self.rounds,
            at,
            took: answered.since(asked),
            changes,
            coverage: Some(coverage),
            failing: None,
            recovered_after: recovered
                .map(|failing| at.duration_since(failing.since).unwrap_or_default()),
        }
    }

    fn failed(&mut self, error: LockError, took: Duration) -> Round {
        let at = SystemTime::now();
        let (rounds, since) = match &self.failing {
            Some(failing) => (failing.rounds + 1, failing.since),
            None => (1, at),
        };
        let failing = Failing { error: Arc::new(error), rounds, since };
        self.failing = Some(failing.clone());
        Round {
            number: self.rounds,
            at,
            took,
            changes: Vec::new(),
            coverage: None,
            failing: Some(failing),
            recovered_after: None,
        }
    }

    fn pause(&self, took: Duration) -> Duration {
        let pause = self.options.pause_after(took);
        let Some(failing) = &self.failing else { return pause };
        let doublings = u32::try_from(failing.rounds.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
        pause.max(self.options.interval().saturating_mul(1 << doublings).min(MAX_RETRY_PAUSE))
    }
}

crate::debug::debug_of!(StoreWatch, |it|
    client: it.client, pattern: it.pattern, rounds: it.rounds, names: it.names.len()
);
