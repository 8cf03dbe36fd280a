//! The entries and the schedule of a client's background work: attempts in progress, queue entries,
//! leases, and ids that are being released.
//!
//! One short mutex protects it: under it, nothing waits or calls an engine or a user's code.
//! Invariant S1: a slot has at most one time in the schedule, and it is not later than its entry is
//! due. The time stays when the entry is removed, because the next entry in the slot is usually due
//! later. So a lock that is acquired and released repeatedly does not change the schedule, and the
//! worker removes the time when it is reached.
//! Invariant S2: scheduling something before the worker's next wake-up wakes the worker.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdline_core::{Ending, LeaseId, LockError, LockName, Mode, Moment, ReleaseReply};
use tokio::sync::mpsc::UnboundedSender;

use super::queue_cell::QueueCell;
use crate::grant::Grant;
use crate::observer::class::Class;
use crate::plan::leftovers::Leftover;

/// Identifies an entry as long as it exists, and never another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    /// Identifies no entry.
    pub(crate) const NONE: Key = Key { slot: u32::MAX, generation: u32::MAX };
}

/// One entry of the registry.
pub(crate) struct Entry {
    pub(crate) stage: Stage,
    /// The worker has a request for this entry in flight.
    pub(crate) in_flight: bool,
    due: Moment,
}

/// The stage of an entry.
pub(crate) enum Stage {
    /// The caller may have sent a request; the answer has not arrived.
    Requested,
    /// It is queued and needs heartbeats.
    Queued(QueuedAttempt),
    /// It is held.
    Held(KeptLease),
    /// It is being released by the janitor.
    Releasing(Box<PendingRelease>),
}

/// A queue entry.
pub(crate) struct QueuedAttempt {
    pub(crate) name: LockName,
    pub(crate) lease_id: LeaseId,
    pub(crate) cell: Arc<QueueCell>,
}

/// The keeper's state of a lease.
pub(crate) struct KeptLease {
    pub(crate) grant: Arc<Grant>,
    pub(crate) renew_at: Moment,
    pub(crate) risk_at: Moment,
    pub(crate) watch_at: Moment,
    /// The end that `risk_at` was planned for; `None` before the first check.
    pub(crate) planned_for: Option<Moment>,
    /// A hint arrived while a request was in flight, so another request must follow.
    pub(crate) hinted: bool,
    pub(crate) failures: u32,
}

/// A lease id that is being released.
pub(crate) struct PendingRelease {
    pub(crate) name: LockName,
    pub(crate) engine: &'static str,
    pub(crate) class: Arc<Class>,
    pub(crate) lease_id: LeaseId,
    pub(crate) mode: Mode,
    pub(crate) ending: Ending,
    /// It was a grant, and nothing has released it before.
    pub(crate) was_held: bool,
    /// The lease is over by then, even without a confirmation.
    pub(crate) until: Moment,
    pub(crate) tries: u32,
    /// Receives the answers while a release waits for them.
    pub(crate) reports: Option<UnboundedSender<Result<ReleaseReply, LockError>>>,
    /// Counted by an acquisition of several names until this is over.
    pub(crate) _leftover: Option<Leftover>,
}

/// The slots and their schedule.
#[derive(Default)]
pub(crate) struct Registry {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The schedule: a moment, and the slot that is due then.
    schedule: BTreeSet<(Moment, u32)>,
    /// When the worker wakes up by itself. It starts at the origin: a worker that has not run yet
    /// needs no wake-up.
    pub(crate) worker_wakes: Moment,
    /// The time of the next heartbeat.
    pub(crate) next_heartbeat: Moment,
    /// No user of the client is left: the worker ends when nothing is left to release.
    pub(crate) abandoned: bool,
    pub(crate) releasing: usize,
}

struct Slot {
    generation: u32,
    entry: Option<Entry>,
    /// Its time in the schedule; never if it has none.
    scheduled_at: Moment,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { generation: 0, entry: None, scheduled_at: Moment::NEVER }
    }
}

