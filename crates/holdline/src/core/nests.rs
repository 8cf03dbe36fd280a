//! The grants of a client that are held by owners.

use std::collections::HashMap;
use std::sync::Arc;

use holdline_core::LockName;
use parking_lot::Mutex;

use super::registry::Key;
use crate::grant::Grant;

/// The name and the number of the owner.
pub(crate) type NestKey = (LockName, u64);

/// The grants of one client that are held by an owner.
///
/// Invariant N1: an entry exists as long as one of its handles.
#[derive(Default)]
pub(crate) struct Nests(Mutex<HashMap<NestKey, SharedNest>>);

/// A nest, as long as a guard or an attempt uses it.
#[derive(Default)]
struct SharedNest {
    nest: Arc<Nest>,
    /// The number of its handles.
    users: usize,
}

/// What the guards and attempts of one owner for one name share.
#[derive(Default)]
pub(crate) struct Nest {
    /// Allows one attempt of an owner at a time; the others share its grant.
    pub(crate) attempt_lock: tokio::sync::Mutex<()>,
    pub(crate) inside: Mutex<Inside>,
}

/// The guards inside a nest, and their grant.
#[derive(Default)]
pub(crate) struct Inside {
    pub(crate) depth: usize,
    pub(crate) grant: Option<(Arc<Grant>, Key)>,
}

impl Nests {
    /// Counts one more handle of a nest, and returns the nest.
    pub(crate) fn share(&self, key: &NestKey) -> Arc<Nest> {
        let mut nests = self.0.lock();
        let state = nests.entry(key.clone()).or_default();
        state.users += 1;
        state.nest.clone()
    }

    /// Counts one handle less, and removes the nest with the last one.
    pub(crate) fn give_back(&self, key: &NestKey) {
        let mut nests = self.0.lock();
        let Some(state) = nests.get_mut(key) else { return };
        state.users -= 1;
        if state.users == 0 {
            nests.remove(key);
        }
    }

    /// Returns how many nests there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }
}
