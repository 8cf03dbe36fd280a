//! Who holds a name and who waits, from the keys of its queue.
//!
//! - Q1: keys stand in the order of their create revisions. The first ones hold the name, as many
//!   as fit together; the first that does not fit waits, and everybody behind it.
//! - Q2: new keys come at the end, so who holds goes on to hold, and only a key that goes lets
//!   others in.

use holdline_core::{LeaseId, LockError, LockName, Mode};

use crate::error::foreign;
use crate::keys::{Layout, Stander};
use crate::proto::KeyValue;

/// One key of a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) kv: KeyValue,
    pub(crate) stander: Stander,
}

/// The keys of a name's queue, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queue {
    places: Vec<Place>,
    holding: usize,
}

impl Place {
    pub(crate) fn mode(&self) -> Mode {
        match self.stander {
            Stander::Ours { mode, .. } => mode,
            Stander::Go { .. } => Mode::Exclusive,
        }
    }

    pub(crate) fn is(&self, id: LeaseId) -> bool {
        matches!(self.stander, Stander::Ours { lease_id, .. } if lease_id == id)
    }
}

impl Queue {
    /// Sorts keys that were read with their values.
    ///
    /// # Errors
    /// `Foreign`: there is a key that is neither ours nor one of Go's mutexes.
    pub(crate) fn read(
        layout: &Layout,
        name: &LockName,
        kvs: Vec<KeyValue>,
    ) -> Result<Queue, LockError> {
        Queue::sort(layout, name, kvs, true)
    }

    /// Sorts keys that were read without their values. From etcd 3.7 on such a reading tells no
    /// lease: a key that looks like one of a lock is taken for it until its value is read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn read_keys(
        layout: &Layout,
        name: &LockName,
        kvs: Vec<KeyValue>,
    ) -> Result<Queue, LockError> {
        Queue::sort(layout, name, kvs, false)
    }

    /// Sorts keys; no lease means that there is none, or only that it was not told.
    fn sort(
        layout: &Layout,
        name: &LockName,
        kvs: Vec<KeyValue>,
        leases_are_told: bool,
    ) -> Result<Queue, LockError> {
        let mut places = Vec::with_capacity(kvs.len());
        for kv in kvs {
            let untold = kv.lease == 0 && !leases_are_told;
            let stander = layout.stander(name, &kv.key).filter(|stander| match stander {
                Stander::Ours { .. } => kv.lease != 0 || untold,
                Stander::Go { lease } => kv.lease == *lease || untold,
            });
            let Some(stander) = stander else {
                let key = String::from_utf8_lossy(&kv.key).into_owned();
                return Err(foreign(format!(
                    "the key {:.200} is none of a lock",
                    holdline_core::Escaped(&key)
                )));
            };
            places.push(Place { kv, stander });
        }
        places.sort_by(|one, other| {
            (one.kv.create_revision, &one.kv.key).cmp(&(other.kv.create_revision, &other.kv.key))
        });
        let holding = holding(&places);
        Ok(Queue { places, holding })
    }

    pub(crate) fn holders(&self) -> &[Place] {
        &self.places[..self.holding]
    }

    pub(crate) fn waiting(&self) -> &[Place] {
        &self.places[self.holding..]
    }

    /// Finds a lease id: its place, and how many wait before it; `None` there when it holds.
    pub(crate) fn find(&self, id: LeaseId) -> Option<(&Place, Option<usize>)> {
        let at = self.places.iter().position(|place| place.is(id))?;
        Some((&self.places[at], at.checked_sub(self.holding)))
    }

    /// Returns the keys that a waiting lease id must see go before it can hold the name: the
    /// nearest that keeps it out, or all before it where any may be the one.
    pub(crate) fn blockers(&self, id: LeaseId) -> Vec<&Place> {
        let Some(at) = self.places.iter().position(|place| place.is(id)) else {
            return Vec::new();
        };
        let before = &self.places[..at];
        match self.places[at].mode() {
            Mode::Permits { .. } => before.iter().collect(),
            Mode::Exclusive => before.last().into_iter().collect(),
            Mode::Shared => {
                before.iter().rev().find(|place| place.mode() != Mode::Shared).into_iter().collect()
            }
        }
    }

    /// Returns the mode of the semaphore, if it is one.
    pub(crate) fn permits_of(&self) -> Option<u32> {
        self.places.first()?.mode().permits_of()
    }
}

