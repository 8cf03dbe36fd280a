//! The queue of a name, read from its keys: contenders in the order of their create revisions.
//!
//! [`SequencedQueue`] decides which contenders hold the name.
//!
//! A contender does not read the whole queue. It reads two ends of it, whose size does not depend
//! on the number of waiters: the keys directly before its own, which say whether it holds the name,
//! and the keys at the front, which say who holds it and at which position this contender waits.

use holdline_core::sequenced_queue::{
    Contender, blockers, most_blockers, most_weight_before, weight_before,
};
use holdline_core::{LeaseId, LockError, LockName, Mode, Record, SequencedQueue};

use crate::error::foreign;
use crate::keys::{Layout, ParsedKey};
use crate::ops::{first_of, newest_of};
use crate::proto::{KeyValue, RangeRequest, RangeResponse};

/// How many keys at the front of a queue are read, with values. If more hold the name together, the
/// position of a waiter is not known.
const FRONT: i64 = 16;

/// One key of a queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueEntry {
    pub(crate) kv: KeyValue,
    pub(crate) parsed: ParsedKey,
}

/// The contenders of a name.
pub(crate) type Queue = SequencedQueue<QueueEntry>;

/// Up to so many keys are watched for a contender. With more, all are found in the events of the
/// whole queue.
pub(crate) const MOST_WATCHES: usize = 16;

/// One key of [`Blockers`].
#[derive(Clone, Debug, PartialEq)]
struct Blocker {
    key: Vec<u8>,
    weight: u32,
}

/// The keys directly before a contender: it waits for as long as those that exist weigh too much
/// together (Q3 of `core::sequenced_queue`). None: it holds the name.
///
/// For permits there may be more of them than must exist. So several may be deleted, in any order,
/// before the contender must ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Blockers {
    blockers: Vec<Blocker>,
    most_weight: u32,
}

impl Blockers {
    /// Evaluates the contenders before one of this mode.
    fn new(mode: Mode, before: &[QueueEntry]) -> Blockers {
        if blockers(mode, before.iter().rev()).is_empty() {
            return Blockers::default();
        }
        let blocker = |entry: &QueueEntry| Blocker {
            key: entry.kv.key.clone(),
            weight: weight_before(mode, entry.mode()),
        };
        let heavy = before.iter().rev().map(blocker).filter(|blocker| blocker.weight > 0);
        let blockers = heavy.take(most_watched(mode)).collect();
        Blockers { blockers, most_weight: most_weight_before(mode) }
    }

    /// Returns whether there are none: the contender holds.
    pub(crate) fn is_empty(&self) -> bool {
        self.blockers.is_empty()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.blockers.iter().map(|blocker| &blocker.key)
    }

    /// Returns whether the contender must wait while these of them exist.
    pub(crate) fn block(&self, exists: impl Fn(&Vec<u8>) -> bool) -> bool {
        let existing = self.blockers.iter().filter(|blocker| exists(&blocker.key));
        let weight = existing.fold(0_u32, |sum, blocker| sum.saturating_add(blocker.weight));
        weight > self.most_weight
    }

    /// Removes a key that was deleted; returns whether the others still make the contender wait.
    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.blockers.retain(|blocker| blocker.key != key);
        self.block(|_| true)
    }
}

/// Returns how many keys before a contender are watched. As many as can block it must be. For
/// permits nearly twice as many are, unless that is too many: while the nearest leave one by one,
/// those that left earlier need no request.
fn most_watched(mode: Mode) -> usize {
    let needed = most_blockers(mode);
    let more = needed.saturating_mul(2).saturating_sub(1);
    if more <= MOST_WATCHES { more } else { needed }
}

/// What a contender knows about its place in the queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContenderState {
    /// The revision that made its key: its fencing token, if it holds the name.
    pub(crate) created: i64,
    pub(crate) blockers: Blockers,
    /// How many waiters are before it, if it waits and that is known.
    pub(crate) position: Option<usize>,
    /// No more waiters than this are before it.
    pub(crate) most_before: usize,
    /// The first key of the queue, with its value.
    pub(crate) first: Option<KeyValue>,
}

/// A key whose place in the queue is read.
#[derive(Clone, Copy)]
pub(crate) struct OwnKey<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) mode: Mode,
    /// The revision that made it.
    pub(crate) created: i64,
    /// No key of the queue is younger.
    pub(crate) is_last: bool,
}

