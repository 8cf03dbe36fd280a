//! Which connection a request takes.
//!
//! - Invariant B1: a request that must stay *behind* an unanswered request of its lease id takes
//!   the same connection while that is open, even if it is suspect. A request that is correct in
//!   any order ([`RoutingPolicy::Retry`], [`RoutingPolicy::Undo`]) does so only while no
//!   connection is healthy; a retry first waits for one, for half of its time. An undo is also
//!   copied behind every unanswered request of its lease id. So each request that is carried out
//!   late is undone.
//! - Invariant B2: every other request takes a healthy connection only. It waits for one until its
//!   deadline, or until an attempt to connect has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::{Certainty, ErrorKind, LockError};
use holdline_net::notify::wait_for;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::connection::{Connection, ConnectionObserver};
use super::health::Health;
use super::{Affinity, RoutingPolicy, ServerFacts};
use crate::error::unavailable;

/// How many old connections are kept for requests that must go behind theirs.
const MAX_OLD: usize = 4;

/// What a request does next.
pub(super) enum Route {
    Use(Arc<Connection>),
    /// Wait until this many attempts to connect have ended, or until there is a connection.
    Wait {
        attempts: u64,
    },
}

#[derive(Default)]
struct RoutedConnections {
    current: Option<Arc<Connection>>,
    old: Vec<Arc<Connection>>,
    facts: Option<Arc<ServerFacts>>,
    /// How many attempts to connect have ended.
    attempts: u64,
    /// Why the last one failed; `None` after a success.
    last_error: Option<LockError>,
    closed: bool,
}

/// What the supervisor finds.
pub(super) enum RouterState {
    Closed,
    Current(Arc<Connection>),
    /// A new connection is needed.
    Nothing,
}

pub(super) struct ConnectionRouter {
    state: Mutex<RoutedConnections>,
    /// Grows with each change.
    version: AtomicU64,
    /// Wakes the requests that wait for a change, in the order in which they came. The order of
    /// `tokio::sync::watch` is random, which no seed would replay.
    changes: Notify,
    /// Wakes the supervisor.
    supervisor_wake: Notify,
}

impl ConnectionObserver for ConnectionRouter {
    fn connection_changed(&self) {
        self.supervisor_wake.notify_one();
    }
}

impl ConnectionRouter {
    pub(super) fn new() -> ConnectionRouter {
        ConnectionRouter {
            state: Mutex::default(),
            version: AtomicU64::new(0),
            changes: Notify::new(),
            supervisor_wake: Notify::new(),
        }
    }

    pub(super) fn facts(&self) -> Option<Arc<ServerFacts>> {
        self.state.lock().facts.clone()
    }

    /// Returns what is known of the server of the healthy connection.
    pub(super) fn healthy(&self) -> Option<Arc<ServerFacts>> {
        let state = self.state.lock();
        let good = state.current.as_ref().filter(|one| one.is_good());
        good.map(|connection| connection.facts().clone())
    }

    /// Returns whether a request that failed with this certainty failed because no server answers,
    /// and not because the link was closed. For a request that was sent, that is so only while a
    /// connection is suspect: a connection that broke may be replaced at once.
    pub(super) fn is_without_answers(&self, certainty: Certainty) -> bool {
        let state = self.state.lock();
        let mut all = state.old.iter().chain(&state.current);
        let good = state.current.iter().any(|one| one.is_good());
        let hangs = all.any(|connection| connection.health() == Health::Suspect);
        !state.closed && !good && (hangs || certainty == Certainty::NotApplied)
    }