impl Registry {
    /// Adds an entry. Returns its key and whether the worker must be woken.
    pub(crate) fn insert(&mut self, stage: Stage, due: Moment) -> (Key, bool) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // A client runs out of memory long before it has four thousand million entries.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let slot_entry = &mut self.slots[slot as usize];
        let key = Key { slot, generation: slot_entry.generation };
        self.releasing += usize::from(matches!(stage, Stage::Releasing(_)));
        slot_entry.entry = Some(Entry { stage, in_flight: false, due: Moment::NEVER });
        (key, self.schedule(key, due))
    }

    /// Removes and returns an entry.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Entry> {
        let slot = self.free_slot(key)?;
        slot.entry.take()
    }

    /// Removes an entry without returning it. The caller has a reference to its grant, so nothing
    /// expensive is dropped under the mutex.
    pub(crate) fn discard(&mut self, key: Key) {
        if let Some(slot) = self.free_slot(key) {
            slot.entry = None;
        }
    }

    /// Frees the slot of an entry.
    fn free_slot(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let stage = &slot.entry.as_ref()?.stage;
        self.releasing -= usize::from(matches!(stage, Stage::Releasing(_)));
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(slot)
    }

    /// Changes the stage of an entry. Returns whether the worker must be woken.
    pub(crate) fn set_stage(&mut self, key: Key, stage: Stage, due: Moment) -> bool {
        let releasing = usize::from(matches!(stage, Stage::Releasing(_)));
        let Some(entry) = self.get(key) else { return false };
        let before = usize::from(matches!(entry.stage, Stage::Releasing(_)));
        entry.stage = stage;
        entry.in_flight = false;
        self.releasing = self.releasing + releasing - before;
        self.schedule(key, due)
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Entry> {
        let slot_entry = self.slots.get_mut(key.slot as usize)?;
        if slot_entry.generation == key.generation { slot_entry.entry.as_mut() } else { None }
    }

    /// Sets when an entry is due. Returns whether the worker must be woken.
    pub(crate) fn schedule(&mut self, key: Key, due: Moment) -> bool {
        let Some(entry) = self.get(key) else { return false };
        entry.due = due;
        self.schedule_slot(key.slot, due);
        let wake = due < self.worker_wakes;
        if wake {
            self.worker_wakes = due;
        }
        wake
    }

    /// Makes an entry due at `due`, unless it is due earlier. Returns whether the worker must be
    /// woken.
    pub(crate) fn bring_forward(&mut self, key: Key, due: Moment) -> bool {
        let is_later = self.get(key).is_some_and(|entry| entry.due > due);
        is_later && self.schedule(key, due)
    }

    /// Ensures that the schedule has a time for a slot that is not later than `due`.
    fn schedule_slot(&mut self, number: u32, due: Moment) {
        let slot = &mut self.slots[number as usize];
        if due >= slot.scheduled_at {
            return;
        }
        let before = std::mem::replace(&mut slot.scheduled_at, due);
        if before != Moment::NEVER {
            self.schedule.remove(&(before, number));
        }
        self.schedule.insert((due, number));
    }

    /// Removes the first time of the schedule if it is reached, and returns the key of its entry.
    /// The inner `None` says that the entry is gone, or due later.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<Option<Key>> {
        let (at, number) = *self.schedule.first()?;
        if at > now {
            return None;
        }
        self.schedule.pop_first();
        let slot = &mut self.slots[number as usize];
        slot.scheduled_at = Moment::NEVER;
        let key = Key { slot: number, generation: slot.generation };
        let Some(entry) = &mut slot.entry else { return Some(None) };
        let due = entry.due;
        if due > now {
            self.schedule_slot(number, due);
            return Some(None);
        }
        entry.due = Moment::NEVER;
        Some(Some(key))
    }

    /// Returns the first time of the schedule: nothing is due earlier.
    pub(crate) fn next_due(&self) -> Moment {
        self.schedule.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// Counts the attempts: requested or queued.
    pub(crate) fn count_under_way(&self) -> usize {
        self.count(|stage| matches!(stage, Stage::Requested | Stage::Queued(_)))
    }

    pub(crate) fn count_held(&self) -> usize {
        self.count(|stage| matches!(stage, Stage::Held(_)))
    }

    fn count(&self, is_meant: fn(&Stage) -> bool) -> usize {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        entries.filter(|entry| is_meant(&entry.stage)).count()
    }

    /// Prepares for a new worker: the requests in flight of the last one are due again.
    pub(crate) fn restart(&mut self, now: Moment) {
        self.worker_wakes = Moment::ORIGIN;
        for slot in 0..self.slots.len() {
            let slot_entry = &mut self.slots[slot];
            let (Some(entry), Ok(number)) = (&mut slot_entry.entry, u32::try_from(slot)) else {
                continue;
            };
            let key = Key { slot: number, generation: slot_entry.generation };
            entry.in_flight = false;
            match &mut entry.stage {
                Stage::Requested => continue,
                Stage::Held(keeping) if keeping.grant.is_over() => continue,
                // The watches of the last worker are closed.
                Stage::Held(keeping) if keeping.watch_at == Moment::NEVER => {
                    keeping.watch_at = now;
                }
                Stage::Held(_) | Stage::Queued(_) | Stage::Releasing(_) => {}
            }
            self.schedule(key, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Moment {
        Moment::from_nanos(n)
    }

    #[test]
    fn a_key_never_identifies_another_entry() {
        let mut registry = Registry::default();
        let (first, _) = registry.insert(Stage::Requested, at(5));
        assert!(registry.remove(first).is_some());
        let (second, _) = registry.insert(Stage::Requested, Moment::NEVER);
        assert_eq!(first.slot, second.slot);
        assert!(registry.get(first).is_none() && registry.remove(first).is_none());
        assert!(
            !registry.schedule(first, at(1)) && !registry.set_stage(first, Stage::Requested, at(1))
        );
        assert_eq!(registry.next_due(), at(5), "only the time of the first entry is left");
    }

    #[test]
    fn a_leftover_time_neither_advances_nor_delays_an_entry() {
        let mut registry = Registry::default();
        let (first, _) = registry.insert(Stage::Requested, at(5));
        registry.remove(first);
        let (second, _) = registry.insert(Stage::Requested, at(9));
        assert_eq!(registry.schedule.len(), 1);
        assert_eq!(registry.pop_due(at(8)), Some(None), "the first is gone, the second not due");
        assert_eq!((registry.pop_due(at(8)), registry.next_due()), (None, at(9)));
        assert_eq!(registry.pop_due(at(9)), Some(Some(second)));
        assert_eq!((registry.pop_due(at(99)), registry.next_due()), (None, Moment::NEVER));
        registry.schedule(second, at(20));
        registry.schedule(second, at(30));
        registry.schedule(second, at(10));
        assert_eq!((registry.schedule.len(), registry.next_due()), (1, at(10)));
        registry.remove(second);
        assert_eq!(registry.pop_due(at(10)), Some(None));
        assert!(registry.schedule.is_empty());
    }

    #[test]
    fn only_earlier_entries_wake_the_worker() {
        let mut registry = Registry { worker_wakes: Moment::NEVER, ..Registry::default() };
        let (key, wake) = registry.insert(Stage::Requested, at(9));
        assert!(wake);
        assert!(!registry.insert(Stage::Requested, at(9)).1);
        assert!(!registry.insert(Stage::Requested, at(12)).1);
        assert!(registry.schedule(key, at(3)));
        assert_eq!(registry.pop_due(at(2)), None);
        assert_eq!(registry.pop_due(at(3)), Some(Some(key)));
        assert_eq!(registry.next_due(), at(9));
        assert_eq!(
            (registry.count_under_way(), registry.count_held(), registry.releasing),
            (3, 0, 0)
        );
    }
}
