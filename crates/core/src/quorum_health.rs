//! The state of the servers of a quorum, as a client last saw them, for those who watch over them.
//!
//! A client of a quorum learns it from the answers that it needs anyway: nothing here asks a
//! server. The engine [reports](HealthFeed::report) to a feed, and the library passes each report
//! to its observers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuorumHealth {
    /// The engine's short name, such as `redlock`.
    pub engine: &'static str,
    /// How many nodes more than a majority vote. At 0 no node may fail; below 0 nothing can be
    /// acquired or renewed.
    pub margin: i32,
    /// The nodes, in the order of the list.
    pub nodes: Vec<NodeHealth>,
}

/// The state of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHealth {
    /// Its address, such as `host:port`; without user and password.
    pub address: String,
    /// Whether it answered the last time that it was asked.
    pub up: bool,
    /// Whether it votes.
    pub votes: bool,
    /// The rest of its quarantine; zero without one.
    pub quarantine: Duration,
    /// How far its clock is ahead of the median of the nodes' clocks, in microseconds; negative if
    /// it is behind. `None` if it does not answer.
    pub clock_drift_us: Option<i64>,
}

impl QuorumHealth {
    /// Puts a report together.
    pub fn new(engine: &'static str, margin: i32, nodes: Vec<NodeHealth>) -> QuorumHealth {
        QuorumHealth { engine, margin, nodes }
    }
}

/// Receives reports; `false` ends its subscription.
type Listener = Arc<dyn Fn(&QuorumHealth) -> bool + Send + Sync>;

/// Passes the reports of one engine to those who listen. Clones are the same feed.
#[derive(Clone, Default)]
pub struct HealthFeed(Arc<Mutex<Subscribers>>);

#[derive(Default)]
struct Subscribers {
    last: Option<QuorumHealth>,
    listeners: Vec<Listener>,
}

impl HealthFeed {
    /// Passes the last report, if there is one, and each further one to a listener, until it
    /// returns `false`. It is called from the engine's tasks, without a lock of the feed.
    pub fn subscribe(&self, listener: impl Fn(&QuorumHealth) -> bool + Send + Sync + 'static) {
        let listener: Listener = Arc::new(listener);
        let last = {
            let mut subscribers = self.lock();
            subscribers.listeners.push(listener.clone());
            subscribers.last.clone()
        };
        if last.is_some_and(|last| !listener(&last)) {
            self.remove(&[listener]);
        }
    }

    /// Reports the present state.
    pub fn report(&self, health: &QuorumHealth) {
        let listeners = {
            let mut subscribers = self.lock();
            subscribers.last = Some(health.clone());
            subscribers.listeners.clone()
        };
        let ended: Vec<Listener> =
            listeners.into_iter().filter(|listener| !listener(health)).collect();
        self.remove(&ended);
    }

    fn remove(&self, ended: &[Listener]) {
        if !ended.is_empty() {
            let is_over = |one: &Listener| ended.iter().any(|other| Arc::ptr_eq(one, other));
            self.lock().listeners.retain(|one| !is_over(one));
        }
    }

    /// A panic of a listener leaves the list as it was, so the feed goes on.
    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for HealthFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HealthFeed").field("last", &self.lock().last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_receives_the_last_report_and_each_further_one_until_it_ends() {
        let feed = HealthFeed::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let report = |margin| QuorumHealth::new("redlock", margin, Vec::new());
        feed.report(&report(1));
        let notes = seen.clone();
        feed.subscribe(move |health| {
            notes.lock().expect("no panic").push(health.margin);
            health.margin >= 0
        });
        for margin in [0, -1, 1] {
            feed.report(&report(margin));
        }
        assert_eq!(*seen.lock().expect("no panic"), [1, 0, -1]);
        feed.subscribe(|health| {
            assert_eq!(health.margin, 1, "the last one");
            false
        });
        assert!(feed.lock().listeners.is_empty(), "both have ended");
    }

    #[test]
    fn a_listener_may_use_the_feed() {
        let feed = HealthFeed::default();
        let same = feed.clone();
        feed.subscribe(move |_| {
            same.subscribe(|_| true);
            true
        });
        feed.report(&QuorumHealth::new("redlock", 0, Vec::new()));
        assert_eq!(feed.lock().listeners.len(), 2, "one has subscribed the other");
    }
}
