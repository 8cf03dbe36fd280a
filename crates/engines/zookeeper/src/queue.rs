//! Who holds a name and who waits, from the nodes of its queue.
//!
//! - Q1: nodes stand in the order of their numbers. The first ones hold the name, as many as fit
//!   together; the first that does not fit waits, and everybody behind it.
//! - Q2: new nodes come at the end, so who holds goes on to hold, and only a node that goes lets
//!   others in. So an old view, which shows nodes that are gone, never lets one in too early.
//! - Q3: ZooKeeper counts the nodes that a queue's node has ever had in 31 bits. Beyond them its
//!   numbers repeat or are negative, and the order is lost. So from [`WORN_OUT`] on nobody is let
//!   into the queue until it is empty, and then its node is deleted: the next one counts from 0. A
//!   name that other programs have driven beyond the end is refused, since nobody can tell who is
//!   first.

use holdline_core::{Escaped, LeaseId, LockError, Mode};

use crate::error::{ENGINE, foreign};
use crate::keys::{Stander, stander};
use crate::options::Family;

/// From this number on a queue is worn out (Q3): early enough that those who are on their way do
/// not reach the end.
pub(crate) const WORN_OUT: i64 = (i32::MAX - (1 << 24)) as i64;

/// One node of a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// The last part of its path.
    pub(crate) child: String,
    pub(crate) stander: Stander,
}

/// The nodes of a name's queue, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queue {
    places: Vec<Place>,
    holding: usize,
    /// The number of the next node, as far as it was read.
    next: i64,
}

impl Place {
    pub(crate) fn mode(&self) -> Mode {
        self.stander.mode
    }

    fn is(&self, id: LeaseId) -> bool {
        self.stander.ours && self.stander.id == id
    }
}

impl Queue {
    /// Sorts the children of a queue's node.
    ///
    /// # Errors
    /// `Foreign`: there is one that is neither ours nor one that we know, or their numbers tell no
    /// order (Q3).
    pub(crate) fn read(children: Vec<String>) -> Result<Queue, LockError> {
        let mut places = Vec::with_capacity(children.len());
        for child in children {
            let Some(stander) = stander(&child) else {
                let shown = format!("{:.200}", Escaped(&child));
                return Err(foreign(format!("the node {shown} is none of a lock")));
            };
            places.push(Place { child, stander });
        }
        places.sort_by_key(|place| place.stander.number);
        check_numbers(&places)?;
        let holding = holding(&places);
        Ok(Queue { places, holding, next: 0 })
    }

    /// Notes the number of the next node.
    pub(crate) fn counted(self, next: i64) -> Queue {
        Queue { next, ..self }
    }

    /// Tells whether nobody may be let in until the queue's node is a new one (Q3).
    pub(crate) fn is_worn_out(&self) -> bool {
        self.next >= WORN_OUT
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
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

    /// Returns all nodes of a lease id: one, unless two clients use the same.
    pub(crate) fn all_of(&self, id: LeaseId) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(move |place| place.is(id))
    }

    /// Returns the nodes that a waiting lease id must see go before it can hold the name: the
    /// nearest that keeps it out, or all before it where any may be the one.
    pub(crate) fn blockers(&self, id: LeaseId) -> Vec<String> {
        let Some(at) = self.places.iter().position(|place| place.is(id)) else {
            return Vec::new();
        };
        let before = &self.places[..at];
        let found: Vec<&Place> = match self.places[at].mode() {
            Mode::Permits { .. } => before.iter().collect(),
            Mode::Exclusive => before.last().into_iter().collect(),
            Mode::Shared => {
                before.iter().rev().find(|place| place.mode() != Mode::Shared).into_iter().collect()
            }
        };
        found.into_iter().map(|place| place.child.clone()).collect()
    }

    /// Tells whether one of another library stands there.
    pub(crate) fn has_others(&self) -> bool {
        self.places.iter().any(|place| !place.stander.ours)
    }

