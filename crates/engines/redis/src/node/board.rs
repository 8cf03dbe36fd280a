//! Which connection a request takes.
//!
//! - Invariant B1: what must stay *behind* an unanswered request of its lease id takes that one's
//!   connection, as long as that is open; also when it is suspect. What is right in any order
//!   ([`Tie::Again`], [`Tie::Undo`]) does so only while there is no good connection, the first
//!   only after half of its time; an undo is then copied behind whatever hangs elsewhere. So no
//!   request comes to life that nobody undoes.
//! - Invariant B2: all else goes to a good connection only, and waits for one until its deadline,
//!   or until a try to get one has failed.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdline_core::{Certainty, ErrorKind, LockError};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::lane::{Health, Lane, Told};
use super::{Affinity, ServerFacts, Tie};
use crate::error::unavailable;

/// How many old connections are kept for what must go behind their requests.
const MOST_OLD: usize = 4;
/// How many requests may wait for a connection.
const MOST_PARKED: usize = 16_384;

/// What a request is to do.
pub(super) enum Route {
    Take(Arc<Lane>),
    /// Wait until this many tries have been made, or there is a connection.
    Wait {
        tries: u64,
    },
}

#[derive(Default)]
struct State {
    current: Option<Arc<Lane>>,
    old: Vec<Arc<Lane>>,
    facts: Option<Arc<ServerFacts>>,
    /// How many tries to get a connection have ended.
    tries: u64,
    /// Why the last one failed; `None` after a good one.
    failure: Option<LockError>,
    parked: usize,
    closed: bool,
}

/// What the supervisor finds when it looks.
pub(super) enum Found {
    Closed,
    Current(Arc<Lane>),
    /// A new connection is needed.
    Nothing,
}

pub(super) struct Board {
    state: Mutex<State>,
    /// Grows with each change.
    version: AtomicU64,
    /// Requests wait here for a change. They are woken in the order in which they came: the
    /// `watch` of the runtime's crate wakes at random, and no seed would replay that.
    told: Notify,
    /// The supervisor waits here.
    changed: Notify,
}

impl Told for Board {
    fn lane_changed(&self) {
        self.changed.notify_one();
    }
}

impl Board {
    pub(super) fn new() -> Board {
        Board {
            state: Mutex::default(),
            version: AtomicU64::new(0),
            told: Notify::new(),
            changed: Notify::new(),
        }
    }

    pub(super) fn facts(&self) -> Option<Arc<ServerFacts>> {
        self.state.lock().facts.clone()
    }

    /// What is known of the server at the end of the good connection.
    pub(super) fn well(&self) -> Option<Arc<ServerFacts>> {
        let state = self.state.lock();
        let good = state.current.as_ref().filter(|lane| lane.health() == Health::Good);
        good.map(|lane| lane.facts().clone())
    }

    /// Tells whether what failed with this certainty failed for want of a server that answers, and
    /// not because the node was closed. What has left has, only if it hangs: what broke off may be
    /// made again at once.
    pub(super) fn is_without_answers(&self, certainty: Certainty) -> bool {
        let state = self.state.lock();
        let mut all = state.old.iter().chain(&state.current);
        let good = state.current.iter().any(|lane| lane.health() == Health::Good);
        let hangs = all.any(|lane| lane.health() == Health::Suspect);
        !state.closed && !good && (hangs || certainty == Certainty::NotApplied)
    }

    /// The number of the connection that new requests take.
    pub(super) fn current(&self) -> Option<u64> {
        self.state.lock().current.as_ref().map(|lane| lane.id())
    }