/// Counts how many of the first hold the name together: one alone, or shared ones, or as many of
/// one semaphore as it has permits for.
fn holding(places: &[Place]) -> usize {
    let Some(first) = places.first().map(Place::mode) else { return 0 };
    let mut used = 0_u32;
    let fits = |place: &&Place| match (first, place.mode()) {
        (Mode::Shared, Mode::Shared) => true,
        (Mode::Permits { of: total, .. }, Mode::Permits { count, of }) if of == total => {
            used = used.saturating_add(count);
            used <= of
        }
        _ => false,
    };
    places.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> LeaseId {
        LeaseId::from_bytes([number; 16])
    }

    fn queue(modes: &[Mode]) -> Queue {
        let (layout, name) = (Layout::new(""), LockName::new("a").expect("good"));
        let kvs = modes.iter().zip(1..).map(|(mode, number)| KeyValue {
            key: layout.contender(&name, id(number), *mode, 7),
            create_revision: 100 - i64::from(number),
            lease: 7,
            ..KeyValue::default()
        });
        Queue::read(&layout, &name, kvs.collect()).expect("ours")
    }

    fn permits(count: u32) -> Mode {
        Mode::Permits { count, of: 4 }
    }

    #[test]
    fn the_first_that_fit_together_hold() {
        use Mode::{Exclusive, Shared};
        // The last one in the list came first.
        for (modes, holding) in [
            (vec![], 0),
            (vec![Exclusive, Exclusive], 1),
            (vec![Shared, Exclusive], 1),
            (vec![Exclusive, Shared, Shared], 2),
            (vec![Shared, Exclusive, Shared], 1),
            (vec![permits(1), permits(2), permits(1)], 3),
            (vec![permits(1), permits(3), permits(2)], 1),
            (vec![permits(4)], 1),
            (vec![permits(1), Exclusive], 1),
            (vec![Exclusive, permits(1)], 1),
            (vec![permits(1), Mode::Permits { count: 1, of: 9 }], 1),
        ] {
            let queue = queue(&modes);
            assert_eq!(queue.holders().len(), holding, "{modes:?}");
            assert_eq!(queue.waiting().len(), modes.len() - holding, "{modes:?}");
        }
    }

    #[test]
    fn whoever_waits_looks_at_what_keeps_it_out() {
        use Mode::{Exclusive, Shared};
        let blockers = |modes: &[Mode], of: u8| -> Vec<usize> {
            let queue = queue(modes);
            let number = |place: &&Place| (1..9).find(|n| place.is(id(*n))).map(usize::from);
            queue.blockers(id(of)).iter().filter_map(number).collect()
        };
        assert_eq!(blockers(&[Exclusive, Exclusive, Exclusive], 1), [2]);
        assert_eq!(blockers(&[Shared, Shared, Exclusive], 1), [3]);
        assert_eq!(blockers(&[Exclusive, Shared, Shared], 1), [2]);
        assert_eq!(blockers(&[permits(2), permits(1), permits(3)], 1), [3, 2]);
        assert!(blockers(&[Exclusive], 9).is_empty());
    }

    #[test]
    fn a_key_without_its_lease_is_foreign() {
        let (layout, name) = (Layout::new(""), LockName::new("a").expect("good"));
        for key in ["a/1f", "a/config"] {
            let kv = KeyValue { key: key.into(), ..KeyValue::default() };
            assert!(Queue::read(&layout, &name, vec![kv]).is_err(), "{key}");
        }
        let other = KeyValue { key: "a/1f".into(), lease: 0x2f, ..KeyValue::default() };
        assert!(Queue::read_keys(&layout, &name, vec![other]).is_err());
        let kv = KeyValue { key: "a/1f".into(), lease: 0x1f, ..KeyValue::default() };
        assert_eq!(Queue::read(&layout, &name, vec![kv]).expect("of Go").holders().len(), 1);
    }

    /// From etcd 3.7 on no key but foreign ones was known any more.
    #[test]
    fn a_reading_without_values_that_tells_no_lease_makes_no_key_foreign() {
        let (layout, name) = (Layout::new(""), LockName::new("a").expect("good"));
        let ours = layout.contender(&name, id(1), Mode::Exclusive, 7);
        for key in [ours, b"a/1f".to_vec()] {
            let kv = KeyValue { key, ..KeyValue::default() };
            let queue = Queue::read_keys(&layout, &name, vec![kv]).expect("not foreign");
            assert_eq!(queue.holders().len(), 1);
        }
        let config = KeyValue { key: "a/config".into(), ..KeyValue::default() };
        assert!(Queue::read_keys(&layout, &name, vec![config]).is_err());
    }
}