impl ContenderState {
    pub(crate) fn holds(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// Returns the read of the front of a queue.
pub(crate) fn front(layout: &Layout, name: &LockName) -> RangeRequest {
    first_of(layout.queue(name), FRONT)
}

/// Returns the read of a key and of those directly before it: as many as are watched. `created` is
/// the revision that made the key; `None` if the read follows its making in the same transaction.
pub(crate) fn nearest_before(
    layout: &Layout,
    name: &LockName,
    mode: Mode,
    created: Option<i64>,
) -> RangeRequest {
    let span = match mode {
        // Shared contenders do not block each other, and permits cannot be before one.
        Mode::Shared => layout.exclusive(name),
        Mode::Exclusive | Mode::Permits { .. } => layout.queue(name),
    };
    newest_of(span, most_watched(mode).saturating_add(1), created)
}

/// Returns what blocks a contender, from the keys before it in any order. Younger ones do not
/// count.
///
/// # Errors
/// `Foreign`: there is a key that is neither Holdline's nor of a Go mutex.
pub(crate) fn blockers_of(
    layout: &Layout,
    name: &LockName,
    own: OwnKey<'_>,
    before: Vec<KeyValue>,
) -> Result<Blockers, LockError> {
    let mut before = parsed(layout, name, before, false)?;
    before.retain(|entry| entry.place() < (own.created, own.key));
    Ok(Blockers::new(own.mode, &before))
}

/// Evaluates both reads of one revision for a contender.
///
/// # Errors
/// As [`read_keys`].
pub(crate) fn state_of(
    layout: &Layout,
    name: &LockName,
    own: OwnKey<'_>,
    front: RangeResponse,
    before: Vec<KeyValue>,
) -> Result<ContenderState, LockError> {
    let blockers = blockers_of(layout, name, own, before)?;
    let length = usize::try_from(front.count).unwrap_or(0);
    let first = front.kvs.first().cloned();
    let front = read_keys(layout, name, front.kvs)?;
    let own_index = front.contenders().iter().position(|entry| entry.kv.key == own.key);
    let before_own = own_index.or(own.is_last.then(|| length.saturating_sub(1)));
    let holders = front.holders().len();
    let are_all_holders_read = holders == length || !front.waiting().is_empty();
    let position = match before_own {
        Some(before) if !blockers.is_empty() && are_all_holders_read => before.checked_sub(holders),
        _ => None,
    };
    let most_before = before_own.unwrap_or(length).saturating_sub(holders);
    Ok(ContenderState { created: own.created, blockers, position, most_before, first })
}

impl QueueEntry {
    /// Its place in the queue. A transaction of another program may make several keys at once.
    fn place(&self) -> (i64, &[u8]) {
        (self.kv.create_revision, &self.kv.key)
    }
}

impl Contender for QueueEntry {
    fn mode(&self) -> Mode {
        match self.parsed {
            ParsedKey::Ours { mode, .. } => mode,
            ParsedKey::Go { .. } => Mode::Exclusive,
        }
    }

    fn is(&self, id: LeaseId) -> bool {
        matches!(self.parsed, ParsedKey::Ours { lease_id, .. } if lease_id == Some(id))
    }
}

/// Sorts keys that were read with their values.
///
/// # Errors
/// `Foreign`: there is a key that is neither Holdline's nor of a Go mutex, or a record that this
/// version cannot read.
pub(crate) fn read(
    layout: &Layout,
    name: &LockName,
    kvs: Vec<KeyValue>,
) -> Result<Queue, LockError> {
    let mut entries = parsed(layout, name, kvs, true)?;
    for QueueEntry { kv, parsed } in &mut entries {
        if let ParsedKey::Ours { lease_id: lease_id @ None, .. } = parsed {
            *lease_id = Some(lease_id_in(&kv.value)?);
        }
    }
    Ok(Queue::new(entries))
}

/// Reads the record at a key.
///
/// # Errors
/// `Foreign`: the value is no record.
pub(crate) fn record(value: &[u8]) -> Result<Record, LockError> {
    let found = "a key of the form that Holdline uses has a value that this version cannot read";
    Record::from_bytes(value).ok_or_else(|| foreign(found))
}

/// Returns the lease id in a record.
fn lease_id_in(value: &[u8]) -> Result<LeaseId, LockError> {
    record(value)?.lease_id.ok_or_else(|| foreign("a record has no lease id"))
}

/// Sorts keys that were read without their values. From etcd 3.7 on such a read returns no lease:
/// then the form of the key alone shows that it belongs to a lock. Only detached leases have their
/// lease id in the key, so the queue can find no others.
///
/// # Errors
/// `Foreign`: there is a key that is neither Holdline's nor of a Go mutex.
pub(crate) fn read_keys(
    layout: &Layout,
    name: &LockName,
    kvs: Vec<KeyValue>,
) -> Result<Queue, LockError> {
    parsed(layout, name, kvs, false).map(Queue::new)
}

/// Parses and sorts keys. A lease of 0 means that there is none or, without `leases_are_returned`,
/// possibly that the server did not return it.
fn parsed(
    layout: &Layout,
    name: &LockName,
    kvs: Vec<KeyValue>,
    leases_are_returned: bool,
) -> Result<Vec<QueueEntry>, LockError> {
    let mut entries = Vec::with_capacity(kvs.len());
    for kv in kvs {
        let is_unknown = kv.lease == 0 && !leases_are_returned;
        let parsed = layout.parse_key(name, &kv.key).filter(|parsed| match parsed {
            ParsedKey::Ours { .. } => kv.lease != 0 || is_unknown,
            ParsedKey::Go { lease } => kv.lease == *lease || is_unknown,
        });
        let Some(parsed) = parsed else {
            let key = String::from_utf8_lossy(&kv.key).into_owned();
            return Err(foreign(format!(
                "the key {:.200} does not belong to a lock",
                holdline_core::Escaped(&key)
            )));
        };
        entries.push(QueueEntry { kv, parsed });
    }
    entries.sort_by(|one, other| one.place().cmp(&other.place()));
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use holdline_core::{Hold, Metadata};
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::keys::KeyEnd;
    use crate::proto::SortOrder;

    fn end(number: u8) -> KeyEnd {
        KeyEnd::LeaseId(LeaseId::from_bytes([number; 16]))
    }

    /// The key that was used before has another lease id in its record.
    #[test]
    fn the_record_names_the_contender_of_a_numbered_key() {
        let layout = Layout::new("");
        let name = LockName::new("a").expect("good");
        let [own, other] = [1, 2].map(|byte| LeaseId::from_bytes([byte; 16]));
        let key = layout.contender(&name, KeyEnd::Number(0), Mode::Exclusive, 7);
        let mut record = Record::new(Hold::Live, &Metadata::default());
        let kv = |record: &Record| KeyValue {
            key: key.clone(),
            value: record.to_bytes(),
            lease: 7,
            ..KeyValue::default()
        };
        assert!(read(&layout, &name, vec![kv(&record)]).is_err(), "no lease id");
        record.lease_id = Some(other);
        let queue = read(&layout, &name, vec![kv(&record)]).expect("ours");
        assert!(queue.find(other).is_some() && queue.find(own).is_none());
        let queue = read_keys(&layout, &name, vec![kv(&record)]).expect("ours");
        assert!(queue.find(other).is_none(), "without values");
    }

    #[test]
    fn contenders_are_in_the_order_of_their_create_revisions() {
        let layout = Layout::new("");
        let name = LockName::new("a").expect("good");
        let kvs = [(1, 30, Mode::Shared), (2, 20, Mode::Exclusive), (3, 10, Mode::Shared)];
        let kvs = kvs.map(|(number, create_revision, mode)| KeyValue {
            key: layout.contender(&name, end(number), mode, 7),
            create_revision,
            lease: 7,
            ..KeyValue::default()
        });
        let queue = read(&layout, &name, kvs.to_vec()).expect("ours");
        let found = [1, 2, 3].map(|number| queue.find(LeaseId::from_bytes([number; 16])));
        assert_eq!(
            found.map(|found| found.map(|(_, waits)| waits)),
            [Some(Some(1)), Some(Some(0)), Some(None)]
        );
    }

    /// Answers a read as a server does.
    fn answer(kvs: &[KeyValue], range: &RangeRequest) -> RangeResponse {
        let in_span = |kv: &&KeyValue| range.key <= kv.key && kv.key < range.range_end;
        let mut found: Vec<KeyValue> = kvs.iter().filter(in_span).cloned().collect();
        let count = i64::try_from(found.len()).expect("few");
        let most = range.max_create_revision;
        found.retain(|kv| most == 0 || kv.create_revision <= most);
        found.sort_by_key(|kv| kv.create_revision);
        if range.sort_order == i32::from(SortOrder::Descend) {
            found.reverse();
        }
        found.truncate(usize::try_from(range.limit).expect("a limit"));
        RangeResponse { kvs: found, count, ..RangeResponse::default() }
    }

    /// Queues of up to 24, in which each contender reads both ends.
    #[test]
    fn both_ends_of_a_queue_show_what_the_whole_shows() {
        let layout = Layout::new("");
        let name = LockName::new("a").expect("good");
        let mut random = StdRng::seed_from_u64(7);
        let permits = |count| Mode::Permits { count, of: 20 };
        let kinds = [
            vec![Mode::Exclusive],
            vec![Mode::Shared, Mode::Shared, Mode::Exclusive],
            vec![Mode::Shared; 1],
            vec![permits(1), permits(1), permits(3), permits(20)],
            vec![permits(1)],
        ];
        let mut known = 0;
        for turn in 0..200 {
            let modes = &kinds[turn % kinds.len()];
            let kvs: Vec<KeyValue> = (1..=random.random_range(1..24))
                .map(|number| KeyValue {
                    key: layout.contender(
                        &name,
                        end(number),
                        modes[random.random_range(0..modes.len())],
                        7,
                    ),
                    create_revision: i64::from(number) * 3,
                    lease: 7,
                    ..KeyValue::default()
                })
                .collect();
            let whole = read(&layout, &name, kvs.clone()).expect("ours");
            for (at, kv) in kvs.iter().enumerate() {
                let is_last = at + 1 == kvs.len();
                let (entry, waits) = whole
                    .find(LeaseId::from_bytes([u8::try_from(at + 1).expect("few"); 16]))
                    .expect("there");
                let mode = entry.mode();
                let created = kv.create_revision;
                let own = OwnKey { key: &kv.key, mode, created, is_last };
                for created in [Some(created)].into_iter().chain(is_last.then_some(None)) {
                    let before = nearest_before(&layout, &name, mode, created);
                    let before = answer(&kvs, &before).kvs;
                    let front = answer(&kvs, &front(&layout, &name));
                    let state = state_of(&layout, &name, own, front, before).expect("ours");
                    assert_eq!(state.holds(), waits.is_none(), "{modes:?}: {at}");
                    assert_eq!(state.first.as_ref(), kvs.first());
                    if let Some(waits) = waits {
                        assert!(waits <= state.most_before);
                        assert!(state.blockers.block(|_| true) && !state.blockers.block(|_| false));
                    }
                    match state.position {
                        Some(position) => assert_eq!(Some(position), waits),
                        None => {
                            let hidden = at >= 16 && (!is_last || whole.holders().len() >= 16);
                            assert!(waits.is_none() || hidden, "{modes:?}: {at}");
                        }
                    }
                    known += usize::from(state.position.is_some());
                }
            }
        }
        assert!(known > 500, "{known}");
    }

    #[test]
    fn a_key_without_its_lease_is_foreign() {
        let layout = Layout::new("");
        let name = LockName::new("a").expect("good");
        for key in ["a/1f", "a/config"] {
            let kv = KeyValue { key: key.into(), ..KeyValue::default() };
            assert!(read(&layout, &name, vec![kv]).is_err(), "{key}");
        }
        let other = KeyValue { key: "a/1f".into(), lease: 0x2f, ..KeyValue::default() };
        assert!(read_keys(&layout, &name, vec![other]).is_err());
        let kv = KeyValue { key: "a/1f".into(), lease: 0x1f, ..KeyValue::default() };
        assert_eq!(read(&layout, &name, vec![kv]).expect("of Go").holders().len(), 1);
    }

    /// With etcd 3.7 every key was taken for a foreign one.
    #[test]
    fn a_read_without_values_that_returns_no_lease_makes_no_key_foreign() {
        let layout = Layout::new("");
        let name = LockName::new("a").expect("good");
        let ours = layout.contender(&name, end(1), Mode::Exclusive, 7);
        for key in [ours, b"a/1f".to_vec()] {
            let kv = KeyValue { key, ..KeyValue::default() };
            let queue = read_keys(&layout, &name, vec![kv]).expect("not foreign");
            assert_eq!(queue.holders().len(), 1);
        }
        let config = KeyValue { key: "a/config".into(), ..KeyValue::default() };
        assert!(read_keys(&layout, &name, vec![config]).is_err());
    }
}
