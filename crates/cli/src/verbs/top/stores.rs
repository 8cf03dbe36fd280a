//! The stores of the screen: what each does, what it has shown, and how fast it changes. Pure.
//!
//! - Invariant S1: what one store does changes nothing about another.
//! - Invariant S2: ages and rates are counted by a clock that nobody sets. The time of day is for
//!   display only.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use holdline::watch::WatchOptions;
use holdline_core::{LockName, Snapshot};

/// Over how much time rates are counted.
pub(crate) const RATE_WINDOW: Duration = Duration::from_secs(60);

/// How many rounds the rates keep: those of the window at the shortest interval.
const MAX_ROUNDS: usize = 600;

/// How long after its time a round may come before its store is late.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// The time: of the day, and by a clock that nobody sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The time of day.
    pub(crate) time: SystemTime,
    /// The other clock.
    pub(crate) instant: Instant,
}

impl Now {
    /// Reads both clocks.
    pub(crate) fn read() -> Now {
        Now { time: SystemTime::now(), instant: Instant::now() }
    }
}

/// What one complete round has shown.
#[derive(Clone, Debug)]
pub(crate) struct RoundView {
    /// When the round was complete; for display only.
    pub(crate) at: SystemTime,
    /// How long the store took for it.
    pub(crate) took: Duration,
    /// The last name that it covers, if there are more.
    pub(crate) left_out_after: Option<LockName>,
    /// The names that are held, waited for or frozen, in byte order.
    pub(crate) names: Vec<Snapshot>,
}

/// How many names and contenders a round has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The names that are held; those that are frozen count.
    pub(crate) held: usize,
    /// The waiters of all names.
    pub(crate) waiting: usize,
    /// The names with a freeze.
    pub(crate) frozen: usize,
}

/// How many changes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Grants.
    pub(crate) granted: usize,
    /// Ends of grants.
    pub(crate) ended: usize,
    /// New waiters.
    pub(crate) queued: usize,
}

/// What a store does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// It was not asked yet.
    Opening,
    /// The last round was complete.
    Up,
    /// Rounds fail.
    Down {
        /// Why.
        message: String,
        /// Since when.
        since: Instant,
    },
    /// There are no names to show.
    NoNames(NoNames),
    /// It can never be used as it is named, and is asked no more.
    Unusable(String),
}

/// Why there are no names to show, although nothing has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoNames {
    /// The local store does not exist yet.
    NoStore(String),
    /// The engine cannot list.
    Unlisted(String),
}

/// A store of the screen.
#[derive(Debug)]
pub(crate) struct StoreView {
    /// Its name on the command line.
    pub(crate) name: String,
    /// Its URL, without a password and escaped.
    pub(crate) url: String,
    pub(crate) state: StoreState,
    /// What the last complete round has shown.
    pub(crate) last_round: Option<RoundView>,
    /// The servers, if it is a quorum.
    #[cfg(feature = "redis")]
    pub(crate) quorum: Option<holdline::redlock::QuorumStatus>,
    /// When the last complete round came.
    last_round_at: Option<Instant>,
    flows: VecDeque<(Instant, Flow)>,
}

impl StoreView {
    /// Makes the state before the first round.
    pub(crate) fn new(name: String, url: String) -> StoreView {
        StoreView {
            name,
            url,
            state: StoreState::Opening,
            last_round: None,
            #[cfg(feature = "redis")]
            quorum: None,
            last_round_at: None,
            flows: VecDeque::new(),
        }
    }

    /// Takes over a complete round.
    pub(crate) fn round(&mut self, round: RoundView, flow: Flow, now: Now) {
        self.state = StoreState::Up;
        self.flows.push_back((now.instant, flow));
        let old = |at: &Instant| now.instant.saturating_duration_since(*at) > RATE_WINDOW;
        while self.flows.len() > MAX_ROUNDS || self.flows.front().is_some_and(|(at, _)| old(at)) {
            self.flows.pop_front();
        }
        self.last_round_at = Some(now.instant);
        self.last_round = Some(round);
    }

    /// Returns the names of the last complete round.
    pub(crate) fn names(&self) -> &[Snapshot] {
        self.last_round.as_ref().map_or(&[], |round| &round.names)
    }

    /// Finds a name.
    pub(crate) fn name(&self, name: &LockName) -> Option<&Snapshot> {
        let found = self.names().binary_search_by(|snapshot| snapshot.name.cmp(name));
        found.ok().map(|at| &self.names()[at])
    }

    /// Counts what was seen.
    pub(crate) fn counts(&self) -> Counts {
        self.names().iter().fold(Counts::default(), |counts, name| Counts {
            held: counts.held + usize::from(name.is_held()),
            waiting: counts.waiting + name.queue_length,
            frozen: counts.frozen + usize::from(name.freeze.is_some()),
        })
    }

    /// Returns how old the last complete round is.
    pub(crate) fn age(&self, now: Now) -> Option<Duration> {
        self.last_round_at.map(|at| now.instant.saturating_duration_since(at))
    }

