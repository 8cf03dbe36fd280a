//! The queue of a name, read from its nodes: contenders in the order of their sequence numbers.
//!
//! [`SequencedQueue`] decides which contenders hold the name.
//!
//! - Q3: ZooKeeper counts the nodes that a queue has ever had in 31 bits. Beyond that its numbers
//!   repeat or are negative, and the order is lost. So from [`EXHAUSTED`] on, no contender is
//!   admitted until the queue is empty. Then its node is deleted, and the next one counts from 0.
//!   If other programs have exceeded the limit, the name is refused, since its order is unknown.

use std::ops::Deref;

use holdline_core::sequenced_queue::Contender;
use holdline_core::{Escaped, FencingToken, LeaseId, LockError, Mode, SequencedQueue};

use crate::error::{ENGINE, foreign, protocol};
use crate::keys::{ParsedNode, parse_node};
use crate::options::Family;

/// From this number on a queue is exhausted (Q3). The margin is for requests in flight.
pub(crate) const EXHAUSTED: i64 = (i32::MAX - (1 << 24)) as i64;

/// One node of a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueEntry {
    /// The name of the node, without the path of the queue.
    pub(crate) child: String,
    pub(crate) parsed: ParsedNode,
}

/// The contenders of a name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Queue {
    order: SequencedQueue<QueueEntry>,
    /// The number of the next node; 0 if it was not read.
    next: i64,
    /// Whether the node of the queue exists, as far as it was read.
    exists: bool,
}

impl Contender for QueueEntry {
    fn mode(&self) -> Mode {
        self.parsed.mode
    }

    fn is(&self, id: LeaseId) -> bool {
        self.parsed.ours && self.parsed.id == id
    }
}

impl Deref for Queue {
    type Target = SequencedQueue<QueueEntry>;

    fn deref(&self) -> &SequencedQueue<QueueEntry> {
        &self.order
    }
}

impl Queue {
    /// Sorts the children of a queue's node.
    ///
    /// # Errors
    /// `Foreign`: a node is neither Holdline's nor of a known library, or the numbers have no order
    /// (Q3).
    pub(crate) fn read(children: Vec<String>) -> Result<Queue, LockError> {
        let mut entries = Vec::with_capacity(children.len());
        for child in children {
            let Some(parsed) = parse_node(&child) else {
                let shown = format!("{:.200}", Escaped(&child));
                return Err(foreign(format!("the node {shown} does not belong to a lock")));
            };
            entries.push(QueueEntry { child, parsed });
        }
        entries.sort_by_key(|entry| entry.parsed.number);
        check_numbers(&entries)?;
        Ok(Queue { order: SequencedQueue::new(entries), next: 0, exists: true })
    }

    /// Returns the queue of a name that has no node.
    pub(crate) fn without_node() -> Queue {
        Queue { order: SequencedQueue::new(Vec::new()), next: 0, exists: false }
    }

    /// Returns whether the node of the queue exists.
    pub(crate) fn exists(&self) -> bool {
        self.exists
    }

    /// Sets the number of the next node.
    pub(crate) fn counted(self, next: i64) -> Queue {
        Queue { next, ..self }
    }

    /// Returns whether no contender may be admitted until the queue has a new node (Q3).
    pub(crate) fn is_exhausted(&self) -> bool {
        self.next >= EXHAUSTED
    }

    /// Returns all nodes of a lease id: one, unless two clients use the same id.
    pub(crate) fn all_of(&self, id: LeaseId) -> impl Iterator<Item = &QueueEntry> {
        self.contenders().iter().filter(move |entry| entry.is(id))
    }

    /// Returns whether there is a contender of another library.
    pub(crate) fn has_others(&self) -> bool {
        self.contenders().iter().any(|entry| !entry.parsed.ours)
    }

    /// Returns whether there is no other contender.
    pub(crate) fn is_alone(&self, id: LeaseId) -> bool {
        self.contenders().iter().all(|entry| entry.is(id))
    }

    /// Checks that a contender of this mode may share the queue: exclusive and shared go together,
    /// permits only with permits of the same total, and a contender of another library must see
    /// Holdline's nodes.
    ///
    /// # Errors
    /// `Invalid`, with advice.
    pub(crate) fn check_kind(&self, mode: Mode, family: Option<Family>) -> Result<(), LockError> {
        self.check_mode(ENGINE, mode)?;
        let mut others = self.contenders().iter().filter(|entry| !entry.parsed.ours);
        let unseeing = others.find(|entry| entry.parsed.family != family);
        let unseeing = unseeing.and_then(|entry| entry.parsed.family).filter(|_| family.is_some());
        let Some(theirs) = unseeing else { return Ok(()) };
        let (what, way) = match theirs {
            Family::Curator => (
                "locks of Curator's InterProcessMutex",
                "ask for an exclusive lock, and without `family` in the URL",
            ),
            Family::CuratorReadWrite => {
                ("Curator's read/write locks", "write `family=curator-readwrite` into the URL")
            }
            Family::Kazoo => ("kazoo's locks", "write `family=kazoo` into the URL"),
        };
        let message = format!("{what} use the name, and would not see this lock: {way}");
        Err(LockError::invalid(ENGINE, "mode", message))
    }
}

