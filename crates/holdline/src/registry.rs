//! Everything a client must look after: attempts under way, places in a queue, leases, and ids
//! that are being given up. The slab of the janitor and the schedule of the keeper are one.
//!
//! It stands behind one short mutex: nobody waits, calls an engine or a user's code under it.
//! Invariant S1: a slot has at most one line in the schedule, and one that is not later than its
//! entry is due. A line outlives its entry: the next one in the slot is mostly due later, so a lock
//! that is taken and released again and again leaves the schedule alone, and the worker strikes the
//! line out when it comes to it.
//! Invariant S2: whoever schedules something earlier than the worker sleeps rings its bell.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdline_core::{Hold, LeaseId, LockError, LockName, Mode, Moment, ReleaseReply};
use tokio::sync::mpsc::UnboundedSender;

use crate::class::Class;
use crate::grant::Grant;
use crate::leftovers::Leftover;
use crate::queue::WaitCell;

/// Names an entry for as long as it exists, and never another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    /// Names nothing.
    pub(crate) const NONE: Key = Key { slot: u32::MAX, generation: u32::MAX };
}

/// One thing to look after.
pub(crate) struct Entry {
    pub(crate) stage: Stage,
    /// A request about this entry is under way from the worker.
    pub(crate) in_flight: bool,
    due: Moment,
}

/// What an entry is about.
pub(crate) enum Stage {
    /// A request of the caller may have left, and its answer is to come.
    Asking,
    /// It stands in a queue and must be heard.
    Waiting(Waiting),
    /// It is held.
    Held(Keeping),
    /// It is being given up.
    Undoing(Box<Undo>),
}

/// A place in a queue.
pub(crate) struct Waiting {
    pub(crate) name: LockName,
    pub(crate) lease_id: LeaseId,
    pub(crate) cell: Arc<WaitCell>,
}

/// What the keeper knows of a lease.
pub(crate) struct Keeping {
    pub(crate) grant: Arc<Grant>,
    pub(crate) renew_at: Moment,
    pub(crate) risk_at: Moment,
    pub(crate) watch_at: Moment,
    /// The end that `risk_at` was planned for; `None` before the first look.
    pub(crate) planned_for: Option<Moment>,
    /// A hint came while a request was under way: the answer to that is not enough.
    pub(crate) hinted: bool,
    pub(crate) failures: u32,
}

/// A lease id that is being given up.
pub(crate) struct Undo {
    pub(crate) name: LockName,
    pub(crate) engine: &'static str,
    pub(crate) class: Arc<Class>,
    pub(crate) lease_id: LeaseId,
    pub(crate) mode: Mode,
    pub(crate) hold: Hold,
    pub(crate) for_good: bool,
    /// The lease is over by then, told or not.
    pub(crate) until: Moment,
    pub(crate) tries: u32,
    /// Where the answers go while a release waits for them.
    pub(crate) reports: Option<UnboundedSender<Result<ReleaseReply, LockError>>>,
    /// Counted by an acquisition of several names until this is over.
    pub(crate) _leftover: Option<Leftover>,
}

/// The slab and its schedule.
#[derive(Default)]
pub(crate) struct Registry {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The schedule: a moment, and the slot to look at then.
    lines: BTreeSet<(Moment, u32)>,
    /// When the worker looks again by itself. It starts at the origin: a worker that has not
    /// looked yet needs no bell.
    pub(crate) worker_wakes: Moment,
    /// When everything that waits is heard next.
    pub(crate) next_beat: Moment,
    /// No user of the client is left: the worker ends once nothing is to be given up.
    pub(crate) abandoned: bool,
    pub(crate) undoing: usize,
}

struct Slot {
    generation: u32,
    entry: Option<Entry>,
    /// Where its line stands in the schedule; never when it has none.
    line: Moment,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { generation: 0, entry: None, line: Moment::NEVER }
    }
}

impl Registry {
    /// Adds an entry. Returns its key and whether the bell must ring.
    pub(crate) fn insert(&mut self, stage: Stage, due: Moment) -> (Key, bool) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            // A client with four thousand million entries has run out of memory before.
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.slots[slot as usize];
        let key = Key { slot, generation: place.generation };
        self.undoing += usize::from(matches!(stage, Stage::Undoing(_)));
        place.entry = Some(Entry { stage, in_flight: false, due: Moment::NEVER });
        (key, self.schedule(key, due))
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Entry> {
        let slot = self.vacate(key)?;
        slot.entry.take()
    }

    /// Drops an entry of whose grant the caller has a part, so that nothing of weight is dropped
    /// under the mutex, and nothing is moved: that would show in every cycle.
    pub(crate) fn discard(&mut self, key: Key) {
        if let Some(slot) = self.vacate(key) {
            slot.entry = None;
        }
    }

