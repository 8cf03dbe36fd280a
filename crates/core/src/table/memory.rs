//! The table's state in memory: for the memory engine, the oracle and the model.

use std::collections::BTreeMap;
use std::convert::Infallible;

use super::state::{Head, QueueEntry};
use super::store::{Remaining, Store};
use crate::lease_id::{ClientId, LeaseId};
use crate::moment::Moment;
use crate::token::FencingToken;

/// The whole state of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockState {
    /// The small part.
    pub head: Head,
    /// The queue.
    pub queue: MemoryQueue,
}

/// A queue in memory, by place and by lease id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryQueue {
    pub(super) entries: BTreeMap<u64, QueueEntry>,
    places: BTreeMap<LeaseId, u64>,
}

impl MemoryQueue {
    /// Returns the entries in order.
    pub fn entries(&self) -> impl Iterator<Item = &QueueEntry> {
        self.entries.values()
    }

    /// Returns how many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn remaining(&self) -> Remaining {
        let oldest_seen = self.entries.values().map(|entry| entry.last_seen).min();
        Remaining { queued: self.entries.len(), oldest_seen: oldest_seen.unwrap_or(Moment::NEVER) }
    }

    fn retain(&mut self, keep: impl Fn(&QueueEntry) -> bool) -> Remaining {
        self.entries.retain(|_, entry| keep(entry));
        let entries = &self.entries;
        self.places.retain(|_, place| entries.contains_key(place));
        self.remaining()
    }
}

/// A queue in memory, and the token counter that all names share.
#[derive(Debug)]
pub struct MemoryStore<'a> {
    /// The queue of the name.
    pub queue: &'a mut MemoryQueue,
    /// The largest token that has been issued, 0 at first.
    pub counter: &'a mut u64,
}

impl Store for MemoryStore<'_> {
    type Error = Infallible;

    /// # Panics
    /// After 2^53 − 1 grants, which takes 28 years at ten million a second.
    fn next_token(&mut self) -> Result<FencingToken, Infallible> {
        *self.counter += 1;
        match FencingToken::new(*self.counter) {
            Ok(token) => Ok(token),
            Err(_) => panic!("the token counter of this process is exhausted"),
        }
    }

    fn push(&mut self, entry: QueueEntry) -> Result<(), Infallible> {
        self.queue.places.insert(entry.lease_id, entry.place);
        self.queue.entries.insert(entry.place, entry);
        Ok(())
    }

    fn first(&mut self) -> Result<Option<QueueEntry>, Infallible> {
        Ok(self.queue.entries.values().next().cloned())
    }

    fn find(&mut self, lease_id: LeaseId) -> Result<Option<QueueEntry>, Infallible> {
        let place = self.queue.places.get(&lease_id);
        Ok(place.and_then(|place| self.queue.entries.get(place)).cloned())
    }

    fn ahead_of(&mut self, place: u64) -> Result<usize, Infallible> {
        Ok(self.queue.entries.range(..place).count())
    }

    fn remove(&mut self, place: u64) -> Result<(), Infallible> {
        if let Some(entry) = self.queue.entries.remove(&place) {
            self.queue.places.remove(&entry.lease_id);
        }
        Ok(())
    }

    fn touch(&mut self, place: u64, now: Moment) -> Result<(), Infallible> {
        if let Some(entry) = self.queue.entries.get_mut(&place) {
            entry.last_seen = now;
        }
        Ok(())
    }

    fn remove_silent(&mut self, last_seen: Moment) -> Result<Remaining, Infallible> {
        Ok(self.queue.retain(|entry| entry.last_seen > last_seen))
    }

    fn remove_client(&mut self, client: ClientId) -> Result<Remaining, Infallible> {
        Ok(self.queue.retain(|entry| entry.client != client))
    }

    fn page(&mut self, limit: usize) -> Result<Vec<QueueEntry>, Infallible> {
        Ok(self.queue.entries.values().take(limit).cloned().collect())
    }
}
