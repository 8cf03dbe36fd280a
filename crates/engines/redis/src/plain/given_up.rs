//! The lease ids that this process has given up, where the server stores no mark of them.
//!
//! With `fencing=off` a lock is acquired by a bare `SET … NX`, which checks nothing but its own
//! key. So an id that was given up is refused here, before anything is sent.

use std::collections::{HashMap, VecDeque};

use holdline_core::{LeaseId, Moment};
use parking_lot::Mutex;

/// How many are remembered; of more, the oldest are forgotten.
const ROOM: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct GivenUp(Mutex<GivenUpIds>);

#[derive(Debug, Default)]
struct GivenUpIds {
    until: HashMap<LeaseId, Moment>,
    order: VecDeque<LeaseId>,
}

impl GivenUp {
    /// Remembers an id until this moment.
    pub(crate) fn add(&self, id: LeaseId, now: Moment, until: Moment) {
        let mut inner = self.0.lock();
        while let Some(oldest) = inner.order.front().copied() {
            let over = inner.until.get(&oldest).is_none_or(|until| *until <= now);
            if !over && inner.order.len() < ROOM {
                break;
            }
            inner.order.pop_front();
            inner.until.remove(&oldest);
        }
        if inner.until.insert(id, until).is_none() {
            inner.order.push_back(id);
        }
    }

    pub(crate) fn has(&self, id: LeaseId, now: impl FnOnce() -> Moment) -> bool {
        self.0.lock().until.get(&id).is_some_and(|until| now() < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> LeaseId {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        LeaseId::from_bytes(bytes)
    }

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    #[test]
    fn an_id_is_remembered_until_its_time() {
        let given_up = GivenUp::default();
        given_up.add(id(1), at(0), at(10));
        assert!(given_up.has(id(1), || at(9)));
        assert!(!given_up.has(id(1), || at(10)));
        assert!(!given_up.has(id(2), || at(0)));
    }

    #[test]
    fn memory_is_bounded_and_expired_ids_are_forgotten_first() {
        let given_up = GivenUp::default();
        let rooms = u32::try_from(ROOM).expect("fits");
        for number in 0..rooms + 3 {
            given_up.add(id(number), at(0), at(10));
        }
        assert_eq!(given_up.0.lock().order.len(), ROOM);
        assert!(!given_up.has(id(2), || at(0)), "the oldest is forgotten");
        assert!(given_up.has(id(rooms + 2), || at(0)));
        given_up.add(id(0), at(10), at(20));
        assert_eq!(given_up.0.lock().order.len(), 1, "all others have expired");
    }
}
