//! What this process knows about the lease ids that it was asked for.
//!
//! - H1: a lease id is recorded before its request is sent, so that a release finds its session.
//! - H2: engines of one process that use the same nodes share the lease ids. Any of them may renew
//!   what another has acquired, since the session belongs to the process. Another process cannot.
//! - H3: it is forgotten when the store has answered that it has no node for it.
//! - H4: an acquire and a release of one lease id exclude each other. So a request has created its
//!   node, or never will, before the lease id is asked for again or given up.
//! - H5: what is before a contender only leaves. So a contender that is `is_next` holds the name
//!   when one of its blockers is deleted. The process learns that from an event, or from the reply
//!   to a release of its own, and needs no read. Exclusion relies on the contender's own node, and
//!   that on the proof of its session.
//! - H6: such a grant is answered once, within [`MEMORY`]. After that, or if an operator has
//!   revoked it meanwhile, the servers are asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdline_core::{
    FencingToken, Hold, LeaseId, LockError, LockName, Metadata, Mode, Moment, Purpose,
};
use parking_lot::Mutex;
use tokio::sync::{Mutex as Turns, Notify, OwnedMutexGuard};

use crate::keys::{ParsedNode, parse_node};
use crate::queue::{Queue, QueueEntry, token};
use crate::session::ZooKeeperSession;
use crate::sessions::{Group, ZooKeeperSessions};
use crate::tombstones::Tombstones;

/// How many forgotten lease ids are remembered.
const REMEMBERED: usize = 4_096;

/// How many nodes before its own one a contender looks at, at most. If more exclude it together, it
/// looks at the whole queue.
pub(crate) const MOST_BLOCKERS: usize = 32;

/// How long a grant that was learned without a read is answered from memory (H6).
const MEMORY: Duration = Duration::from_millis(100);

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
    /// Whether it holds the name as soon as one of them is deleted (H5).
    is_next: bool,
    /// Whether all nodes before it were of this process.
    only_ours_before: bool,
    /// When it was learned that it holds the name, if no reply has reported it yet (H6).
    learned_at: Option<Moment>,
    /// Whether its node was deleted by others, as far as known.
    is_doubtful: bool,
    /// Notified when the blockers change.
    pub(crate) changed: Arc<Notify>,
}

/// All known lease ids.
#[derive(Default)]
pub(crate) struct KnownContenders {
    by_name: Mutex<HashMap<LockName, OfOneName>>,
    /// Those that were forgotten recently: a node of theirs does not belong to another process.
    before: Mutex<VecDeque<LeaseId>>,
    /// Those that were given up.
    given_up: Mutex<Tombstones>,
    /// The mutexes of those that have a verb in progress (H4).
    turns: Mutex<HashMap<Id, Arc<Turns<()>>>>,
}

