//! What this engine knows about the lease ids that it was asked for.
//!
//! - H1: a lease id is recorded before its request is sent, so that a release finds its key.
//! - H2: it is forgotten when the store has answered that it has no key for it.

use std::collections::HashMap;
use std::sync::Arc;

use holdline_core::{FencingToken, Hold, LeaseId, LockName, Moment};
use parking_lot::Mutex;

use crate::sessions::Session;

/// At this number of lease ids, and each doubling of it, those with an expired session are dropped.
const SWEEP: usize = 1_024;

/// What is known about one lease id.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) key: Vec<u8>,
    pub(crate) session: Arc<Session>,
    /// The token, once the name is known to be held. It stays held for as long as the key exists.
    pub(crate) token: Option<FencingToken>,
    /// The hold of the first request, if known.
    pub(crate) asked: Option<Hold>,
    /// The hold in the record, if known.
    pub(crate) terms: Option<Hold>,
    /// The newest known revision that wrote the key; 0 if none is known.
    pub(crate) written: i64,
    /// The keys that must be deleted before it holds the name, and the revision of that read.
    pub(crate) blockers: Vec<Vec<u8>>,
    pub(crate) read_at: i64,
}

/// All known lease ids.
#[derive(Default)]
pub(crate) struct HeldIds(Mutex<HashMap<(LeaseId, LockName), Held>>);

impl Held {
    pub(crate) fn new(key: Vec<u8>, session: Arc<Session>) -> Held {
        Held {
            key,
            session,
            token: None,
            asked: None,
            terms: None,
            written: 0,
            blockers: Vec::new(),
            read_at: 0,
        }
    }

    /// Returns the key that excludes it for as long as the key exists. `None` if the deletion of
    /// any one of several keys may be enough.
    pub(crate) fn blocker(&self) -> Option<&Vec<u8>> {
        match (self.token, self.blockers.as_slice()) {
            (None, [one]) => Some(one),
            _ => None,
        }
    }
}

impl HeldIds {
    pub(crate) fn find(&self, name: &LockName, id: LeaseId) -> Option<Held> {
        self.0.lock().get(&(id, name.clone())).cloned()
    }

    pub(crate) fn note(&self, name: &LockName, id: LeaseId, held: Held, now: Moment) {
        let mut known = self.0.lock();
        if known.len() >= SWEEP && known.len().is_power_of_two() {
            known.retain(|_, held| !held.session.left(now).is_zero());
        }
        known.insert((id, name.clone()), held);
    }

    /// Changes what is known, if the id is known.
    pub(crate) fn update(&self, name: &LockName, id: LeaseId, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.0.lock().get_mut(&(id, name.clone())) {
            change(held);
        }
    }

    pub(crate) fn forget(&self, name: &LockName, id: LeaseId) {
        self.0.lock().remove(&(id, name.clone()));
    }
}