    /// Tells whether nobody else stands there.
    pub(crate) fn is_alone(&self, id: LeaseId) -> bool {
        self.places.iter().all(|place| place.is(id))
    }

    /// Returns the mode of the semaphore, if it is one.
    pub(crate) fn permits_of(&self) -> Option<u32> {
        self.places.first()?.mode().permits_of()
    }

    /// Checks that a contender of this mode may share the name with who is there: exclusive and
    /// shared go together, permits only with permits of the same total, and one of another
    /// library's must see us as we see it.
    ///
    /// # Errors
    /// `Invalid`, with what would do.
    pub(crate) fn check_kind(&self, mode: Mode, family: Option<Family>) -> Result<(), LockError> {
        let mut others = self.places.iter().filter(|place| !place.stander.ours);
        let unseeing = others.find(|place| place.stander.family != family);
        let unseeing = unseeing.and_then(|place| place.stander.family);
        let message = match (self.permits_of(), unseeing.filter(|_| family.is_some())) {
            (in_use, None) if self.places.is_empty() || in_use == mode.permits_of() => {
                return Ok(());
            }
            (Some(of), _) => format!("the name is in use as a semaphore of {of}, not as {mode}"),
            (None, None) => {
                format!("the name is in use as a mutex or read/write lock, not as {mode}")
            }
            (None, Some(theirs)) => {
                let (what, way) = match theirs {
                    Family::Curator => (
                        "Curator's InterProcessMutex",
                        "ask for an exclusive lock, and without `family` in the URL",
                    ),
                    Family::CuratorReadWrite => (
                        "Curator's read/write locks",
                        "write `family=curator-readwrite` into the URL",
                    ),
                    Family::Kazoo => ("kazoo's locks", "write `family=kazoo` into the URL"),
                };
                format!("one of {what} uses the name, and would not see us: {way}")
            }
        };
        Err(LockError::invalid(ENGINE, "mode", message))
    }

    /// Tells whether one more of this mode would hold the name at once.
    pub(crate) fn allows(&self, mode: Mode) -> bool {
        let mut used = 0_u32;
        self.waiting().is_empty()
            && self.holders().iter().all(|place| match (mode, place.mode()) {
                (Mode::Shared, Mode::Shared) => true,
                (Mode::Permits { count, of }, Mode::Permits { count: held, .. }) => {
                    used = used.saturating_add(held);
                    used.saturating_add(count) <= of
                }
                _ => false,
            })
    }
}