    /// Finds the way for a request. `tries` is what an earlier answer told to wait for; one that
    /// is patient does not go behind what hangs while a good connection may come.
    pub(super) fn route(
        &self,
        tie: Tie,
        tries: Option<u64>,
        patient: bool,
    ) -> Result<Route, LockError> {
        let state = self.state.lock();
        let good = || state.current.as_ref().filter(|lane| lane.health() == Health::Good);
        if let Some(lane) = good().filter(|_| tie.overtakes()) {
            return Ok(Route::Take(lane.clone()));
        }
        let failed = tries.is_some_and(|tries| state.tries >= tries) && state.failure.is_some();
        let waits = patient && !failed && !state.closed;
        let behind = |affinity| {
            // A good one is taken anyway if no other owes: its many requests need no look.
            let current = state.current.as_ref().filter(|lane| lane.health() != Health::Good);
            let all = state.old.iter().chain(current);
            all.filter(|_| !waits).find(|lane| lane.owes(affinity))
        };
        // A suspect one among them the supervisor is about to see.
        if let Some(lane) = tie.affinity().and_then(behind).or_else(good) {
            return Ok(Route::Take(lane.clone()));
        }
        if state.closed {
            return Err(unavailable("the engine is closed", Certainty::NotApplied));
        }
        let permanent = |failure: &LockError| {
            matches!(failure.kind(), ErrorKind::Refused { .. } | ErrorKind::Protocol { .. })
        };
        match &state.failure {
            Some(failure) if failed || permanent(failure) => Err(failure.clone()),
            _ => Ok(Route::Wait { tries: tries.unwrap_or(state.tries + 1) }),
        }
    }

    /// Tells whether a request of this affinity is unanswered on any connection.
    pub(super) fn owes(&self, affinity: &Affinity) -> bool {
        let state = self.state.lock();
        state.old.iter().chain(&state.current).any(|lane| lane.owes(affinity))
    }

    /// The connections besides `chosen` on which a request of this affinity is unanswered.
    pub(super) fn owing(&self, affinity: &Affinity, chosen: &Lane) -> Vec<Arc<Lane>> {
        let state = self.state.lock();
        let others = state.old.iter().chain(&state.current).filter(|lane| lane.id() != chosen.id());
        others.filter(|lane| lane.owes(affinity)).cloned().collect()
    }

    /// Counts a request that waits for a connection, until it is dropped.
    pub(super) fn park(&self) -> Result<Parked<'_>, LockError> {
        let mut state = self.state.lock();
        if state.parked >= MOST_PARKED {
            let message = format!("{MOST_PARKED} requests wait for a connection already");
            return Err(unavailable(message, Certainty::NotApplied));
        }
        state.parked += 1;
        drop(state);
        Ok(Parked(self.watch()))
    }

    /// Why there is no connection, for a request whose deadline has passed.
    pub(super) fn excuse(&self) -> Option<LockError> {
        self.state.lock().failure.clone()
    }

    /// Sorts the connections: a suspect one steps aside, a recovered one comes back if it is
    /// needed, and goes when it is not.
    pub(super) fn tend(&self) -> Found {
        let mut state = self.state.lock();
        if state.closed {
            return Found::Closed;
        }
        let mut changed = false;
        if state.current.as_ref().is_some_and(|lane| lane.health() != Health::Good) {
            let lane = state.current.take();
            state.old.extend(lane);
            changed = true;
        }
        state.old.retain(|lane| lane.health() != Health::Closed);
        if state.current.is_none()
            && let Some(place) = state.old.iter().position(|lane| lane.health() == Health::Good)
        {
            let lane = state.old.remove(place);
            lane.revive();
            state.facts = Some(lane.facts().clone());
            state.current = Some(lane);
            changed = true;
        }
        let surplus = state.old.len().saturating_sub(MOST_OLD);
        state.old.drain(..surplus).for_each(|lane| lane.close("too many connections hang"));
        for lane in &state.old {
            if lane.health() == Health::Good && lane.retire() {
                lane.close("the connection is no longer needed");
            }
        }
        let found = match &state.current {
            Some(lane) => Found::Current(lane.clone()),
            None => Found::Nothing,
        };
        drop(state);
        if changed {
            self.tell();
        }
        found
    }

    /// A try has ended well; the connection is refused if the node was closed meanwhile.
    pub(super) fn adopt(&self, lane: Arc<Lane>) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            lane.close("the engine is closed");
            return;
        }
        state.tries += 1;
        state.failure = None;
        state.facts = Some(lane.facts().clone());
        let before = state.current.replace(lane);
        state.old.extend(before);
        drop(state);
        self.tell();
    }

    /// A try has failed.
    pub(super) fn failed(&self, error: LockError) {
        let mut state = self.state.lock();
        state.tries += 1;
        state.failure = Some(error);
        drop(state);
        self.tell();
    }

    /// Ends the connections to all other servers than the one there.
    pub(super) fn leave_all_but(&self, place: Option<&(String, u16)>) {
        let state = self.state.lock();
        let lanes: Vec<_> = state.current.iter().chain(&state.old).cloned().collect();
        drop(state);
        for lane in lanes.iter().filter(|lane| lane.facts().place.as_ref() != place) {
            lane.close("another server is the master now");
        }
        self.changed.notify_one();
    }

    /// Ends everything.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let lanes: Vec<_> = state.current.take().into_iter().chain(state.old.drain(..)).collect();
        drop(state);
        lanes.iter().for_each(|lane| lane.close("the engine is closed"));
        self.changed.notify_one();
        self.tell();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Resolves when something about the connections has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Watches for changes, for others than requests.
    pub(super) fn watch(&self) -> Changes<'_> {
        Changes { board: self, seen: self.version.load(Ordering::SeqCst) }
    }

    fn tell(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.told.notify_waiters();
    }
}

