//! The leases that clients hold through this server, as far as their number is limited.
//!
//! - D1: a lease counts from the beginning of its attempt until it is released or lost, or its time
//!   is over. So a client never holds more than its limit through this server.
//! - D2: nothing that is held is refused: a renewal, a repeat under the same lease id and a session
//!   that takes leases over always succeed, and may exceed the limit.
//! - D3: a lease counts at the server that acquired or renewed it last, and no longer than it was
//!   renewed there. So it counts at two servers for one duration at most.

use std::collections::{BTreeSet, HashMap};

use holdline_core::{LeaseId, Moment};
use parking_lot::Mutex;

use crate::limits::LeasePlace;

/// The leases of one store.
#[derive(Default)]
pub(crate) struct HeldLeases(Mutex<ByEnd>);

#[derive(Default)]
struct ByEnd {
    leases: HashMap<LeaseId, HeldLease>,
    /// The same leases, the one that ends first in front.
    ends: BTreeSet<(Moment, LeaseId)>,
}

impl ByEnd {
    /// Lets a lease end later; returns whether it is known.
    fn extend(&mut self, id: LeaseId, ends: Moment) -> bool {
        let Some(lease) = self.leases.get_mut(&id) else { return false };
        if ends > lease.ends {
            self.ends.remove(&(lease.ends, id));
            lease.ends = ends;
            self.ends.insert((ends, id));
        }
        true
    }
}

struct HeldLease {
    ends: Moment,
    _place: LeasePlace,
}

impl HeldLeases {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().leases.len()
    }

    /// The lease is over.
    pub(crate) fn end(&self, id: LeaseId) {
        let mut held = self.0.lock();
        if let Some(lease) = held.leases.remove(&id) {
            held.ends.remove(&(lease.ends, id));
        }
    }

    /// Forgets the leases whose time is over.
    pub(crate) fn sweep(&self, now: Moment) {
        let held = &mut *self.0.lock();
        while let Some((ends, id)) = held.ends.first().copied() {
            if ends > now {
                return;
            }
            held.ends.remove(&(ends, id));
            held.leases.remove(&id);
        }
    }

    /// Returns whether a lease counts.
    pub(crate) fn has(&self, id: LeaseId) -> bool {
        self.0.lock().leases.contains_key(&id)
    }

    /// A lease that is known here lasts until this moment, or longer if it did before.
    pub(crate) fn extend(&self, id: LeaseId, ends: Moment) {
        self.0.lock().extend(id, ends);
    }

    /// The lease lasts until this moment, or longer if it did before. `place` is asked for if the
    /// lease is new here.
    pub(crate) fn keep(&self, id: LeaseId, ends: Moment, place: impl FnOnce() -> LeasePlace) {
        let held = &mut *self.0.lock();
        if !held.extend(id, ends) {
            held.leases.insert(id, HeldLease { ends, _place: place() });
            held.ends.insert((ends, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LimitsConfig;
    use crate::limits::Limits;

    #[test]
    fn a_lease_counts_until_its_last_end() {
        let limits = Limits::new(LimitsConfig { leases_per_client: 2, ..LimitsConfig::default() });
        let held = HeldLeases::default();
        let id = |number: u128| LeaseId::from_bytes(number.to_le_bytes());
        let at = |second: u64| Moment::from_nanos(second * 1_000_000_000);
        let place = || limits.lease_of("a", None);
        held.keep(id(1), at(10), || place().expect("room"));
        held.keep(id(2), at(20), || place().expect("room"));
        assert!(place().is_err(), "the limit");
        held.sweep(at(9));
        assert_eq!(held.count(), 2);
        held.keep(id(1), at(5), || unreachable!("it is known"));
        held.keep(id(1), at(30), || unreachable!("it is known"));
        held.sweep(at(20));
        assert!(!held.has(id(2)) && held.has(id(1)), "the renewed one is left");
        drop(place().expect("room"));
        held.end(id(1));
        held.end(id(1));
        held.sweep(at(100));
        assert_eq!((held.count(), held.0.lock().ends.len()), (0, 0));
        assert!(limits.is_empty());
    }
}
