//! The queue of one name as rows, and the source of tokens: the store of the lock table's rules.
//!
//! An entry's row begins with what changes and what is asked most (when it was last seen, its
//! client, its lease id), so that a heartbeat or a sweep need not decode the rest.
//!
//! *Index rows*, one for 64 places, find the place of a lease id: they contain the first bytes of
//! the lease ids. A removed entry stays in them; each hit is checked against the entry itself. So a
//! hand-off changes the front of the queue only and an enqueue its end only, whatever the length of
//! the queue.

use std::ops::ControlFlow;

use holdline_core::table::{QueueEntry, Remaining, Store};
use holdline_core::{ClientId, FencingToken, LeaseId, LockName, Moment};

use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;
use crate::token::Counter;

const FORMAT: u8 = 1;
const LAST_SEEN: std::ops::Range<usize> = 1..9;
const CLIENT: std::ops::Range<usize> = 9..17;
const LEASE_ID: std::ops::Range<usize> = 17..33;
const REST: usize = 33;

/// How many places one index row covers, and how many bytes of each lease id it contains.
const COVERED: u64 = 64;
const BEGINNING: usize = 8;

/// The counter's row, read when the first token is drawn and written back at the end.
#[derive(Debug, Default)]
pub(crate) struct LazyCounter {
    counter: Option<Counter>,
    changed: bool,
}

impl LazyCounter {
    fn draw(
        &mut self,
        rows: Rows<'_>,
        boot: crate::machine::BootId,
    ) -> Result<FencingToken, Fault> {
        let counter = match &mut self.counter {
            Some(counter) => counter,
            none => none.insert(Counter::decode(rows.get(keys::COUNTER)?.as_deref())?),
        };
        if counter.boot != boot {
            return Err(Fault::OtherBoot);
        }
        let token = counter.draw()?;
        self.changed = true;
        Ok(token)
    }

    /// Writes the row back if a token was drawn.
    pub(crate) fn save(&mut self, rows: Rows<'_>) -> Result<(), Fault> {
        match &self.counter {
            Some(counter) if self.changed => rows.update(keys::COUNTER, &counter.encode()),
            _ => Ok(()),
        }
    }
}

/// The queue of one name.
pub(crate) struct Queue<'a> {
    pub(crate) rows: Rows<'a>,
    pub(crate) name: &'a LockName,
    pub(crate) boot: crate::machine::BootId,
    pub(crate) counter: &'a mut LazyCounter,
    /// The row that was read last: the rules ask for an entry and then change it.
    pub(crate) last_read: Option<(u64, Vec<u8>)>,
}