/// The changes from a moment on.
pub(super) struct Changes<'a> {
    board: &'a Board,
    seen: u64,
}

impl Changes<'_> {
    /// Resolves when something has changed since the last time, or since the beginning.
    pub(super) async fn changed(&mut self) {
        loop {
            let mut told = pin!(self.board.told.notified());
            told.as_mut().enable();
            let version = self.board.version.load(Ordering::SeqCst);
            if std::mem::replace(&mut self.seen, version) != version {
                return;
            }
            told.await;
        }
    }
}

/// A request that waits for a connection.
pub(super) struct Parked<'a>(Changes<'a>);

impl Parked<'_> {
    /// Resolves when something has changed since the last time, or since it began to wait.
    pub(super) async fn changed(&mut self) {
        self.0.changed().await;
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.board.state.lock().parked -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::node::Value;
    use crate::node::lane::{Ends, Limit};
    use crate::node::request::Request;
    use crate::node::resp::Frame;

    /// Counts what a lane tells.
    #[derive(Default)]
    struct Counted(AtomicU64);

    impl Told for Counted {
        fn lane_changed(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn lane(id: u64, told: &Arc<Counted>) -> Arc<Lane> {
        let ends = Ends { told: told.clone(), reset: Arc::default() };
        let clock = Arc::new(holdline::ManualClock::new());
        Arc::new(Lane::new(id, ServerFacts::default(), clock, ends, None))
    }

    #[test]
    fn a_connection_that_comes_when_all_is_closed_is_closed_too() {
        let (board, told) = (Board::new(), Arc::default());
        board.close();
        let late = lane(1, &told);
        board.adopt(late.clone());
        assert_eq!((late.health(), board.current()), (Health::Closed, None));
    }

    /// One that was to end as soon as it is empty, and is needed again, is one like any other.
    #[test]
    fn a_connection_that_comes_back_no_longer_tells_that_it_is_empty() {
        let (board, told) = (Board::new(), Arc::default());
        let (first, second) = (lane(1, &told), lane(2, &told));
        let limit = Limit { end: holdline_core::Moment::NEVER, asked: Duration::from_secs(1) };
        let ask = || first.clone().begin(Request::Ping("1"), None, limit).ok();
        board.adopt(first.clone());
        let _hangs = ask().expect("room");
        first.suspect();
        board.tend();
        board.adopt(second.clone());
        first.clear();
        assert!(matches!(board.tend(), Found::Current(lane) if lane.id() == 2));
        second.close("gone");
        assert!(matches!(board.tend(), Found::Current(lane) if lane.id() == 1));
        let before = told.0.load(Ordering::SeqCst);
        let answers = [Frame::Reply(Ok(Value::Nil))].into_iter();
        assert!(first.settle(answers, &mut Vec::new()));
        assert_eq!(told.0.load(Ordering::SeqCst), before);
    }

    #[test]
    fn whoever_waits_no_more_makes_room() {
        let board = Board::new();
        let parked: Vec<_> = (0..MOST_PARKED).map(|_| board.park().expect("room")).collect();
        assert!(board.park().is_err());
        drop(parked);
        assert!(board.park().is_ok());
    }
}
