//! The queue of a name, read from its nodes: contenders in the order of their sequence numbers.
//!
//! Who holds the name and who waits is decided by [`SequencedQueue`].
//!
//! - Q3: ZooKeeper counts the nodes that a queue's node has ever had in 31 bits. Beyond them its
//!   numbers repeat or are negative, and the order is lost. So from [`WORN_OUT`] on nobody is let
//!   into the queue until it is empty, and then its node is deleted: the next one counts from 0. A
//!   name that other programs have driven beyond the end is refused, since nobody can tell who is
//!   first.

use std::ops::Deref;

use holdline_core::sequenced_queue::Contender;
use holdline_core::{Escaped, LeaseId, LockError, Mode, SequencedQueue};

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

/// The contenders of a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    order: SequencedQueue<Place>,
    /// The number of the next node, as far as it was read.
    next: i64,
}

impl Contender for Place {
    fn mode(&self) -> Mode {
        self.stander.mode
    }

    fn is(&self, id: LeaseId) -> bool {
        self.stander.ours && self.stander.id == id
    }
}

impl Deref for Queue {
    type Target = SequencedQueue<Place>;

    fn deref(&self) -> &SequencedQueue<Place> {
        &self.order
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
        Ok(Queue { order: SequencedQueue::new(places), next: 0 })
    }

    /// Notes the number of the next node.
    pub(crate) fn counted(self, next: i64) -> Queue {
        Queue { next, ..self }
    }

    /// Tells whether nobody may be let in until the queue's node is a new one (Q3).
    pub(crate) fn is_worn_out(&self) -> bool {
        self.next >= WORN_OUT
    }

    /// Returns all nodes of a lease id: one, unless two clients use the same.
    pub(crate) fn all_of(&self, id: LeaseId) -> impl Iterator<Item = &Place> {
        self.contenders().iter().filter(move |place| place.is(id))
    }

    /// Tells whether one of another library stands there.
    pub(crate) fn has_others(&self) -> bool {
        self.contenders().iter().any(|place| !place.stander.ours)
    }

    /// Tells whether nobody else stands there.
    pub(crate) fn is_alone(&self, id: LeaseId) -> bool {
        self.contenders().iter().all(|place| place.is(id))
    }

    /// Checks that a contender of this mode may share the name with who is there: exclusive and
    /// shared go together, permits only with permits of the same total, and one of another
    /// library's must see us as we see it.
    ///
    /// # Errors
    /// `Invalid`, with what would do.
    pub(crate) fn check_kind(&self, mode: Mode, family: Option<Family>) -> Result<(), LockError> {
        self.check_mode(ENGINE, mode)?;
        let mut others = self.contenders().iter().filter(|place| !place.stander.ours);
        let unseeing = others.find(|place| place.stander.family != family);
        let unseeing = unseeing.and_then(|place| place.stander.family).filter(|_| family.is_some());
        let Some(theirs) = unseeing else { return Ok(()) };
        let (what, way) = match theirs {
            Family::Curator => (
                "Curator's InterProcessMutex",
                "ask for an exclusive lock, and without `family` in the URL",
            ),
            Family::CuratorReadWrite => {
                ("Curator's read/write locks", "write `family=curator-readwrite` into the URL")
            }
            Family::Kazoo => ("kazoo's locks", "write `family=kazoo` into the URL"),
        };
        let message = format!("one of {what} uses the name, and would not see us: {way}");
        Err(LockError::invalid(ENGINE, "mode", message))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> LeaseId {
        LeaseId::from_bytes([number; 16])
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
        let fix = told(&curator("lock-"), Mode::Permits { count: 1, of: 4 }, None);
        assert!(fix.contains("in use as a mutex"), "{fix}");
        let permit = format!("_c_{}-__PERM__4-1-0000000001", id(1).to_hex());
        let permit = Queue::read(vec![permit]).expect("one of ours");
        let fix = told(&permit, Mode::Exclusive, mutex);
        assert!(fix.contains("semaphore of 4"), "{fix}");
        assert!(Queue::read(vec!["config".into()]).is_err());
    }
}
