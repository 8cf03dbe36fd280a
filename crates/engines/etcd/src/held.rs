//! What this engine knows of the lease ids that were asked through it.
//!
//! - H1: a lease id is noted before its request leaves, so that its undo finds its key.
//! - H2: it is forgotten when the store has said that nothing stands under it.

use std::collections::HashMap;
use std::sync::Arc;

use holdline_core::{FencingToken, Hold, LeaseId, LockName, Moment};
use parking_lot::Mutex;

use crate::sessions::Session;

/// How many lease ids are noted before those whose session has been over for long are swept.
const SWEEP: usize = 1_024;

/// What is known of one lease id.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) key: Vec<u8>,
    pub(crate) session: Arc<Session>,
    /// The token, once it is known that the name is held: then it is, as long as the key is there.
    pub(crate) token: Option<FencingToken>,
    /// How it was asked for, where that is known.
    pub(crate) asked: Option<Hold>,
    /// The hold that the record is known to have.
    pub(crate) terms: Option<Hold>,
    /// The revision at which the key was last seen to be written; 0 when it was not seen yet.
    pub(crate) written: i64,
    /// What must go before it holds the name, and the revision at which that was read.
    pub(crate) blockers: Vec<Vec<u8>>,
    pub(crate) read_at: i64,
}

/// All of them.
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

    /// Returns the one key that keeps it waiting as long as it is there. Where any of several may
    /// let it in, there is none.
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

    /// Changes what is known, if the id still is.
    pub(crate) fn update(&self, name: &LockName, id: LeaseId, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.0.lock().get_mut(&(id, name.clone())) {
            change(held);
        }
    }

    pub(crate) fn forget(&self, name: &LockName, id: LeaseId) {
        self.0.lock().remove(&(id, name.clone()));
    }
}
