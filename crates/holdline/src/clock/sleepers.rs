//! The sleepers of a clock, which the timers of all clocks share.

use std::collections::BTreeMap;
use std::task::Waker;

use holdline_core::Moment;

/// The sleepers of one clock, the soonest first.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    next: u64,
    wakers: BTreeMap<(Moment, u64), Waker>,
}

/// One sleep, and its key among the others after it was polled.
#[derive(Debug)]
pub(super) struct Sleep {
    pub(super) at: Moment,
    number: Option<u64>,
}

impl Sleep {
    pub(super) fn until(at: Moment) -> Sleep {
        Sleep { at, number: None }
    }

    /// Returns whether it has been among the sleepers of a clock.
    pub(super) fn is_entered(&self) -> bool {
        self.number.is_some()
    }
}

impl Sleepers {
    /// Registers the waker of a sleep. Returns whether the sleep is new and the soonest of all.
    pub(super) fn enter(&mut self, sleep: &mut Sleep, waker: &Waker) -> bool {
        let number = *sleep.number.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        let key = (sleep.at, number);
        let fresh = self.wakers.insert(key, waker.clone()).is_none();
        fresh && self.wakers.keys().next() == Some(&key)
    }

    /// Removes a sleep that is over or was dropped.
    pub(super) fn leave(&mut self, sleep: &Sleep) {
        if let Some(number) = sleep.number {
            self.wakers.remove(&(sleep.at, number));
        }
    }

    /// Removes the sleepers that are due, for the caller to wake outside the mutex.
    pub(super) fn take_due(&mut self, now: Moment) -> impl Iterator<Item = Waker> + use<> {
        let later = self.wakers.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.wakers, later).into_values()
    }

    /// Returns the soonest wake-up.
    pub(super) fn soonest(&self) -> Option<Moment> {
        self.wakers.keys().next().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_sleepers_are_taken_in_order_and_the_rest_stays() {
        let mut sleepers = Sleepers::default();
        let at = Moment::from_nanos;
        let mut sleeps = [5, 3, 3, 9].map(|nanos| Sleep::until(at(nanos)));
        let soonest = sleeps.each_mut().map(|sleep| sleepers.enter(sleep, Waker::noop()));
        assert_eq!(soonest, [true, true, false, false]);
        assert!(!sleepers.enter(&mut sleeps[1], Waker::noop()), "it is here already");
        assert_eq!(sleepers.take_due(at(2)).count(), 0);
        sleepers.leave(&sleeps[2]);
        assert_eq!(sleepers.take_due(at(5)).count(), 2);
        assert_eq!(sleepers.soonest(), Some(at(9)));
        sleepers.leave(&sleeps[3]);
        assert_eq!(sleepers.soonest(), None);
    }
}