/// Checks that the sorted numbers define an order.
fn check_numbers(entries: &[QueueEntry]) -> Result<(), LockError> {
    let number = |entry: &QueueEntry| entry.parsed.number;
    let repeated = entries.windows(2).find(|two| number(&two[0]) == number(&two[1]));
    let bad = entries.first().filter(|first| number(first) < 0).or(repeated.map(|two| &two[1]));
    let Some(bad) = bad else { return Ok(()) };
    Err(foreign(format!(
        "the node {} shows that ZooKeeper's sequence numbers have overflowed, so the order of the \
         queue is unknown: end all that hold the name or wait for it, so that the queue can start \
         again",
        Escaped(&bad.child)
    )))
}

/// Returns the fencing token: the transaction that created the node.
pub(crate) fn token(czxid: i64) -> Result<FencingToken, LockError> {
    let number = u64::try_from(czxid).unwrap_or(0);
    FencingToken::new(number)
        .map_err(|_| protocol(format!("the transaction {czxid} is no fencing token")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> LeaseId {
        LeaseId::from_bytes([number; 16])
    }

    #[test]
    fn numbers_that_have_overflowed_define_no_order() {
        let numbered = |numbers: &[i64]| {
            let children = numbers
                .iter()
                .zip(1..)
                .map(|(number, of)| format!("_c_{}-lock-{number:010}", id(of).to_hex()));
            Queue::read(children.collect())
        };
        let last = i64::from(i32::MAX);
        for numbers in [&[last, last][..], &[5, last, last], &[i64::from(i32::MIN), last], &[-1]] {
            let error = numbered(numbers).expect_err("no order").to_string();
            assert!(error.contains("overflowed"), "{numbers:?}: {error}");
        }
        // Servers that count in 64 bits go on.
        let queue = numbered(&[last + 1, last]).expect("an order");
        assert_eq!(queue.holders()[0].parsed.number, last);
        assert!(!queue.clone().counted(EXHAUSTED - 1).is_exhausted());
        assert!(queue.counted(EXHAUSTED).is_exhausted());
    }

    #[test]
    fn a_family_that_would_not_see_the_lock_is_refused_with_advice() {
        let curator = |kind: &str| {
            let child = format!("_c_0f8fad5b-d9cb-469f-a165-70867728950e-{kind}0000000001");
            Queue::read(vec![child]).expect("one of Curator's")
        };
        let error = |queue: &Queue, mode: Mode, family: Option<Family>| {
            queue.check_kind(mode, family).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let mutex = Some(Family::Curator);
        let write = Some(Family::CuratorReadWrite);
        assert_eq!(error(&curator("lock-"), Mode::Exclusive, mutex), "");
        assert_eq!(error(&curator("__READ__"), Mode::Shared, write), "");
        assert_eq!(error(&curator("__WRIT__"), Mode::Exclusive, write), "");
        let fix = error(&curator("__READ__"), Mode::Exclusive, mutex);
        assert!(fix.contains("write `family=curator-readwrite`"), "{fix}");
        let fix = error(&curator("lock-"), Mode::Shared, write);
        assert!(fix.contains("without `family`"), "{fix}");
        let kazoo = || {
            let child = "0f8fad5bd9cb469fa16570867728950e__rlock__0000000001".to_owned();
            Queue::read(vec![child]).expect("one of kazoo's")
        };
        for family in [Family::Curator, Family::CuratorReadWrite] {
            let fix = error(&kazoo(), Mode::Exclusive, Some(family));
            assert!(fix.contains("write `family=kazoo`"), "{fix}");
        }
        assert_eq!(error(&kazoo(), Mode::Exclusive, Some(Family::Kazoo)), "");
        let fix = error(&curator("lock-"), Mode::Permits { count: 1, of: 4 }, None);
        assert!(fix.contains("in use as a mutex"), "{fix}");
        let permit = format!("_c_{}-__PERM__4-1-0000000001", id(1).to_hex());
        let permit = Queue::read(vec![permit]).expect("one of ours");
        let fix = error(&permit, Mode::Exclusive, mutex);
        assert!(fix.contains("semaphore of 4"), "{fix}");
        assert!(Queue::read(vec!["config".into()]).is_err());
    }
}