/// Checks that the sorted numbers tell an order.
fn check_numbers(places: &[Place]) -> Result<(), LockError> {
    let number = |place: &Place| place.stander.number;
    let repeated = places.windows(2).find(|two| number(&two[0]) == number(&two[1]));
    let bad = places.first().filter(|first| number(first) < 0).or(repeated.map(|two| &two[1]));
    let Some(bad) = bad else { return Ok(()) };
    Err(foreign(format!(
        "the node {} shows that ZooKeeper's numbers have overflowed, so nobody can tell who is \
         first: end all that hold the name or wait for it, and the empty queue begins anew",
        Escaped(&bad.child)
    )))
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

    fn child(number: u8, mode: Mode) -> String {
        let kind = match mode {
            Mode::Exclusive => "lock-".to_owned(),
            Mode::Shared => "__READ__".to_owned(),
            Mode::Permits { count, of } => format!("__PERM__{of}-{count}-"),
        };
        format!("_c_{}-{kind}{number:010}", id(number).to_hex())
    }

    /// The modes in order, numbered from 1.
    fn queue(modes: &[Mode]) -> Queue {
        let children = modes.iter().zip(1..=9).map(|(mode, number)| child(number, *mode));
        let mut children: Vec<String> = children.collect();
        children.reverse();
        Queue::read(children).expect("ours")
    }

    fn permits(count: u32) -> Mode {
        Mode::Permits { count, of: 4 }
    }

    #[test]
    fn numbers_that_have_overflowed_tell_no_order() {
        let numbered = |numbers: &[i64]| {
            let children = numbers
                .iter()
                .zip(1..)
                .map(|(number, of)| format!("_c_{}-lock-{number:010}", id(of).to_hex()));
            Queue::read(children.collect())
        };
        let last = i64::from(i32::MAX);
        for numbers in [&[last, last][..], &[5, last, last], &[i64::from(i32::MIN), last], &[-1]] {
            let told = numbered(numbers).expect_err("no order").to_string();
            assert!(told.contains("overflowed"), "{numbers:?}: {told}");
        }
        // Servers that count in 64 bits go on.
        let queue = numbered(&[last + 1, last]).expect("an order");
        assert_eq!(queue.holders()[0].stander.number, last);
        assert!(!queue.clone().counted(WORN_OUT - 1).is_worn_out());
        assert!(queue.counted(WORN_OUT).is_worn_out());
    }

    #[test]
    fn the_first_that_fit_together_hold() {
        use Mode::{Exclusive, Shared};
        for (modes, holding) in [
            (vec![], 0),
            (vec![Exclusive, Exclusive], 1),
            (vec![Exclusive, Shared], 1),
            (vec![Shared, Shared, Exclusive], 2),
            (vec![Shared, Exclusive, Shared], 1),
            (vec![permits(1), permits(2), permits(1)], 3),
            (vec![permits(2), permits(3), permits(1)], 1),
            (vec![permits(4)], 1),
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
        for (modes, of, wanted) in [
            (vec![Exclusive, Exclusive, Exclusive], 3, vec![2]),
            (vec![Exclusive, Shared, Shared], 3, vec![1]),
            (vec![Shared, Shared, Exclusive], 3, vec![2]),
            (vec![permits(3), permits(1), permits(2)], 3, vec![1, 2]),
            (vec![Exclusive], 9, vec![]),
        ] {
            let queue = queue(&modes);
            let wanted: Vec<String> =
                wanted.into_iter().map(|n| child(n, modes[usize::from(n) - 1])).collect();
            assert_eq!(queue.blockers(id(of)), wanted, "{modes:?}");
        }
    }

    #[test]
    fn what_would_not_see_us_is_told_with_what_would_do() {
        let curator = |kind: &str| {
            let child = format!("_c_0f8fad5b-d9cb-469f-a165-70867728950e-{kind}0000000001");
            Queue::read(vec![child]).expect("one of Curator's")
        };
        let told = |queue: &Queue, mode: Mode, family: Option<Family>| {
            queue.check_kind(mode, family).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let (mutex, write) = (Some(Family::Curator), Some(Family::CuratorReadWrite));
        assert_eq!(told(&curator("lock-"), Mode::Exclusive, mutex), "");
        assert_eq!(told(&curator("__READ__"), Mode::Shared, write), "");
        assert_eq!(told(&curator("__WRIT__"), Mode::Exclusive, write), "");
        let fix = told(&curator("__READ__"), Mode::Exclusive, mutex);
        assert!(fix.contains("write `family=curator-readwrite`"), "{fix}");
        let fix = told(&curator("lock-"), Mode::Shared, write);
        assert!(fix.contains("without `family`"), "{fix}");
        let kazoo = || {
            let child = "0f8fad5bd9cb469fa16570867728950e__rlock__0000000001".to_owned();
            Queue::read(vec![child]).expect("one of kazoo's")
        };
        for family in [Family::Curator, Family::CuratorReadWrite] {
            let fix = told(&kazoo(), Mode::Exclusive, Some(family));
            assert!(fix.contains("write `family=kazoo`"), "{fix}");
        }
        assert_eq!(told(&kazoo(), Mode::Exclusive, Some(Family::Kazoo)), "");
        let fix = told(&curator("lock-"), permits(1), None);
        assert!(fix.contains("in use as a mutex"), "{fix}");
        let fix = told(&queue(&[permits(1)]), Mode::Exclusive, mutex);
        assert!(fix.contains("semaphore of 4"), "{fix}");
        assert!(Queue::read(vec!["config".into()]).is_err());
    }
}
