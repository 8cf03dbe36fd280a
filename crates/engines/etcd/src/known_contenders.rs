//! What this engine knows about the lease ids that it was asked for.
//!
//! - H1: a lease id is recorded before its request is sent, so that a release finds its key.
//! - H2: it is forgotten when the store has answered that it has no key for it, and the number in
//!   its key is free again.
//! - H3: while a request without a reply may still make the key, the entry and its number stay. A
//!   repeated request must use the same key, so that the late one finds it and is refused. Under
//!   another number, the late one would make a second key, which nobody deletes. The entry ends
//!   when a release has put the mark that bars the key, or with its session. That mark is on the
//!   session's etcd lease, so that it lasts as long as the late one could make a key.
//! - H4: requests and renewals of a lease id overlap: the caller stops waiting for one before it is
//!   over. So a read shows that there is no key only for what was known before the read, and a
//!   reply ends H3 only for a request that was the only one.
//! - H5: a deletion without a reply may still delete the key. It names the revision that made the
//!   key, so it cannot delete a later one. The next request under the lease id first repeats the
//!   deletion until it has a reply, and never holds the key of that revision.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use holdline_core::{FencingToken, Hold, LeaseId, LockName, Moment};
use parking_lot::Mutex;

use crate::queue::Blockers;
use crate::sessions::EtcdSession;

/// At this number of lease ids, and each doubling of it, those with an expired session are dropped.
/// Those of H3 stay: the session may live longer than is known here.
const SWEEP: usize = 1_024;

/// What is known about one lease id.
#[derive(Clone, Debug)]
pub(crate) struct KnownContender {
    pub(crate) key: Vec<u8>,
    /// The number in the key, and the session that it is of.
    pub(crate) number: Option<(u32, Arc<EtcdSession>)>,
    pub(crate) session: Arc<EtcdSession>,
    /// The revision that made the key; 0 if it is not known. The same key with another one belongs
    /// to another lease id.
    pub(crate) created: i64,
    /// A request without a reply may still make the key (H3).
    pub(crate) in_flight: bool,
    /// A deletion of the key that was made at this revision has no reply yet (H5).
    pub(crate) deleting: Option<i64>,
    /// There was a request before, which may have made the key or may still make it (H4).
    pub(crate) repeated: bool,
    /// The token, once the name is known to be held. It stays held for as long as the key exists.
    pub(crate) token: Option<FencingToken>,
    /// The hold of the first request, if known.
    pub(crate) asked: Option<Hold>,
    /// The hold in the record, if known.
    pub(crate) terms: Option<Hold>,
    /// The newest known revision that wrote the key; 0 if none is known.
    pub(crate) written: i64,
    /// What blocks it, and the revision of that read.
    pub(crate) blockers: Blockers,
    pub(crate) read_at: i64,
    /// When a majority has last confirmed that it waits.
    pub(crate) confirmed: Moment,
}

/// All known lease ids.
#[derive(Default)]
pub(crate) struct KnownContenders(Mutex<HashMap<(LeaseId, LockName), KnownContender>>);

impl KnownContender {
    pub(crate) fn new(key: Vec<u8>, session: Arc<EtcdSession>) -> KnownContender {
        KnownContender {
            key,
            number: None,
            session,
            created: 0,
            in_flight: false,
            deleting: None,
            repeated: false,
            token: None,
            asked: None,
            terms: None,
            written: 0,
            blockers: Blockers::default(),
            read_at: 0,
            confirmed: Moment::ORIGIN,
        }
    }

    /// Returns whether it waited when its place was read last.
    pub(crate) fn is_blocked(&self) -> bool {
        self.token.is_none() && !self.blockers.is_empty()
    }

    /// Returns whether the key that was made at this revision may be its own.
    pub(crate) fn may_be_made_at(&self, revision: i64) -> bool {
        self.created == 0 || self.created == revision
    }
}

impl KnownContenders {
    pub(crate) fn find(&self, name: &LockName, id: LeaseId) -> Option<KnownContender> {
        self.0.lock().get(&(id, name.clone())).cloned()
    }

    pub(crate) fn note(
        &self,
        name: &LockName,
        id: LeaseId,
        contender: KnownContender,
        now: Moment,
    ) {
        let mut known = self.0.lock();
        sweep(&mut known, now);
        known.insert((id, name.clone()), contender);
    }