impl Queue<'_> {
    fn row(&mut self, place: u64) -> Result<Option<Vec<u8>>, Fault> {
        match self.last_read.take() {
            Some((known, row)) if known == place => Ok(Some(row)),
            _ => self.rows.get(&keys::entry(self.name, place)),
        }
    }

    /// Decodes a row and keeps it for the change that may follow.
    fn read(&mut self, place: u64, row: Vec<u8>) -> Result<QueueEntry, Fault> {
        let entry = decode(&row).filter(|entry| entry.place == place).ok_or_else(foreign)?;
        self.last_read = Some((place, row));
        Ok(entry)
    }

    /// Removes the entries that `goes` selects by client and last heartbeat.
    fn remove_where(
        &mut self,
        goes: impl Fn(ClientId, Moment) -> bool,
    ) -> Result<Remaining, Fault> {
        self.last_read = None;
        let (first, end) = keys::entries(self.name);
        let mut remaining = Remaining { queued: 0, oldest_seen: Moment::NEVER };
        let mut gone: Vec<Vec<u8>> = Vec::new();
        self.rows.visit_between(&first, &end, |key, row| {
            let Front { last_seen, client, .. } = decode_front(row).ok_or_else(foreign)?;
            if goes(client, last_seen) {
                gone.push(key.to_vec());
            } else {
                remaining.queued += 1;
                remaining.oldest_seen = remaining.oldest_seen.min(last_seen);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for key in gone {
            self.rows.delete(&key)?;
        }
        Ok(remaining)
    }

    /// Records the place of a lease id.
    fn index(&mut self, lease_id: LeaseId, place: u64) -> Result<(), Fault> {
        let key = keys::index(self.name, place / COVERED);
        let known = self.rows.get(&key)?;
        let mut row = known.clone().unwrap_or_else(|| vec![FORMAT]);
        let at = 1 + BEGINNING * usize::try_from(place % COVERED).unwrap_or(0);
        row.resize(row.len().max(at + BEGINNING), 0);
        row[at..at + BEGINNING].copy_from_slice(&lease_id.as_bytes()[..BEGINNING]);
        match known {
            Some(_) => self.rows.update(&key, &row),
            None => {
                self.rows.insert(&key, &row)?;
                self.forget_empty_places()
            }
        }
    }

    /// Removes the index rows of empty places.
    fn forget_empty_places(&mut self) -> Result<(), Fault> {
        let (first, end) = keys::indexes(self.name);
        let mut numbers = Vec::new();
        self.rows.visit_between(&first, &end, |key, _| {
            numbers.push(key.get(first.len()..).and_then(number).ok_or_else(foreign)?);
            Ok(ControlFlow::Continue(()))
        })?;
        for number in numbers {
            let place = number.saturating_mul(COVERED);
            let from = place;
            let to = place.saturating_add(COVERED);
            let from = keys::entry(self.name, from);
            let next = self.rows.first_from(&from)?;
            if next.is_none_or(|(key, _)| key >= keys::entry(self.name, to)) {
                self.rows.delete(&keys::index(self.name, number))?;
            }
        }
        Ok(())
    }

    /// Removes all index rows of an empty queue.
    pub(crate) fn forget_places(&mut self) -> Result<(), Fault> {
        let (first, end) = keys::indexes(self.name);
        self.rows.delete_between(&first, &end)
    }

    /// Returns the possible places of a lease id.
    fn candidates(&mut self, lease_id: LeaseId) -> Result<Vec<u64>, Fault> {
        let (first, end) = keys::indexes(self.name);
        let beginning = &lease_id.as_bytes()[..BEGINNING];
        let mut places = Vec::new();
        self.rows.visit_between(&first, &end, |key, row| {
            let covered = key.get(first.len()..).and_then(number).ok_or_else(foreign)?;
            let (FORMAT, known) = row.split_first().map_or((0, row), |(f, r)| (*f, r)) else {
                return Err(foreign());
            };
            let places_here = covered.saturating_mul(COVERED)..;
            let hits = places_here.zip(known.chunks(BEGINNING)).filter(|(_, k)| *k == beginning);
            places.extend(hits.map(|(place, _)| place));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(places)
    }
}

impl Store for Queue<'_> {
    type Error = Fault;

    fn next_token(&mut self) -> Result<FencingToken, Fault> {
        self.counter.draw(self.rows, self.boot)
    }

    fn push(&mut self, entry: QueueEntry) -> Result<(), Fault> {
        self.rows.insert(&keys::entry(self.name, entry.place), &encode(&entry)?)?;
        self.index(entry.lease_id, entry.place)
    }

    fn first(&mut self) -> Result<Option<QueueEntry>, Fault> {
        let (first, end) = keys::entries(self.name);
        let Some((key, row)) = self.rows.first_from(&first)?.filter(|(key, _)| *key < end) else {
            return Ok(None);
        };
        let place = key.get(first.len()..).and_then(number).ok_or_else(foreign)?;
        self.read(place, row).map(Some)
    }

    fn find(&mut self, lease_id: LeaseId) -> Result<Option<QueueEntry>, Fault> {
        for place in self.candidates(lease_id)? {
            let Some(row) = self.rows.get(&keys::entry(self.name, place))? else { continue };
            let entry = self.read(place, row)?;
            if entry.lease_id == lease_id {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn ahead_of(&mut self, place: u64) -> Result<usize, Fault> {
        let (first, _) = keys::entries(self.name);
        self.rows.count_between(&first, &keys::entry(self.name, place))
    }

    fn remove(&mut self, place: u64) -> Result<(), Fault> {
        self.last_read = None;
        self.rows.delete(&keys::entry(self.name, place))
    }

    fn touch(&mut self, place: u64, now: Moment) -> Result<(), Fault> {
        let mut row = self.row(place)?.ok_or_else(foreign)?;
        decode_front(&row).ok_or_else(foreign)?;
        row[LAST_SEEN].copy_from_slice(&now.as_nanos().to_be_bytes());
        self.rows.update(&keys::entry(self.name, place), &row)
    }

    fn remove_silent(&mut self, last_seen: Moment) -> Result<Remaining, Fault> {
        self.remove_where(|_, last| last <= last_seen)
    }

    fn remove_client(&mut self, client: ClientId) -> Result<Remaining, Fault> {
        self.remove_where(|whose, _| whose == client)
    }

    fn page(&mut self, limit: usize) -> Result<Vec<QueueEntry>, Fault> {
        let (first, end) = keys::entries(self.name);
        let mut page = Vec::new();
        self.rows.visit_between(&first, &end, |_, row| {
            if page.len() == limit {
                return Ok(ControlFlow::Break(()));
            }
            page.push(decode(row).ok_or_else(foreign)?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(page)
    }
}

fn foreign() -> Fault {
    Fault::Foreign("an entry of the name's queue is not ours".into())
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn encode(entry: &QueueEntry) -> Result<Vec<u8>, Fault> {
    let mut row = Vec::with_capacity(256);
    row.push(FORMAT);
    row.extend_from_slice(&entry.last_seen.as_nanos().to_be_bytes());
    row.extend_from_slice(&entry.client.as_u64().to_be_bytes());
    row.extend_from_slice(entry.lease_id.as_bytes());
    postcard::to_extend(entry, row)
        .map_err(|error| Fault::protocol(format!("an entry cannot be written down: {error}")))
}

/// The front of a row, which a heartbeat changes in place.
struct Front {
    last_seen: Moment,
    client: ClientId,
    lease_id: LeaseId,
}

fn decode_front(row: &[u8]) -> Option<Front> {
    if row.first() != Some(&FORMAT) || row.len() < REST {
        return None;
    }
    Some(Front {
        last_seen: Moment::from_nanos(number(&row[LAST_SEEN])?),
        client: ClientId::from_u64(number(&row[CLIENT])?),
        lease_id: LeaseId::from_bytes(row[LEASE_ID].try_into().ok()?),
    })
}

fn decode(row: &[u8]) -> Option<QueueEntry> {
    let front = decode_front(row)?;
    let (entry, rest): (QueueEntry, &[u8]) = postcard::take_from_bytes(&row[REST..]).ok()?;
    let is_same = entry.client == front.client && entry.lease_id == front.lease_id;
    let is_ours = rest.is_empty() && is_same;
    is_ours.then_some(QueueEntry { last_seen: front.last_seen, ..entry })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use holdline_core::table::{MemoryQueue, MemoryStore};
    use holdline_core::{Hold, Metadata, Mode};
    use rusqlite::Connection;

    use super::*;
    use crate::machine::BootId;

    const BOOT: BootId = BootId([3; 16]);

    fn database() -> Connection {
        let connection = Connection::open_in_memory().expect("opened");
        connection.execute_batch(keys::SCHEMA).expect("made");
        let mut counter = Counter::FRESH;
        counter.reserve(BOOT);
        Rows::of(&connection).insert(keys::COUNTER, &counter.encode()).expect("written");
        connection
    }

    fn entry(place: u64, id: u64, client: u64, last_seen: u64) -> QueueEntry {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&id.to_be_bytes());
        QueueEntry {
            place,
            // Every eighth id has the same first bytes as others.
            lease_id: match id % 8 {
                0 => LeaseId::from_bytes(bytes),
                _ => LeaseId::from_bytes(u128::from(id).rotate_right(40).to_be_bytes()),
            },
            client: ClientId::from_u64(client),
            mode: Mode::Exclusive,
            hold: Hold::Live,
            hand_off_lease: Duration::from_secs(1),
            queued_at: Moment::from_nanos(last_seen),
            last_seen: Moment::from_nanos(last_seen),
            metadata: Metadata::default(),
        }
    }

    fn is<T: PartialEq + std::fmt::Debug>(
        ours: Result<T, Fault>,
        oracle: Result<T, std::convert::Infallible>,
    ) {
        let Ok(oracle) = oracle;
        assert_eq!(ours.expect("no fault"), oracle);
    }

    /// Rows and maps get the same requests, in an order from a fixed seed, while the queue grows
    /// over several index rows and shrinks again, with a first waiter that stays.
    #[test]
    fn rows_answer_as_the_queue_in_memory_does() {
        let connection = database();
        let name = LockName::new("a").expect("a good name");
        let mut in_memory = MemoryQueue::default();
        let mut drawn = 0;
        let mut counter = LazyCounter::default();
        let rows = Rows::of(&connection);
        let mut ours =
            Queue { rows, name: &name, boot: BOOT, counter: &mut counter, last_read: None };
        let mut oracle = MemoryStore { queue: &mut in_memory, counter: &mut drawn };
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut place = 0_u64;
        let mut random = move |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for step in 1..6_000_u64 {
            let some = random(place + 1);
            let queued = oracle.queue.len() as u64;
            match random(if queued > 300 { 14 } else { 9 }) {
                0..4 => {
                    let entry = entry(place, place, random(20), step);
                    is(ours.push(entry.clone()), oracle.push(entry));
                    place += 1;
                }
                4 => is(
                    ours.find(entry(0, some, 0, 0).lease_id),
                    oracle.find(entry(0, some, 0, 0).lease_id),
                ),
                5 => is(ours.ahead_of(some), oracle.ahead_of(some)),
                6 if some > 0 && oracle.queue.entries().any(|entry| entry.place == some) => {
                    let now = Moment::from_nanos(step);
                    is(ours.touch(some, now), oracle.touch(some, now));
                }
                7 => is(ours.first(), oracle.first()),
                8 if step % 50 == 0 => {
                    let client = ClientId::from_u64(random(20));
                    is(ours.remove_client(client), oracle.remove_client(client));
                }
                _ if some > 0 => is(ours.remove(some), oracle.remove(some)),
                _ => is(ours.next_token(), oracle.next_token()),
            }
        }
        is(ours.page(50), oracle.page(50));
        let (first, end) = keys::indexes(&name);
        let index_rows = rows.count_between(&first, &end).expect("counted");
        assert!(place > 20 * COVERED, "{place}");
        assert!(index_rows <= oracle.queue.len() + 2, "{index_rows}");
        is(ours.remove_silent(Moment::NEVER), oracle.remove_silent(Moment::NEVER));
        ours.forget_places().expect("forgotten");
        assert_eq!(rows.count_between(b"a", b"b").expect("counted"), 0);
    }

    #[test]
    fn a_damaged_queue_is_foreign() {
        let connection = database();
        let name = LockName::new("a").expect("a good name");
        let rows = Rows::of(&connection);
        let mut counter = LazyCounter::default();
        let mut queue =
            Queue { rows, name: &name, boot: BOOT, counter: &mut counter, last_read: None };
        let only = entry(0, 1, 1, 1);
        queue.push(only.clone()).expect("pushed");
        for damage in [&b""[..], b"\x02", &[1; 33], &[0; 80]] {
            rows.update(&keys::entry(&name, 0), damage).expect("damaged");
            assert!(matches!(queue.first(), Err(Fault::Foreign(_))));
            assert!(matches!(queue.find(only.lease_id), Err(Fault::Foreign(_))));
            assert!(
                matches!(queue.touch(0, Moment::NEVER), Err(Fault::Foreign(_)))
                    || damage.len() >= REST
            );
        }
        rows.update(&keys::index(&name, 0), b"\x07").expect("damaged");
        assert!(matches!(queue.find(only.lease_id), Err(Fault::Foreign(_))));
    }
}