/// The contenders for one name.
type OfOneName = HashMap<LeaseId, KnownContender>;

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
            is_next: false,
            only_ours_before: false,
            learned_at: None,
            is_doubtful: false,
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

    /// Returns the mode of its node.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.node().map(|node| node.mode)
    }

    fn node(&self) -> Option<ParsedNode> {
        parse_node(self.child.as_ref()?)
    }

    /// Returns whether it waits, and all before it were of this process when it was last read.
    pub(crate) fn is_behind_ours(&self) -> bool {
        self.only_ours_before && self.token.is_none() && !self.is_doubtful
    }

    fn number(&self) -> Option<i64> {
        self.node().map(|node| node.number)
    }

    /// Returns whether no other contender can hold the name beside it.
    fn holds_alone(&self) -> bool {
        self.token.is_some() && self.mode() == Some(Mode::Exclusive) && !self.is_doubtful
    }

    /// Records that it holds the name.
    fn hold(&mut self, now: Moment) -> Result<(), LockError> {
        if self.token.is_none() {
            self.token = Some(token(self.czxid)?);
            self.learned_at = Some(now);
        }
        self.blockers.clear();
        Ok(())
    }

    /// Records that a reply has reported the grant.
    pub(crate) fn report(&mut self) {
        self.reported = true;
        self.learned_at = None;
    }

    /// Records that its own node may be gone. What is known proves nothing any more.
    pub(crate) fn doubt(&mut self) {
        self.is_doubtful = true;
        self.blockers.clear();
        self.learned_at = None;
    }

    /// Records that it holds the name, if this node was all that it still waited for (H5). Returns
    /// whether it does.
    fn outlive(&mut self, child: &str, was_alone: bool, now: Moment) -> bool {
        if !(self.is_next || was_alone) || !self.blockers.iter().any(|one| one == child) {
            return false;
        }
        // A transaction that is no token is reported when the servers are asked.
        self.hold(now).is_ok()
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
        self.by_name.lock().get(name)?.get(&id).cloned()
    }

    pub(crate) fn note(&self, name: &LockName, id: LeaseId, contender: KnownContender) {
        self.by_name.lock().entry(name.clone()).or_default().insert(id, contender);
    }

    /// Changes what is known, if the id is known.
    pub(crate) fn update(
        &self,
        name: &LockName,
        id: LeaseId,
        change: impl FnOnce(&mut KnownContender),
    ) {
        if let Some(contender) = self.by_name.lock().get_mut(name).and_then(|of| of.get_mut(&id)) {
            change(contender);
        }
    }

    pub(crate) fn forget(&self, name: &LockName, id: LeaseId) {
        self.remove(name, id, |_| true);
    }

    /// Forgets a lease id, unless its node is another one than was seen.
    pub(crate) fn forget_seen(&self, name: &LockName, id: LeaseId, seen: &KnownContender) {
        self.remove(name, id, |contender| contender.has_node_of(seen));
    }

    fn remove(&self, name: &LockName, id: LeaseId, is_it: impl FnOnce(&KnownContender) -> bool) {
        let mut by_name = self.by_name.lock();
        let Some(of_name) = by_name.get_mut(name) else { return };
        if of_name.get(&id).is_some_and(is_it) {
            of_name.remove(&id);
            if of_name.is_empty() {
                by_name.remove(name);
            }
            self.remember(id);
        }
    }

    /// Records what a read has shown of a contender: that it holds the name, or what excludes it.
    pub(crate) fn learn(
        &self,
        name: &LockName,
        id: LeaseId,
        queue: &Queue,
        now: Moment,
    ) -> Result<(), LockError> {
        let Some((entry, waits)) = queue.find(id) else { return Ok(()) };
        let mut by_name = self.by_name.lock();
        let Some(of_name) = by_name.get_mut(name) else { return Ok(()) };
        let is_ours = |one: &QueueEntry| {
            let known = of_name.get(&one.parsed.id);
            known.is_some_and(|known| known.child.as_ref() == Some(&one.child))
        };
        let mut before = queue.contenders().iter().take_while(|one| one.child != entry.child);
        let only_ours_before = before.all(is_ours);
        let Some(contender) = of_name.get_mut(&id) else { return Ok(()) };
        contender.child = Some(entry.child.clone());
        if waits.is_none() {
            return contender.hold(now);
        }
        // It holds the name, and the read is of a member that does not know it yet.
        if contender.token.is_some() {
            return Ok(());
        }
        let blockers: Vec<_> = queue.blockers(id).iter().map(|one| one.child.clone()).collect();
        contender.only_ours_before = only_ours_before;
        contender.is_next = queue.is_next(id);
        if contender.blockers != blockers {
            contender.blockers = blockers;
            contender.changed.notify_one();
        }
        Ok(())
    }

    /// Records the node of a contender for an exclusive lock that was just created, if it is
    /// directly behind another one of this process, and only such are before that: then nothing is
    /// read. Returns how many wait before it, and the node of the holder. `limit`: how many may
    /// wait.
    ///
    /// The number before its own one belongs to no other node. If that contender is about to leave,
    /// [`leave`](Self::leave) finds this one.
    pub(crate) fn stand_behind_ours(
        &self,
        name: &LockName,
        id: LeaseId,
        number: i64,
        limit: usize,
    ) -> Option<(usize, String)> {
        let mut by_name = self.by_name.lock();
        let of_name = by_name.get_mut(name)?;
        let ahead = of_name.values().find(|known| known.number() == Some(number - 1))?;
        let blocker = ahead.child.clone()?;
        let is_next = ahead.holds_alone();
        if !is_next && !ahead.is_behind_ours() {
            return None;
        }
        let holder = of_name.values().find(|known| known.holds_alone())?.child.clone()?;
        let waits_before = |known: &&KnownContender| {
            known.token.is_none() && known.number().is_some_and(|before| before < number)
        };
        let waiting = of_name.values().filter(waits_before).count();
        if waiting >= limit {
            return None;
        }
        let contender = of_name.get_mut(&id)?;
        contender.blockers = vec![blocker];
        contender.is_next = is_next;
        contender.only_ours_before = true;
        Some((waiting, holder))
    }

    /// Returns whether a new contender is likely to stand directly behind one of this process.
    pub(crate) fn ends_with_ours(&self, name: &LockName) -> bool {
        let by_name = self.by_name.lock();
        let Some(of_name) = by_name.get(name) else { return false };
        let last = of_name.values().max_by_key(|known| known.number());
        last.is_some_and(|last| last.holds_alone() || last.is_behind_ours())
    }

    /// Forgets a lease id that has no node any more. If the servers have `deleted` it just now,
    /// those contenders of this process that waited for that alone hold the name (H5). If there was
    /// none, its number may be of an earlier node of the queue, and proves nothing.
    pub(crate) fn leave(&self, name: &LockName, id: LeaseId, deleted: bool, now: Moment) {
        if deleted
            && let Some(of_name) = self.by_name.lock().get_mut(name)
            && let Some(gone) = of_name.get(&id)
            && let Some(child) = gone.child.clone()
        {
            let was_alone = gone.holds_alone();
            for contender in of_name.values_mut() {
                if contender.outlive(&child, was_alone, now) {
                    contender.changed.notify_one();
                }
            }
        }
        self.forget(name, id);
    }

    /// Returns whether a contender is known to hold the name.
    pub(crate) fn holds(&self, name: &LockName, id: LeaseId) -> bool {
        self.find(name, id).is_some_and(|contender| contender.token.is_some())
    }

    /// Records that a node was deleted that excludes a contender. Returns whether the contender is
    /// known to hold the name now (H5).
    pub(crate) fn outlive(&self, name: &LockName, id: LeaseId, child: &str, now: Moment) -> bool {
        let mut by_name = self.by_name.lock();
        let contender = by_name.get_mut(name).and_then(|of_name| of_name.get_mut(&id));
        contender.is_some_and(|known| known.token.is_some() || known.outlive(child, false, now))
    }

    /// Returns a contender that is known to hold the name, and whose grant may be answered without
    /// a request: once, soon, and while no other verb is in progress on its lease id (H4, H6).
    pub(crate) fn take_learned(
        &self,
        name: &LockName,
        id: LeaseId,
        now: Moment,
    ) -> Option<KnownContender> {
        if self.turns.lock().contains_key(&(id, name.clone())) || self.was_given_up(id, now) {
            return None;
        }
        let mut by_name = self.by_name.lock();
        let contender = by_name.get_mut(name)?.get_mut(&id)?;
        let learned_at = contender.learned_at.take()?;
        (now < learned_at.after(MEMORY)).then(|| contender.clone())
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
        let mut taken = Vec::new();
        self.by_name.lock().retain(|name, of_name| {
            let of_group = of_name.extract_if(|_, contender| is_over(contender));
            taken.extend(of_group.map(|(id, contender)| ((id, name.clone()), contender)));
            !of_name.is_empty()
        });
        taken.iter().for_each(|((id, _), _)| self.remember(*id));
        taken
    }

    /// Returns whether a contender belongs to a session.
    pub(crate) fn uses(&self, session: &Arc<ZooKeeperSession>) -> bool {
        let by_name = self.by_name.lock();
        let mut all = by_name.values().flat_map(HashMap::values);
        all.any(|contender| Arc::ptr_eq(&contender.session, session))
    }
}
