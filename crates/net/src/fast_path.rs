//! Decides when an engine sends a short request first. It grants a free name, or releases such a
//! grant; if it can do neither, the general request follows.
//!
//! - Invariant F1: every decision is a guess. A wrong one costs a round trip, or saves none.
//! - Invariant F2: only replies to general requests are counted. A short request that grants says
//!   nothing new: it was sent because the name did not count as busy.
//! - Invariant F3: a lease is remembered from its grant to its release. An engine whose short
//!   release needs a lease that was never renewed forgets it at its first renewal.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};

use holdline_core::{AcquireReply, AcquireRequest, LeaseId, LockError, LockName, Mode};
use parking_lot::Mutex;

/// How many leases are remembered: the newest ones. Older leases are released by the general
/// request.
const MAX_REMEMBERED_LEASES: usize = 4_096;

/// How many buckets there are for the hashes of names.
const BUCKETS: usize = 256;
/// After how many replies in a row that found a name free it no longer counts as busy.
const FREE_REPLIES_NEEDED: u8 = 3;

/// Remembers which names were busy. Names in the same bucket share a counter, so this is a guess:
/// an engine may save a round trip by it, and must not depend on it.
#[derive(Debug)]
pub struct BusyNames {
    /// How many replies have found each bucket free since it was last busy.
    free_replies: Vec<AtomicU8>,
    hasher: RandomState,
}

impl Default for BusyNames {
    fn default() -> BusyNames {
        let free = || AtomicU8::new(FREE_REPLIES_NEEDED);
        let free_replies = std::iter::repeat_with(free).take(BUCKETS).collect();
        BusyNames { free_replies, hasher: RandomState::new() }
    }
}

impl BusyNames {
    /// Returns whether the name was busy, and has not been found free three times since.
    pub fn is_busy(&self, name: &LockName) -> bool {
        self.bucket(name).load(Ordering::Relaxed) < FREE_REPLIES_NEEDED
    }

    /// Notes whether the name was busy when it was requested.
    pub fn note(&self, name: &LockName, is_busy: bool) {
        let bucket = self.bucket(name);
        let free_replies = bucket.load(Ordering::Relaxed);
        let next =
            if is_busy { 0 } else { free_replies.saturating_add(1).min(FREE_REPLIES_NEEDED) };
        bucket.store(next, Ordering::Relaxed);
    }

    fn bucket(&self, name: &LockName) -> &AtomicU8 {
        let hash = self.hasher.hash_one(name.as_str());
        // The remainder is below `BUCKETS`.
        &self.free_replies[usize::try_from(hash % BUCKETS as u64).unwrap_or_default()]
    }
}

/// For engines whose short requests handle exclusive locks. If a short request changes nothing, the
/// engine sends its general request.
#[derive(Debug, Default)]
pub struct FastPath {
    leases: Mutex<Leases>,
    busy: BusyNames,
}

/// Leases that short requests have granted. A lost lease is never released, so the older half is
/// dropped when the newer one is full.
#[derive(Debug, Default)]
struct Leases {
    newer: HashSet<LeaseId>,
    older: HashSet<LeaseId>,
}

impl FastPath {
    /// Returns whether to send the short request first.
    pub fn may_grant(&self, request: &AcquireRequest) -> bool {
        !request.known && request.mode == Mode::Exclusive && !self.busy.is_busy(&request.name)
    }

    /// Notes that the short request has granted a lease.
    pub fn granted(&self, lease_id: LeaseId) {
        let mut leases = self.leases.lock();
        if leases.newer.len() >= MAX_REMEMBERED_LEASES / 2 {
            leases.older = std::mem::take(&mut leases.newer);
        }
        leases.newer.insert(lease_id);
    }

    /// Forgets a lease; returns whether the short request had granted it, so that the short release
    /// can succeed.
    pub fn forget(&self, lease_id: LeaseId) -> bool {
        let mut leases = self.leases.lock();
        leases.newer.remove(&lease_id) || leases.older.remove(&lease_id)
    }

    /// Notes whether the reply to a general request found the name free. Ignores requests of
    /// contenders that are queued.
    pub fn note(&self, request: &AcquireRequest, reply: &Result<AcquireReply, LockError>) {
        if let (false, Ok(reply)) = (request.known, reply) {
            let is_busy = !matches!(reply, AcquireReply::Granted { .. });
            self.busy.note(&request.name, is_busy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_busy_until_it_was_free_three_times() {
        let names = BusyNames::default();
        let name = LockName::new("a").expect("a name");
        assert!(!names.is_busy(&name));
        for _ in 0..2 {
            names.note(&name, true);
            for left in [2, 1, 0] {
                assert!(names.is_busy(&name), "{left} left");
                names.note(&name, false);
            }
            assert!(!names.is_busy(&name));
        }
    }

    fn lease(number: u64) -> LeaseId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        LeaseId::from_bytes(bytes)
    }

    #[test]
    fn leases_that_nobody_releases_do_not_end_the_fast_path() {
        let fast = FastPath::default();
        for number in 0..3 * MAX_REMEMBERED_LEASES as u64 {
            fast.granted(lease(number));
        }
        fast.granted(lease(u64::MAX));
        assert!(fast.forget(lease(u64::MAX)), "the newest lease is remembered");
        let leases = fast.leases.lock();
        assert!(
            leases.newer.len() + leases.older.len() <= MAX_REMEMBERED_LEASES,
            "the memory is bounded"
        );
    }
}
