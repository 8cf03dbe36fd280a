//! The shards of the names, so that names rarely share a mutex.
//!
//! Tokens are compared within a name only, and a name always has the same shard, so each shard has
//! its own counter of tokens.

use std::collections::{BTreeSet, HashMap};

use foldhash::quality::RandomState;
use holdline_core::table::LockState;
use holdline_core::{LockName, Moment};
use parking_lot::Mutex;

/// How many shards there are; a power of two.
const SHARDS: usize = 16;

/// All names of one engine.
#[derive(Debug)]
pub(crate) struct Shards {
    shards: Box<[Mutex<Shard>]>,
}

/// The names that share a mutex.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// Hashed with a random key, by a function that costs a fifth of the standard one: names come
    /// from this process, and no outsider can time the look-ups.
    pub(crate) names: HashMap<LockName, Name, RandomState>,
    pub(crate) counter: u64,
    /// The counts of latches, which are no locks; none is zero.
    pub(crate) latches: HashMap<LockName, u64, RandomState>,
    /// Names that nobody holds or queues for, and when they can be removed: swept a few at a time,
    /// soonest first. Each name is listed at most once.
    pub(crate) fading: BTreeSet<(Moment, LockName)>,
    /// The number of names at which the shard is scanned for unused ones.
    pub(crate) full: usize,
}

/// The state of one name.
#[derive(Debug, Default)]
pub(crate) struct Name {
    pub(crate) state: LockState,
    /// It is among the fading names.
    pub(crate) fading: bool,
}

impl Shards {
    pub(crate) fn new() -> Shards {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Shards { shards }
    }

    pub(crate) fn of(&self, name: &LockName) -> &Mutex<Shard> {
        &self.shards[shard_of(name.as_str().as_bytes())]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter()
    }
}

/// Returns a name's shard, by its length and its last bytes, in which names mostly differ. Names
/// that are chosen to collide only share a mutex; the map inside hashes with a random key.
fn shard_of(name: &[u8]) -> usize {
    let mut last = [0; 8];
    let tail = name.len().min(8);
    last[..tail].copy_from_slice(&name[name.len() - tail..]);
    let mixed = (u64::from_le_bytes(last) ^ name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The upper half mixes best; 16 shards need four bits of it.
    usize::from((mixed >> 56) as u8) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_spread_over_the_shards() {
        let mut counts = [0; SHARDS];
        for n in 0..1_600 {
            counts[shard_of(format!("orders/{n}").as_bytes())] += 1;
        }
        assert!(counts.iter().all(|count| (25..400).contains(count)), "{counts:?}");
        assert_eq!(shard_of(b"a"), shard_of(b"a"));
    }
}