    /// Returns whether the next round should have come long ago, although none has failed: a disk
    /// that hangs, or a store that is very slow. `interval` is the pause between two rounds.
    pub(crate) fn is_late(&self, interval: Duration, now: Now) -> bool {
        let (Some(age), Some(round)) = (self.age(now), &self.last_round) else { return false };
        let pause = WatchOptions::default().with_interval(interval).pause_after(round.took);
        let due = pause.saturating_add(round.took).saturating_add(LATE_AFTER);
        self.state == StoreState::Up && age > due
    }

    /// Returns the changes in the window, and over how much time they were counted.
    pub(crate) fn rates(&self) -> Option<(Flow, Duration)> {
        let (first, _) = self.flows.front()?;
        let (last, _) = self.flows.back()?;
        let span = last.saturating_duration_since(*first);
        if span.is_zero() {
            return None;
        }
        // What the first round shows happened before the time that is counted.
        let sum = self.flows.iter().skip(1).fold(Flow::default(), |sum, (_, flow)| Flow {
            granted: sum.granted + flow.granted,
            ended: sum.ended + flow.ended,
            queued: sum.queued + flow.queued,
        });
        Some((sum, span))
    }

    /// Returns the grants of each of the last rounds, the newest last.
    pub(crate) fn grants(&self, rounds: usize) -> Vec<u64> {
        let skipped = self.flows.len().saturating_sub(rounds);
        self.flows.iter().skip(skipped).map(|(_, flow)| flow.granted as u64).collect()
    }
}

/// Where a name stands: the position of its store in [`Stores`], and its own in the names of the
/// last complete round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamePosition {
    /// Which store.
    pub(crate) store: usize,
    /// Which of its names.
    pub(crate) name: usize,
}

/// The stores in the order of the command line. There is at least one.
#[derive(Debug)]
pub(crate) struct Stores(pub(crate) Vec<StoreView>);

impl Stores {
    /// Returns whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns the name of a store if there are several; otherwise an empty text.
    pub(crate) fn label(&self, store: usize) -> &str {
        if self.are_several() { &self.0[store].name } else { "" }
    }

    /// Returns a text about a store, behind its name if there are several.
    pub(crate) fn labelled(&self, store: usize, text: &str) -> String {
        match self.label(store) {
            "" => text.to_owned(),
            label => format!("{}: {text}", holdline_core::Escaped(label)),
        }
    }

    /// Returns the name at a position.
    pub(crate) fn at(&self, at: NamePosition) -> &Snapshot {
        &self.0[at.store].names()[at.name]
    }

    /// Returns the names of all stores.
    pub(crate) fn names(&self) -> impl Iterator<Item = (NamePosition, &Snapshot)> {
        self.0.iter().enumerate().flat_map(|(store, view)| {
            let names = view.names().iter().enumerate();
            names.map(move |(name, snapshot)| (NamePosition { store, name }, snapshot))
        })
    }

    /// Counts what was seen in all stores.
    pub(crate) fn counts(&self) -> Counts {
        self.0.iter().map(StoreView::counts).fold(Counts::default(), |sum, counts| Counts {
            held: sum.held + counts.held,
            waiting: sum.waiting + counts.waiting,
            frozen: sum.frozen + counts.frozen,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::round_view;
    use super::*;

    fn later(now: Now, seconds: u64) -> Now {
        let pause = Duration::from_secs(seconds);
        Now { time: now.time + pause, instant: now.instant + pause }
    }

    #[test]
    fn rates_count_what_was_seen_in_the_window_also_when_the_time_of_day_is_set() {
        let mut store = StoreView::new(String::new(), "local:".to_owned());
        let start = Now::read();
        let flow = Flow { granted: 2, ended: 1, queued: 0 };
        for second in 0..200 {
            let mut now = later(start, second);
            if second > 150 {
                now.time -= Duration::from_secs(86_400);
            }
            store.round(round_view(vec![]), flow, now);
        }
        let (flow, span) = store.rates().expect("two rounds");
        assert_eq!((flow, span), (Flow { granted: 120, ended: 60, queued: 0 }, RATE_WINDOW));
        assert_eq!(store.age(later(start, 202)), Some(Duration::from_secs(3)));
    }

    #[test]
    fn a_store_is_late_when_no_round_comes_and_none_fails() {
        let second = Duration::from_secs(1);
        let mut store = StoreView::new(String::new(), "local:".to_owned());
        let start = Now::read();
        assert!(!store.is_late(second, later(start, 999)), "nothing was seen yet");
        let mut slow = round_view(vec![]);
        slow.took = second;
        store.round(slow, Flow::default(), start);
        // A pause of nine times the round, the round, and what is allowed.
        assert!(!store.is_late(second, later(start, 15)));
        assert!(store.is_late(second, later(start, 16)));
        let message = "no answer".to_owned();
        store.state = StoreState::Down { message, since: start.instant };
        assert!(!store.is_late(second, later(start, 16)), "it is down, which says more");
    }
}