    /// Makes a slot free whose entry goes.
    fn vacate(&mut self, key: Key) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let stage = &slot.entry.as_ref()?.stage;
        self.undoing -= usize::from(matches!(stage, Stage::Undoing(_)));
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.slot);
        Some(slot)
    }

    /// Turns an entry into another stage of the same thing. Returns whether the bell must ring.
    pub(crate) fn turn(&mut self, key: Key, stage: Stage, due: Moment) -> bool {
        let undoing = usize::from(matches!(stage, Stage::Undoing(_)));
        let Some(entry) = self.get(key) else { return false };
        let before = usize::from(matches!(entry.stage, Stage::Undoing(_)));
        entry.stage = stage;
        entry.in_flight = false;
        self.undoing = self.undoing + undoing - before;
        self.schedule(key, due)
    }

    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Entry> {
        let place = self.slots.get_mut(key.slot as usize)?;
        if place.generation == key.generation { place.entry.as_mut() } else { None }
    }

    /// Sets when the worker looks at an entry next. Returns whether the bell must ring.
    pub(crate) fn schedule(&mut self, key: Key, due: Moment) -> bool {
        let Some(entry) = self.get(key) else { return false };
        entry.due = due;
        self.draw_line(key.slot, due);
        let ring = due < self.worker_wakes;
        if ring {
            self.worker_wakes = due;
        }
        ring
    }

    /// Makes the worker look at an entry at `due`, if it would look later. Returns whether the bell
    /// must ring.
    pub(crate) fn bring_forward(&mut self, key: Key, due: Moment) -> bool {
        let is_later = self.get(key).is_some_and(|entry| entry.due > due);
        is_later && self.schedule(key, due)
    }

    /// Makes sure that a slot is looked at when it is due.
    fn draw_line(&mut self, number: u32, due: Moment) {
        let slot = &mut self.slots[number as usize];
        if due >= slot.line {
            return;
        }
        let before = std::mem::replace(&mut slot.line, due);
        if before != Moment::NEVER {
            self.lines.remove(&(before, number));
        }
        self.lines.insert((due, number));
    }

    /// Strikes the first line out, if its time has come, and returns whose it is. The inner `None`
    /// says that the entry is gone, or due later.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<Option<Key>> {
        let (at, number) = *self.lines.first()?;
        if at > now {
            return None;
        }
        self.lines.pop_first();
        let slot = &mut self.slots[number as usize];
        slot.line = Moment::NEVER;
        let key = Key { slot: number, generation: slot.generation };
        let Some(entry) = &mut slot.entry else { return Some(None) };
        let due = entry.due;
        if due > now {
            self.draw_line(number, due);
            return Some(None);
        }
        entry.due = Moment::NEVER;
        Some(Some(key))
    }

    /// Returns when to come to the first line: nothing is due earlier.
    pub(crate) fn next_due(&self) -> Moment {
        self.lines.first().map_or(Moment::NEVER, |(at, _)| *at)
    }

    /// Counts the entries by stage: asking or waiting, held, being given up.
    pub(crate) fn count(&self) -> (usize, usize, usize) {
        let entries = || self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        let under_way = |entry: &&Entry| matches!(entry.stage, Stage::Asking | Stage::Waiting(_));
        let held = |entry: &&Entry| matches!(entry.stage, Stage::Held(_));
        (entries().filter(under_way).count(), entries().filter(held).count(), self.undoing)
    }

    /// A new worker begins: what the last one had under way is due again.
    pub(crate) fn start_over(&mut self, now: Moment) {
        self.worker_wakes = Moment::ORIGIN;
        for slot in 0..self.slots.len() {
            let place = &mut self.slots[slot];
            let (Some(entry), Ok(number)) = (&mut place.entry, u32::try_from(slot)) else {
                continue;
            };
            let key = Key { slot: number, generation: place.generation };
            entry.in_flight = false;
            match &mut entry.stage {
                Stage::Asking => continue,
                Stage::Held(keeping) if keeping.grant.is_over() => continue,
                // A watch that was open is gone with the last worker.
                Stage::Held(keeping) if keeping.watch_at == Moment::NEVER => {
                    keeping.watch_at = now;
                }
                Stage::Held(_) | Stage::Waiting(_) | Stage::Undoing(_) => {}
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
    fn a_key_never_names_another_entry() {
        let mut registry = Registry::default();
        let (first, _) = registry.insert(Stage::Asking, at(5));
        assert!(registry.remove(first).is_some());
        let (second, _) = registry.insert(Stage::Asking, Moment::NEVER);
        assert_eq!(first.slot, second.slot);
        assert!(registry.get(first).is_none() && registry.remove(first).is_none());
        assert!(!registry.schedule(first, at(1)) && !registry.turn(first, Stage::Asking, at(1)));
        assert_eq!(registry.next_due(), at(5), "the line of the first is left, and no other");
    }

    #[test]
    fn a_line_that_is_left_brings_nothing_forward_and_holds_nothing_back() {
        let mut registry = Registry::default();
        let (first, _) = registry.insert(Stage::Asking, at(5));
        registry.remove(first);
        let (second, _) = registry.insert(Stage::Asking, at(9));
        assert_eq!(registry.lines.len(), 1);
        assert_eq!(registry.pop_due(at(8)), Some(None), "the first is gone, the second not due");
        assert_eq!((registry.pop_due(at(8)), registry.next_due()), (None, at(9)));
        assert_eq!(registry.pop_due(at(9)), Some(Some(second)));
        assert_eq!((registry.pop_due(at(99)), registry.next_due()), (None, Moment::NEVER));
        registry.schedule(second, at(20));
        registry.schedule(second, at(30));
        registry.schedule(second, at(10));
        assert_eq!((registry.lines.len(), registry.next_due()), (1, at(10)));
        registry.remove(second);
        assert_eq!(registry.pop_due(at(10)), Some(None));
        assert!(registry.lines.is_empty());
    }

    #[test]
    fn the_bell_rings_only_for_what_is_earlier() {
        let mut registry = Registry { worker_wakes: Moment::NEVER, ..Registry::default() };
        let (key, ring) = registry.insert(Stage::Asking, at(9));
        assert!(ring);
        assert!(!registry.insert(Stage::Asking, at(9)).1);
        assert!(!registry.insert(Stage::Asking, at(12)).1);
        assert!(registry.schedule(key, at(3)));
        assert_eq!(registry.pop_due(at(2)), None);
        assert_eq!(registry.pop_due(at(3)), Some(Some(key)));
        assert_eq!(registry.next_due(), at(9));
        assert_eq!(registry.count(), (3, 0, 0));
    }
}