    /// Returns how long the last round trip to the server took that was measured.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let state = self.state.lock();
        let newest = state.current.as_ref().or(state.old.last());
        let before = state.facts.as_ref().map(|facts| facts.round_trip);
        newest.map(|connection| connection.round_trip()).or(before)
    }

    /// Returns the number of the connection that new requests take.
    pub(super) fn current(&self) -> Option<u64> {
        self.state.lock().current.as_ref().map(|connection| connection.id())
    }

    /// Chooses the connection for a request. `attempts` is from an earlier [`Route::Wait`]. If
    /// `waits`, the request does not go behind an unanswered one while a healthy connection may
    /// still come.
    pub(super) fn route(
        &self,
        routing: RoutingPolicy,
        attempts: Option<u64>,
        waits: bool,
    ) -> Result<Route, LockError> {
        let state = self.state.lock();
        let good = || state.current.as_ref().filter(|one| one.is_good());
        if let Some(connection) = good().filter(|_| routing.overtakes()) {
            return Ok(Route::Use(connection.clone()));
        }
        let failed = attempts.is_some_and(|attempts| state.attempts >= attempts)
            && state.last_error.is_some();
        let waits = waits && !failed && !state.closed;
        let unanswered_on = |affinity| {
            // The healthy one is the default anyway: its many requests need no search.
            let current = state.current.as_ref().filter(|one| !one.is_good());
            let all = state.old.iter().chain(current);
            all.filter(|_| !waits).find(|connection| connection.has_unanswered(affinity))
        };
        // The supervisor is about to replace a suspect one.
        if let Some(connection) = routing.affinity().and_then(unanswered_on).or_else(good) {
            return Ok(Route::Use(connection.clone()));
        }
        if state.closed {
            return Err(unavailable("the engine is closed", Certainty::NotApplied));
        }
        let permanent = |error: &LockError| {
            matches!(error.kind(), ErrorKind::Refused { .. } | ErrorKind::Protocol { .. })
        };
        match &state.last_error {
            Some(error) if failed || permanent(error) => Err(error.clone()),
            _ => Ok(Route::Wait { attempts: attempts.unwrap_or(state.attempts + 1) }),
        }
    }

    /// Returns whether a request of this affinity is unanswered on any connection.
    pub(super) fn has_unanswered(&self, affinity: &Affinity) -> bool {
        let state = self.state.lock();
        state.old.iter().chain(&state.current).any(|connection| connection.has_unanswered(affinity))
    }

    /// Returns the healthy connection if it has this number.
    pub(super) fn good(&self, id: u64) -> Option<Arc<Connection>> {
        let state = self.state.lock();
        let current = state.current.as_ref().filter(|connection| connection.is_good())?;
        (current.id() == id).then(|| current.clone())
    }

    /// Returns whether the healthy connection has an unanswered request of this affinity.
    pub(super) fn is_unanswered_on_good(&self, affinity: &Affinity) -> bool {
        let state = self.state.lock();
        let good = state.current.as_ref().filter(|connection| connection.is_good());
        good.is_some_and(|connection| connection.has_unanswered(affinity))
    }

    /// Returns the newest connection that is open and does not answer.
    pub(super) fn newest_suspect(&self) -> Option<Arc<Connection>> {
        let state = self.state.lock();
        let mut all = state.current.iter().chain(state.old.iter().rev());
        all.find(|connection| connection.health() == Health::Suspect).cloned()
    }

    /// Returns the connections besides `chosen` on which a request of this affinity is unanswered.
    pub(super) fn others_with_unanswered(
        &self,
        affinity: &Affinity,
        chosen: &Connection,
    ) -> Vec<Arc<Connection>> {
        let state = self.state.lock();
        let others = state
            .old
            .iter()
            .chain(&state.current)
            .filter(|connection| connection.id() != chosen.id());
        others.filter(|connection| connection.has_unanswered(affinity)).cloned().collect()
    }

    /// Returns why the last attempt to connect failed.
    pub(super) fn last_error(&self) -> Option<LockError> {
        self.state.lock().last_error.clone()
    }

    /// Updates the choice: a suspect connection is set aside; one that has recovered is used again
    /// if it is needed, and closed if it is not.
    pub(super) fn maintain(&self) -> RouterState {
        let mut state = self.state.lock();
        if state.closed {
            return RouterState::Closed;
        }
        let mut changed = false;
        if state.current.as_ref().is_some_and(|one| !one.is_good()) {
            let connection = state.current.take();
            state.old.extend(connection);
            changed = true;
        }
        state.old.retain(|connection| connection.health() != Health::Closed);
        if state.current.is_none()
            && let Some(index) = state.old.iter().position(|one| one.is_good())
        {
            let connection = state.old.remove(index);
            connection.reinstate();
            state.facts = Some(connection.facts().clone());
            state.current = Some(connection);
            changed = true;
        }
        let surplus = state.old.len().saturating_sub(MAX_OLD);
        state
            .old
            .drain(..surplus)
            .for_each(|connection| connection.close("too many connections hang"));
        for connection in &state.old {
            if connection.is_good() && connection.retire() {
                connection.close("the connection is no longer needed");
            }
        }
        let found = match &state.current {
            Some(connection) => RouterState::Current(connection.clone()),
            None => RouterState::Nothing,
        };
        drop(state);
        if changed {
            self.notify_requests();
        }
        found
    }

    /// Adds a new connection; closes it if the link was closed meanwhile.
    pub(super) fn add(&self, connection: Arc<Connection>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            connection.close("the engine is closed");
            return;
        }
        state.attempts += 1;
        state.last_error = None;
        state.facts = Some(connection.facts().clone());
        let before = state.current.replace(connection);
        state.old.extend(before);
        drop(state);
        self.notify_requests();
    }

    /// Records that an attempt to connect has failed.
    pub(super) fn record_failure(&self, error: LockError) {
        let mut state = self.state.lock();
        state.attempts += 1;
        state.last_error = Some(error);
        drop(state);
        self.notify_requests();
    }

    /// Ends the connections to all servers but this one.
    pub(super) fn close_all_except(&self, host_port: Option<&(String, u16)>) {
        let state = self.state.lock();
        let connections: Vec<_> = state.current.iter().chain(&state.old).cloned().collect();
        drop(state);
        for connection in connections
            .iter()
            .filter(|connection| connection.facts().host_port.as_ref() != host_port)
        {
            connection.close("another server is the master now");
        }
        self.supervisor_wake.notify_one();
    }

    /// Ends the connections to all runs of the server but this one.
    pub(super) fn close_other_runs(&self, run_id: Option<&str>) {
        let state = self.state.lock();
        let connections: Vec<_> = state.current.iter().chain(&state.old).cloned().collect();
        drop(state);
        for connection in connections.iter().filter(|other| !other.facts().is_of(run_id)) {
            connection.close("the server was restarted, or is another");
        }
        self.supervisor_wake.notify_one();
    }

    /// Ends everything.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let connections: Vec<_> =
            state.current.take().into_iter().chain(state.old.drain(..)).collect();
        drop(state);
        connections.iter().for_each(|connection| connection.close("the engine is closed"));
        self.supervisor_wake.notify_one();
        self.notify_requests();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Resolves when the supervisor has something to do.
    pub(super) async fn needs_supervisor(&self) {
        self.supervisor_wake.notified().await;
    }

    /// Watches for changes from now on.
    pub(super) fn watch(&self) -> RouterChanges<'_> {
        RouterChanges { router: self, seen: self.version.load(Ordering::SeqCst) }
    }

    fn notify_requests(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changes.notify_waiters();
    }
}

/// The changes from a moment on.
pub(super) struct RouterChanges<'a> {
    router: &'a ConnectionRouter,
    seen: u64,
}

impl RouterChanges<'_> {
    /// Resolves when something has changed since the last time, or since the beginning.
    pub(super) async fn changed(&mut self) {
        let seen = self.seen;
        let newer = || {
            let version = self.router.version.load(Ordering::SeqCst);
            (version != seen).then_some(version)
        };
        self.seen = wait_for(&self.router.changes, newer).await;
    }
}

#[cfg(test)]
mod tests;
