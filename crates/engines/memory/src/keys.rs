//! Where a name's state is kept: one of a few shards, so that names seldom share a mutex.
//!
//! Tokens are compared within a name only, and a name always has the same shard, so each shard
//! draws tokens from a counter of its own.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use holdline_core::table::LockState;
use holdline_core::{LockName, Moment};
use parking_lot::Mutex;

/// How many shards there are; a power of two.
const SHARDS: usize = 16;

/// All names of one engine.
#[derive(Debug)]
pub(crate) struct Shards {
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

/// The names that share a mutex.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) names: HashMap<LockName, LockState>,
    pub(crate) counter: u64,
    /// Names that only remember ids, and until when: swept a few at a time.
    pub(crate) fading: VecDeque<(Moment, LockName)>,
}

impl Shards {
    pub(crate) fn new() -> Shards {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Shards { hasher: RandomState::new(), shards }
    }

    pub(crate) fn of(&self, name: &LockName) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(name.as_str());
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter()
    }
}