    /// Records a lease id that another process asked for, unless a request of this engine has
    /// recorded it meanwhile; returns what is recorded.
    pub(crate) fn adopt(
        &self,
        name: &LockName,
        id: LeaseId,
        contender: KnownContender,
        now: Moment,
    ) -> KnownContender {
        let mut known = self.0.lock();
        sweep(&mut known, now);
        known.entry((id, name.clone())).or_insert(contender).clone()
    }

    /// Changes what is known, if the id is known.
    pub(crate) fn update(
        &self,
        name: &LockName,
        id: LeaseId,
        change: impl FnOnce(&mut KnownContender),
    ) {
        if let Some(contender) = self.0.lock().get_mut(&(id, name.clone())) {
            change(contender);
        }
    }

    /// Records that a request has its reply.
    pub(crate) fn answered(&self, name: &LockName, id: LeaseId) {
        self.update(name, id, |contender| contender.in_flight = contender.repeated);
    }

    /// Forgets a lease id for which the store has no key, unless a request may still make it (H3).
    pub(crate) fn forget(&self, name: &LockName, id: LeaseId) {
        self.remove(name, id, |contender| !contender.in_flight);
    }

    /// As [`forget`](Self::forget), after a read that began when `seen` was known (H4).
    pub(crate) fn forget_seen(&self, name: &LockName, id: LeaseId, seen: &KnownContender) {
        self.remove(name, id, |contender| {
            let is_same = contender.created == seen.created && contender.key == seen.key;
            is_same && !seen.in_flight && !contender.in_flight
        });
    }

    /// Forgets a lease id whose key cannot be made any more: a mark bars it, or its lease is gone.
    pub(crate) fn forget_for_good(&self, name: &LockName, id: LeaseId) {
        self.remove(name, id, |_| true);
    }

    fn remove(&self, name: &LockName, id: LeaseId, wanted: impl FnOnce(&KnownContender) -> bool) {
        let mut known = self.0.lock();
        let Entry::Occupied(entry) = known.entry((id, name.clone())) else { return };
        if wanted(entry.get())
            && let Some((number, session)) = entry.remove().number
        {
            session.free_number(name, number);
        }
    }
}

/// Drops the lease ids whose session has expired, if there are many.
fn sweep(known: &mut HashMap<(LeaseId, LockName), KnownContender>, now: Moment) {
    if known.len() >= SWEEP && known.len().is_power_of_two() {
        known.retain(|_, contender| contender.in_flight || !contender.session.left(now).is_zero());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lease_id_keeps_its_key_while_a_request_may_make_it() {
        let ids = KnownContenders::default();
        let name = LockName::new("a").expect("a name");
        let one = LeaseId::from_bytes([1; 16]);
        let other = LeaseId::from_bytes([2; 16]);
        let session = Arc::new(EtcdSession::found(7, Duration::from_secs(1)));
        let note = |id, in_flight| {
            let number = session.take_number(&name);
            let mut contender = KnownContender::new(vec![], session.clone());
            contender.number = Some((number, session.clone()));
            contender.in_flight = in_flight;
            ids.note(&name, id, contender, Moment::ORIGIN);
            number
        };
        assert_eq!(note(one, true), 0);
        ids.forget(&name, one);
        assert!(ids.find(&name, one).is_some(), "the repeated request finds its key");
        assert_eq!(note(other, false), 1, "the key is used by nobody else");
        ids.forget(&name, other);
        assert_eq!(session.take_number(&name), 1);
        ids.forget_for_good(&name, one);
        assert!(ids.find(&name, one).is_none());
        assert_eq!(session.take_number(&name), 0);
    }

    #[test]
    fn the_reply_to_one_of_two_requests_leaves_the_other_in_flight() {
        let ids = KnownContenders::default();
        let name = LockName::new("a").expect("a name");
        let id = LeaseId::from_bytes([1; 16]);
        let session = Arc::new(EtcdSession::found(7, Duration::from_secs(1)));
        let note = |repeated| {
            let mut contender = KnownContender::new(vec![], session.clone());
            contender.in_flight = true;
            contender.repeated = repeated;
            ids.note(&name, id, contender, Moment::ORIGIN);
        };
        note(false);
        note(true);
        ids.answered(&name, id);
        ids.forget(&name, id);
        assert!(ids.find(&name, id).is_some_and(|contender| contender.in_flight));
        note(false);
        ids.answered(&name, id);
        ids.forget(&name, id);
        assert!(ids.find(&name, id).is_none());
    }
}
