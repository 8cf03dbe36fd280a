//! What this process knows about the lease ids that it was asked for.
//!
//! - H1: a lease id is recorded before its request is sent, so that a release finds its session.
//! - H2: engines of one process that use the same nodes share the lease ids. Any of them may renew
//!   what another has acquired, since the session belongs to the process. Another process cannot.
//! - H3: it is forgotten when the store has answered that it has no node for it.
//! - H4: an acquire and a release of one lease id exclude each other. So a request has created its
//!   node, or never will, before the lease id is asked for again or given up.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::{FencingToken, Hold, LeaseId, LockName, Metadata, Moment, Purpose};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, Notify, OwnedMutexGuard};

use crate::session::ZooKeeperSession;
use crate::sessions::{Group, ZooKeeperSessions};
use crate::tombstones::Tombstones;

/// How many forgotten lease ids are remembered.
const REMEMBERED: usize = 4_096;

/// How many nodes before its own one a contender looks at, at most. If more exclude it together, it
/// looks at the whole queue.
pub(crate) const MOST_BLOCKERS: usize = 32;

/// What is known about one lease id.
#[derive(Clone, Debug)]
pub(crate) struct KnownContender {
    /// The name of its node in the queue; `None` until the servers have answered.
    pub(crate) child: Option<String>,
    /// The session of its node.
    pub(crate) session: Arc<ZooKeeperSession>,
    /// The group that it expires with, which a renewal may change.
    pub(crate) group: Group,
    /// The sessions of the engine that acquired it.
    pub(crate) sessions: Arc<ZooKeeperSessions>,
    /// The transaction that created the node; it is the token, once the name is held.
    pub(crate) czxid: i64,
    /// The token, once the name is known to be held. It stays held for as long as the node exists.
    pub(crate) token: Option<FencingToken>,
    /// Whether a reply has reported the grant: it is not taken back.
    pub(crate) reported: bool,
    /// The hold of the first request.
    pub(crate) asked: Hold,
    /// The hold in the record, as far as known.
    pub(crate) terms: Hold,
    /// What the contender reports about itself.
    pub(crate) metadata: Metadata,
    /// The newest known version of the record.
    pub(crate) version: i32,
    /// The nodes that together exclude it: one of them must be deleted before it holds the name.
    pub(crate) blockers: Vec<String>,
    /// Notified when the blockers change.
    pub(crate) changed: Arc<Notify>,
}

/// All known lease ids.
#[derive(Default)]
pub(crate) struct KnownContenders {
    by_id: Mutex<HashMap<Id, KnownContender>>,
    /// Those that were forgotten recently: a node of theirs does not belong to another process.
    before: Mutex<VecDeque<LeaseId>>,
    /// Those that were given up.
    given_up: Mutex<Tombstones>,
    /// The mutexes of those that have a verb in progress (H4).
    turns: Mutex<HashMap<Id, Arc<Turns<()>>>>,
}

/// A lease id, and the name that was asked for by it.
pub(crate) type Id = (LeaseId, LockName);

/// Excludes other verbs on a lease id until it is dropped (H4).
pub(crate) struct LeaseIdTurn<'h> {
    contenders: &'h KnownContenders,
    id: Id,
    turns: Arc<Turns<()>>,
    mine: Option<OwnedMutexGuard<()>>,
}

impl Drop for LeaseIdTurn<'_> {
    fn drop(&mut self) {
        self.mine = None;
        let mut turns = self.contenders.turns.lock();
        // One reference is in the map and one here: no verb waits. With the map locked, none can
        // come.
        if Arc::strong_count(&self.turns) == 2 {
            turns.remove(&self.id);
        }
    }
}

impl KnownContender {
    pub(crate) fn new(
        session: Arc<ZooKeeperSession>,
        group: Group,
        sessions: Arc<ZooKeeperSessions>,
        hold: Hold,
        metadata: Metadata,
    ) -> KnownContender {
        KnownContender {
            child: None,
            session,
            group,
            sessions,
            czxid: 0,
            token: None,
            reported: false,
            asked: hold,
            terms: hold,
            metadata,
            version: 0,
            blockers: Vec::new(),
            changed: Arc::default(),
        }
    }

    /// Returns how long it lasts if it is not renewed.
    pub(crate) fn lasts(&self, now: Moment) -> Duration {
        self.sessions.lasts(self.group, now)
    }

    /// Returns how much may be counted on at `now`: as long as its session certainly exists, and
    /// its group does not expire.
    pub(crate) fn left(&self, now: Moment) -> Duration {
        self.session.left(now).min(self.lasts(now))
    }

