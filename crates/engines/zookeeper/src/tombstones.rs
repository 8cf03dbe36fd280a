//! Lease ids that this process has given up: a late request under one of them creates no node.
//!
//! The memory of the process is enough. A lease id is used by one process, because its node belongs
//! to a session of that process, and no other process can renew it (H2). The engines of a process
//! that use the same nodes share these ids (`KnownContenders`). An acquire and a release of one
//! lease id exclude each other (H4). So an acquire comes before the release, whose search then sees
//! its node, or comes after it and finds the tombstone. If the answer to a creation was lost, the
//! release searches on the same session, after the creation. If that session has expired, so has
//! the node.
//!
//! - T1: a tombstone lasts longer than the longest lease and any request in flight.
//! - T2: at most [`MOST`] are kept. The oldest is dropped for a new one.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use holdline_core::{LeaseId, Moment};

/// How long a tombstone is kept.
const KEPT: Duration = Duration::from_secs(75);
/// How many are kept, at most.
const MOST: usize = 65_536;

/// The tombstones of one process, the oldest first.
#[derive(Default)]
pub(crate) struct Tombstones {
    ids: HashSet<LeaseId>,
    order: VecDeque<(Moment, LeaseId)>,
}

impl Tombstones {
    /// Records that a lease id is given up.
    pub(crate) fn note(&mut self, id: LeaseId, now: Moment) {
        self.sweep(now);
        if !self.ids.insert(id) {
            return;
        }
        self.order.push_back((now, id));
        if self.order.len() > MOST {
            self.drop_oldest();
        }
    }

    /// Returns whether a lease id was given up.
    pub(crate) fn has(&mut self, id: LeaseId, now: Moment) -> bool {
        self.sweep(now);
        self.ids.contains(&id)
    }

    fn sweep(&mut self, now: Moment) {
        while self.order.front().is_some_and(|(at, _)| at.after(KEPT) <= now) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, id)) = self.order.pop_front() {
            self.ids.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> LeaseId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        LeaseId::from_bytes(bytes)
    }

    #[test]
    fn a_tombstone_lasts_for_its_time_and_no_longer() {
        let mut stones = Tombstones::default();
        let now = Moment::ORIGIN;
        stones.note(id(1), now);
        let last = now.after(KEPT - Duration::from_nanos(1));
        stones.note(id(1), last);
        stones.note(id(2), last);
        assert!(stones.has(id(1), last) && stones.has(id(2), last) && !stones.has(id(3), last));
        assert!(!stones.has(id(1), now.after(KEPT)) && stones.has(id(2), now.after(KEPT)));
        assert_eq!((stones.ids.len(), stones.order.len()), (1, 1));
    }

    #[test]
    fn there_are_never_more_than_a_fixed_number() {
        let mut stones = Tombstones::default();
        let now = Moment::ORIGIN;
        (0..=MOST).for_each(|number| stones.note(id(number), now));
        assert_eq!((stones.ids.len(), stones.order.len()), (MOST, MOST));
        assert!(!stones.has(id(0), now) && stones.has(id(1), now) && stones.has(id(MOST), now));
    }
}
