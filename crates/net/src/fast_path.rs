//! Where a short request is worth its trip: one that only a free name can answer, and the release
//! of what it has granted.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, Ordering};

use holdline_core::{AcquireReply, AcquireRequest, LeaseId, LockError, LockName, Mode};
use parking_lot::Mutex;

/// How many lease ids are remembered: the newest of them, if more are granted and not released.
const LEASES: usize = 4_096;

/// How many groups of names there are, by their hash.
const GROUPS: usize = 256;
/// How often in a row a name that was busy must be found free.
const ENOUGH: u8 = 3;

/// Remembers which names were busy. Names with the same hash share an entry, so this is a guess: an
/// engine may save a trip by it, and must not depend on it.
#[derive(Debug)]
pub struct BusyNames {
    /// How often each group was found free since it was last busy.
    free: Vec<AtomicU8>,
    hasher: RandomState,
}

impl Default for BusyNames {
    fn default() -> BusyNames {
        let free = std::iter::repeat_with(|| AtomicU8::new(ENOUGH)).take(GROUPS).collect();
        BusyNames { free, hasher: RandomState::new() }
    }
}

impl BusyNames {
    /// Returns whether the name was busy, and has not been found free three times since.
    pub fn is_busy(&self, name: &LockName) -> bool {
        self.entry(name).load(Ordering::Relaxed) < ENOUGH
    }

    /// Notes whether the name was busy when it was requested.
    pub fn note(&self, name: &LockName, is_busy: bool) {
        let entry = self.entry(name);
        let next = match is_busy {
            true => 0,
            false => entry.load(Ordering::Relaxed).saturating_add(1).min(ENOUGH),
        };
        entry.store(next, Ordering::Relaxed);
    }

    fn entry(&self, name: &LockName) -> &AtomicU8 {
        let hash = self.hasher.hash_one(name.as_str());
        // The remainder is below `GROUPS`.
        &self.free[usize::try_from(hash % GROUPS as u64).unwrap_or_default()]
    }
}

/// Decides for an engine whose short requests concern one exclusive holder. Each answer is a guess:
/// where it is wrong, the engine sends its general request after the short one.
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
    /// Returns whether the short request may grant this.
    pub fn may_grant(&self, request: &AcquireRequest) -> bool {
        !request.known && request.mode == Mode::Exclusive && !self.busy.is_busy(&request.name)
    }

    /// Notes that the short request has granted a lease.
    pub fn granted(&self, lease_id: LeaseId) {
        let mut leases = self.leases.lock();
        if leases.newer.len() >= LEASES / 2 {
            leases.older = std::mem::take(&mut leases.newer);
        }
        leases.newer.insert(lease_id);
    }

    /// Forgets a lease; returns whether the short request had granted it, so that the short release
    /// is worth its trip.
    pub fn forget(&self, lease_id: LeaseId) -> bool {
        let mut leases = self.leases.lock();
        leases.newer.remove(&lease_id) || leases.older.remove(&lease_id)
    }

    /// Notes the reply to a general request: whether the name was free. A claim says nothing about
    /// it.
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
        let (names, name) = (BusyNames::default(), LockName::new("a").expect("a name"));
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
        for number in 0..3 * LEASES as u64 {
            fast.granted(lease(number));
        }
        fast.granted(lease(u64::MAX));
        assert!(fast.forget(lease(u64::MAX)), "the newest lease is remembered");
        let leases = fast.leases.lock();
        assert!(leases.newer.len() + leases.older.len() <= LEASES, "the memory is bounded");
    }
}