    /// Returns whether both have the same node in the same session.
    pub(crate) fn has_node_of(&self, other: &KnownContender) -> bool {
        self.child == other.child && Arc::ptr_eq(&self.session, &other.session)
    }

    /// Returns whether a renewal with this purpose needs a proof of its session: that of a waiter
    /// does not (R4 of `renew`).
    pub(crate) fn needs_proof(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Keep(_) => true,
            Purpose::Wait => self.token.is_some(),
        }
    }

    /// Returns the nodes that exclude it for as long as all of them exist. None if it holds the
    /// name, or if they are more than are looked at one by one.
    pub(crate) fn few_blockers(&self) -> &[String] {
        if self.token.is_some() || self.blockers.len() > MOST_BLOCKERS {
            return &[];
        }
        &self.blockers
    }
}

/// The lease ids of this process, by their store.
static KNOWN: Mutex<Vec<(String, Weak<KnownContenders>)>> = Mutex::new(Vec::new());

impl KnownContenders {
    /// Returns the lease ids of a store.
    pub(crate) fn of(store: &str) -> Arc<KnownContenders> {
        let mut known = KNOWN.lock();
        known.retain(|(_, contenders)| contenders.strong_count() > 0);
        let found = known.iter().find(|(name, _)| name == store);
        if let Some(contenders) = found.and_then(|(_, contenders)| contenders.upgrade()) {
            return contenders;
        }
        let contenders = Arc::new(KnownContenders::default());
        known.push((store.to_owned(), Arc::downgrade(&contenders)));
        contenders
    }

    /// Waits until no other verb is in progress on a lease id (H4).
    pub(crate) async fn turn(&self, name: &LockName, id: LeaseId) -> LeaseIdTurn<'_> {
        let id = (id, name.clone());
        let turns = self.turns.lock().entry(id.clone()).or_default().clone();
        let mut turn = LeaseIdTurn { contenders: self, id, turns, mine: None };
        turn.mine = Some(turn.turns.clone().lock_owned().await);
        turn
    }

    pub(crate) fn find(&self, name: &LockName, id: LeaseId) -> Option<KnownContender> {
        self.by_id.lock().get(&(id, name.clone())).cloned()
    }

    pub(crate) fn note(&self, name: &LockName, id: LeaseId, contender: KnownContender) {
        self.by_id.lock().insert((id, name.clone()), contender);
    }

    /// Changes what is known, if the id is known.
    pub(crate) fn update(
        &self,
        name: &LockName,
        id: LeaseId,
        change: impl FnOnce(&mut KnownContender),
    ) {
        if let Some(contender) = self.by_id.lock().get_mut(&(id, name.clone())) {
            change(contender);
        }
    }

    pub(crate) fn forget(&self, name: &LockName, id: LeaseId) {
        if self.by_id.lock().remove(&(id, name.clone())).is_some() {
            self.remember(id);
        }
    }

    /// Forgets a lease id, unless its node is another one than was seen.
    pub(crate) fn forget_seen(&self, name: &LockName, id: LeaseId, seen: &KnownContender) {
        let mut by_id = self.by_id.lock();
        let same =
            by_id.get(&(id, name.clone())).is_some_and(|contender| contender.has_node_of(seen));
        if same {
            by_id.remove(&(id, name.clone()));
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

    /// Records that a lease id is given up: no node is created under it any more.
    pub(crate) fn give_up(&self, id: LeaseId, now: Moment) {
        self.given_up.lock().note(id, now);
    }

    /// Returns whether a lease id was given up.
    pub(crate) fn was_given_up(&self, id: LeaseId, now: Moment) -> bool {
        self.given_up.lock().has(id, now)
    }

    /// Returns whether this process has asked for a lease id, as far as it remembers.
    pub(crate) fn was_ours(&self, id: LeaseId) -> bool {
        self.before.lock().contains(&id)
    }

    /// Removes the contenders of expired groups.
    pub(crate) fn take_groups(
        &self,
        sessions: &Arc<ZooKeeperSessions>,
        over: &[Group],
    ) -> Vec<(Id, KnownContender)> {
        let is_over = |contender: &KnownContender| {
            Arc::ptr_eq(&contender.sessions, sessions) && over.contains(&contender.group)
        };
        let taken: Vec<_> =
            self.by_id.lock().extract_if(|_, contender| is_over(contender)).collect();
        taken.iter().for_each(|((id, _), _)| self.remember(*id));
        taken
    }

    /// Returns whether a contender belongs to a session.
    pub(crate) fn uses(&self, session: &Arc<ZooKeeperSession>) -> bool {
        self.by_id.lock().values().any(|contender| Arc::ptr_eq(&contender.session, session))
    }
}
