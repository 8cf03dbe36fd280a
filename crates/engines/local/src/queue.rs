//! The queue of one name as rows, and the source of tokens: what the rules ask of a store.
//!
//! An entry's row begins with what changes and what is asked most (when it was last heard, whose
//! it is, its lease id), so that a heartbeat or a sweep need not decode the rest.

use std::ops::ControlFlow;

use holdline_core::table::{Entry, Remaining, Store};
use holdline_core::{ClientId, FencingToken, LeaseId, LockName, Moment};

use crate::error::Fault;
use crate::keys;
use crate::rows::Rows;
use crate::token::Counter;

const FORMAT: u8 = 1;
const HEARD: std::ops::Range<usize> = 1..9;
const CLIENT: std::ops::Range<usize> = 9..17;
const LEASE_ID: std::ops::Range<usize> = 17..33;
const REST: usize = 33;

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
    fn read(&mut self, place: u64, row: Vec<u8>) -> Result<Entry, Fault> {
        let entry = decode(&row).filter(|entry| entry.place == place).ok_or_else(foreign)?;
        self.last_read = Some((place, row));
        Ok(entry)
    }

    /// Removes the entries that `goes` picks by client and by when they were last heard.
    fn remove_where(
        &mut self,
        goes: impl Fn(ClientId, Moment) -> bool,
    ) -> Result<Remaining, Fault> {
        self.last_read = None;
        let (first, end) = keys::entries(self.name);
        let mut remaining = Remaining { queued: 0, heard_since: Moment::NEVER };
        let mut gone: Vec<(Vec<u8>, LeaseId)> = Vec::new();
        self.rows.visit_between(&first, &end, |key, row| {
            let (heard, client, lease_id) = decode_front(row).ok_or_else(foreign)?;
            if goes(client, heard) {
                gone.push((key.to_vec(), lease_id));
            } else {
                remaining.queued += 1;
                remaining.heard_since = remaining.heard_since.min(heard);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for (key, lease_id) in gone {
            self.rows.delete(&key)?;
            self.rows.delete(&keys::place(self.name, lease_id))?;
        }
        Ok(remaining)
    }
}

impl Store for Queue<'_> {
    type Error = Fault;

    fn next_token(&mut self) -> Result<FencingToken, Fault> {
        self.counter.draw(self.rows, self.boot)
    }

    fn push(&mut self, entry: Entry) -> Result<(), Fault> {
        let place = entry.place.to_be_bytes();
        self.rows.insert(&keys::entry(self.name, entry.place), &encode(&entry)?)?;
        self.rows.insert(&keys::place(self.name, entry.lease_id), &place)
    }

    fn first(&mut self) -> Result<Option<Entry>, Fault> {
        let (first, end) = keys::entries(self.name);
        let Some((key, row)) = self.rows.first_from(&first)?.filter(|(key, _)| *key < end) else {
            return Ok(None);
        };
        let place = key.get(first.len()..).and_then(number).ok_or_else(foreign)?;
        self.read(place, row).map(Some)
    }

    fn find(&mut self, lease_id: LeaseId) -> Result<Option<Entry>, Fault> {
        let Some(place) = self.rows.get(&keys::place(self.name, lease_id))? else {
            return Ok(None);
        };
        let place = number(&place).ok_or_else(foreign)?;
        let row = self.rows.get(&keys::entry(self.name, place))?.ok_or_else(foreign)?;
        let entry = self.read(place, row)?;
        if entry.lease_id == lease_id { Ok(Some(entry)) } else { Err(foreign()) }
    }

    fn ahead_of(&mut self, place: u64) -> Result<usize, Fault> {
        let (first, _) = keys::entries(self.name);
        self.rows.count_between(&first, &keys::entry(self.name, place))
    }

    fn remove(&mut self, place: u64) -> Result<(), Fault> {
        let row = self.row(place)?.ok_or_else(foreign)?;
        let (_, _, lease_id) = decode_front(&row).ok_or_else(foreign)?;
        self.rows.delete(&keys::entry(self.name, place))?;
        self.rows.delete(&keys::place(self.name, lease_id))
    }

    fn hear(&mut self, place: u64, now: Moment) -> Result<(), Fault> {
        let mut row = self.row(place)?.ok_or_else(foreign)?;
        decode_front(&row).ok_or_else(foreign)?;
        row[HEARD].copy_from_slice(&now.as_nanos().to_be_bytes());
        self.rows.update(&keys::entry(self.name, place), &row)
    }

    fn remove_silent(&mut self, heard: Moment) -> Result<Remaining, Fault> {
        self.remove_where(|_, last| last <= heard)
    }

    fn remove_client(&mut self, client: ClientId, heard: Moment) -> Result<Remaining, Fault> {
        self.remove_where(|whose, last| whose == client && last <= heard)
    }

    fn page(&mut self, limit: usize) -> Result<Vec<Entry>, Fault> {
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

fn encode(entry: &Entry) -> Result<Vec<u8>, Fault> {
    let mut row = Vec::with_capacity(256);
    row.push(FORMAT);
    row.extend_from_slice(&entry.heard.as_nanos().to_be_bytes());
    row.extend_from_slice(&entry.client.as_u64().to_be_bytes());
    row.extend_from_slice(entry.lease_id.as_bytes());
    postcard::to_extend(entry, row)
        .map_err(|error| Fault::protocol(format!("an entry cannot be written down: {error}")))
}

/// Reads what stands at the front of a row: when it was last heard, whose it is, its lease id.
fn decode_front(row: &[u8]) -> Option<(Moment, ClientId, LeaseId)> {
    if row.first() != Some(&FORMAT) || row.len() < REST {
        return None;
    }
    let heard = Moment::from_nanos(number(&row[HEARD])?);
    let client = ClientId::from_u64(number(&row[CLIENT])?);
    Some((heard, client, LeaseId::from_bytes(row[LEASE_ID].try_into().ok()?)))
}

fn decode(row: &[u8]) -> Option<Entry> {
    let (heard, client, lease_id) = decode_front(row)?;
    let (entry, rest): (Entry, &[u8]) = postcard::take_from_bytes(&row[REST..]).ok()?;
    let ours = rest.is_empty() && entry.client == client && entry.lease_id == lease_id;
    ours.then_some(Entry { heard, ..entry })
}
