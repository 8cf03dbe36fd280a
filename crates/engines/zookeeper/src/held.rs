//! What this engine knows of the lease ids that were asked through it.
//!
//! - H1: a lease id is noted before its request leaves, so that its undo finds its session.
//! - H2: engines of one process that use the same nodes know the same lease ids: any of them may
//!   renew what another has asked for, since the session is the process's. Another process cannot.
//! - H3: it is forgotten when the store has said that nothing stands under it.
//! - H4: an acquire and a release of one lease id take turns: a request that is under way has made
//!   its node, or never will, before it is asked again or given up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::{FencingToken, Hold, LeaseId, LockName, Moment};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, Notify, OwnedMutexGuard};

use crate::session::Session;
use crate::sessions::{Key, Sessions};
use crate::tombstones::Tombstones;

/// How many lease ids are remembered that were forgotten.
const REMEMBERED: usize = 4_096;

/// What is known of one lease id.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The last part of its node's path; `None` until the servers have answered.
    pub(crate) child: Option<String>,
    /// What its node hangs on.
    pub(crate) session: Arc<Session>,
    /// What keeps it, which a renewal may change.
    pub(crate) group: Key,
    /// Those of the engine that asked for it.
    pub(crate) sessions: Arc<Sessions>,
    /// Where its node stands in the order of all changes: the token, once the name is held.
    pub(crate) czxid: i64,
    /// The token, once it is known that the name is held: then it is, as long as the node is there.
    pub(crate) token: Option<FencingToken>,
    /// Whether it was told that the name is held: that is not taken back.
    pub(crate) told: bool,
    /// How it was asked for.
    pub(crate) asked: Hold,
    /// The hold that the record is known to have.
    pub(crate) terms: Hold,
    /// The version of the record that was last seen.
    pub(crate) version: i32,
    /// What must go before it holds the name.
    pub(crate) blockers: Vec<String>,
    /// Told when the blockers are others.
    pub(crate) changed: Arc<Notify>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct HeldIds {
    by_id: Mutex<HashMap<Id, Held>>,
    /// Those that were forgotten lately: a node that is still seen of them is no other process's.
    before: Mutex<VecDeque<LeaseId>>,
    /// Those that were given up.
    given_up: Mutex<Tombstones>,
    /// Of those for which something is under way.
    turns: Mutex<HashMap<Id, Arc<Turns<()>>>>,
}

/// A lease id, and the name that was asked for by it.
pub(crate) type Id = (LeaseId, LockName);

/// The turn of one verb on a lease id; over when dropped.
pub(crate) struct Turn<'h> {
    held: &'h HeldIds,
    id: Id,
    turns: Arc<Turns<()>>,
    mine: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.mine = None;
        let mut turns = self.held.turns.lock();
        // One is in the map and one here: nobody waits, and under this lock nobody comes.
        if Arc::strong_count(&self.turns) == 2 {
            turns.remove(&self.id);
        }
    }
}

impl Held {
    pub(crate) fn new(
        session: Arc<Session>,
        (group, sessions): (Key, Arc<Sessions>),
        hold: Hold,
    ) -> Held {
        Held {
            child: None,
            session,
            group,
            sessions,
            czxid: 0,
            token: None,
            told: false,
            asked: hold,
            terms: hold,
            version: 0,
            blockers: Vec::new(),
            changed: Arc::default(),
        }
    }

    /// Returns how long it lasts if nobody keeps it.
    pub(crate) fn lasts(&self, now: Moment) -> Duration {
        self.sessions.lasts(self.group, now)
    }

    /// Returns how much may be counted on at `now`: as long as its session stands for certain, and
    /// its group is not ended.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.session.left(now).min(self.lasts(now))
    }

    /// Returns the one node that keeps it waiting as long as it is there. Where any of several may
    /// let it in, there is none.
    pub(crate) fn blocker(&self) -> Option<&String> {
        match (self.token, self.blockers.as_slice()) {
            (None, [one]) => Some(one),
            _ => None,
        }
    }
}

/// Those of this process, by the store that they are of.
static KNOWN: Mutex<Vec<(String, Weak<HeldIds>)>> = Mutex::new(Vec::new());

impl HeldIds {
    /// Returns those of a store.
    pub(crate) fn of(store: &str) -> Arc<HeldIds> {
        let mut known = KNOWN.lock();
        known.retain(|(_, held)| held.strong_count() > 0);
        let found = known.iter().find(|(name, _)| name == store);
        if let Some(held) = found.and_then(|(_, held)| held.upgrade()) {
            return held;
        }
        let held = Arc::new(HeldIds::default());
        known.push((store.to_owned(), Arc::downgrade(&held)));
        held
    }

    /// Waits until no other verb is under way for a lease id (H4).
    pub(crate) async fn turn(&self, name: &LockName, id: LeaseId) -> Turn<'_> {
        let id = (id, name.clone());
        let turns = self.turns.lock().entry(id.clone()).or_default().clone();
        let mut turn = Turn { held: self, id, turns, mine: None };
        turn.mine = Some(turn.turns.clone().lock_owned().await);
        turn
    }

    pub(crate) fn find(&self, name: &LockName, id: LeaseId) -> Option<Held> {
        self.by_id.lock().get(&(id, name.clone())).cloned()
    }

    pub(crate) fn note(&self, name: &LockName, id: LeaseId, held: Held) {
        self.by_id.lock().insert((id, name.clone()), held);
    }

    /// Changes what is known, if the id still is.
    pub(crate) fn update(&self, name: &LockName, id: LeaseId, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.by_id.lock().get_mut(&(id, name.clone())) {
            change(held);
        }
    }

    pub(crate) fn forget(&self, name: &LockName, id: LeaseId) {
        if self.by_id.lock().remove(&(id, name.clone())).is_some() {
            self.remember(id);
        }
    }

    fn remember(&self, id: LeaseId) {
        let mut before = self.before.lock();
        if before.len() >= REMEMBERED {
            before.pop_front();
        }
        before.push_back(id);
    }

    /// Notes that a lease id is given up: nothing is to be made under it any more.
    pub(crate) fn give_up(&self, id: LeaseId, now: Moment) {
        self.given_up.lock().note(id, now);
    }

    /// Tells whether a lease id was given up.
    pub(crate) fn was_given_up(&self, id: LeaseId, now: Moment) -> bool {
        self.given_up.lock().has(id, now)
    }

    /// Tells whether a lease id is one that this process has asked for, as far as it remembers.
    pub(crate) fn was_ours(&self, id: LeaseId) -> bool {
        self.before.lock().contains(&id)
    }

    /// Takes out all for which this is so.
    pub(crate) fn take(&self, wanted: impl Fn(&Held) -> bool) -> Vec<(Id, Held)> {
        let taken: Vec<_> = self.by_id.lock().extract_if(|_, held| wanted(held)).collect();
        taken.iter().for_each(|((id, _), _)| self.remember(*id));
        taken
    }

    /// Tells whether something hangs on a session.
    pub(crate) fn uses(&self, session: &Arc<Session>) -> bool {
        self.by_id.lock().values().any(|held| Arc::ptr_eq(&held.session, session))
    }
}
