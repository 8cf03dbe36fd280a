//! A queue in the order that the store decides: which contenders hold the name and which wait.
//!
//! For engines whose store numbers the contenders of a name in the order in which they arrive, such
//! as etcd (create revisions) and ZooKeeper (sequence numbers). The engine reads the contenders and
//! sorts them by number; the rules are here.
//!
//! - Q1: the first contenders hold the name, as many as fit together. The first that does not fit
//!   waits, and so does every contender after it.
//! - Q2: new contenders join at the end. So a holder stays a holder until it leaves, and only a
//!   contender that leaves lets another in. An outdated view never lets a contender in too early.
//! - Q3: a contender waits exactly as long as the contenders before it weigh too much together
//!   ([`weight_before`], [`most_weight_before`]). While those that it knows of weigh too much, it
//!   waits, in whatever order others leave. So it watches its [`blockers`], the nearest
//!   that weigh too much, and looks again when enough of them have left. Their number does not
//!   depend on the number of waiters.

use crate::capabilities::Capabilities;
use crate::error::LockError;
use crate::lease_id::LeaseId;
use crate::mode::Mode;
use crate::operation::Operation;

/// A contender in a queue.
pub trait Contender {
    /// Returns the mode that it asked for.
    fn mode(&self) -> Mode;

    /// Returns whether it has this lease id. A contender of another library has none.
    fn is(&self, id: LeaseId) -> bool;
}

/// The contenders of a name, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencedQueue<C> {
    contenders: Vec<C>,
    holding: usize,
}

impl<C: Contender> SequencedQueue<C> {
    /// Makes a queue of contenders that are sorted by their numbers.
    pub fn new(contenders: Vec<C>) -> SequencedQueue<C> {
        let holding = holding(contenders.iter().map(C::mode));
        SequencedQueue { contenders, holding }
    }

    /// Returns all contenders.
    pub fn contenders(&self) -> &[C] {
        &self.contenders
    }

    /// Returns the contenders that hold the name.
    pub fn holders(&self) -> &[C] {
        &self.contenders[..self.holding]
    }

    /// Returns the contenders that wait.
    pub fn waiting(&self) -> &[C] {
        &self.contenders[self.holding..]
    }

    /// Finds a lease id: its contender, and how many waiters are before it. `None` in the second
    /// place: it holds the name.
    pub fn find(&self, id: LeaseId) -> Option<(&C, Option<usize>)> {
        let at = self.contenders.iter().position(|one| one.is(id))?;
        Some((&self.contenders[at], at.checked_sub(self.holding)))
    }

    /// Returns the contenders that block a lease id, nearest first, as [`blockers`]. If it holds
    /// the name there are none.
    pub fn blockers(&self, id: LeaseId) -> Vec<&C> {
        let Some(at) = self.contenders.iter().position(|one| one.is(id)) else { return Vec::new() };
        blockers(self.contenders[at].mode(), self.contenders[..at].iter().rev())
    }

    /// Returns whether a lease id that waits holds the name as soon as any of its blockers leaves.
    /// By Q3 that stays true when others leave or join.
    pub fn is_next(&self, id: LeaseId) -> bool {
        let Some(at) = self.contenders.iter().position(|one| one.is(id)) else { return false };
        let mode = self.contenders[at].mode();
        let weigh = |one: &C| weight_before(mode, one.mode());
        let before = self.contenders[..at].iter().map(weigh).fold(0, u32::saturating_add);
        let lightest = self.blockers(id).into_iter().map(weigh).min();
        lightest.is_some_and(|lightest| before - lightest <= most_weight_before(mode))
    }

    /// Returns the semaphore's total; `None` if the name is not used as a semaphore.
    pub fn permits_of(&self) -> Option<u32> {
        self.contenders.first()?.mode().permits_of()
    }

    /// Returns whether one more contender of this mode would hold the name at once.
    pub fn admits(&self, mode: Mode) -> bool {
        let modes = self.contenders.iter().map(C::mode).chain([mode]);
        holding(modes) > self.contenders.len()
    }

    /// Checks that a contender of this mode may share the queue with those in it.
    ///
    /// # Errors
    /// `Invalid`, as [`Mode::check_beside`].
    pub fn check_mode(&self, engine: &'static str, mode: Mode) -> Result<(), LockError> {
        if self.contenders.is_empty() {
            Ok(())
        } else {
            mode.check_beside(self.permits_of(), engine)
        }
    }
}

/// Returns how much a contender of the mode `other` weighs for one of the mode `own` that is behind
/// it: a shared one does not block a shared one; permits weigh as many as they are; a contender
/// that excludes it weighs more than it allows.
pub fn weight_before(own: Mode, other: Mode) -> u32 {
    match (own, other) {
        (Mode::Shared, Mode::Shared) => 0,
        (Mode::Exclusive | Mode::Shared, _) => 1,
        (Mode::Permits { of, .. }, Mode::Permits { count, of: total }) if total == of => count,
        (Mode::Permits { of, .. }, _) => of,
    }
}

/// Returns how much the contenders before one of this mode may weigh together while it holds the
/// name (Q3).
pub fn most_weight_before(own: Mode) -> u32 {
    match own {
        Mode::Exclusive | Mode::Shared => 0,
        Mode::Permits { count, of } => of.saturating_sub(count),
    }
}

/// Returns the contenders that block a contender of this mode: as long as all of them are there, it
/// waits (Q3). None: it holds the name.
///
/// `nearest_first` has the contenders before it, beginning with the one directly before. It may end
/// early, after [`most_blockers`].
pub fn blockers<'c, C: Contender + 'c>(
    mode: Mode,
    nearest_first: impl IntoIterator<Item = &'c C>,
) -> Vec<&'c C> {
    let mut weight = 0_u32;
    let mut blockers = Vec::new();
    for one in nearest_first {
        let more = weight_before(mode, one.mode());
        if more > 0 {
            weight = weight.saturating_add(more);
            blockers.push(one);
        }
        if weight > most_weight_before(mode) {
            return blockers;
        }
    }
    Vec::new()
}

/// Returns how many of the nearest contenders [`blockers`] looks at, at most. For a shared mode,
/// those that are shared do not count.
pub fn most_blockers(mode: Mode) -> usize {
    usize::try_from(most_weight_before(mode)).map_or(usize::MAX, |most| most.saturating_add(1))
}

/// Makes the error for an operation that such an engine lacks: every one but to revoke a grant by
/// its token. `raise_fence` says why it cannot raise the fence.
pub fn unsupported(
    operation: &Operation,
    capabilities: &Capabilities,
    raise_fence: &'static str,
) -> LockError {
    match operation {
        Operation::Freeze { .. } | Operation::Unfreeze { .. } => {
            capabilities.lacks("freeze: a new contender is always last in its queue")
        }
        Operation::RaiseFence { .. } => capabilities.lacks(raise_fence),
        other => other.unsupported(capabilities),
    }
}

/// Counts how many of the first modes hold the name together: one exclusive, or several shared, or
/// as many of one semaphore as it has permits for.
fn holding(mut modes: impl Iterator<Item = Mode>) -> usize {
    let Some(first) = modes.next() else { return 0 };
    let mut used = match first {
        Mode::Permits { count, .. } => count,
        Mode::Exclusive | Mode::Shared => 0,
    };
    let fits = |mode: &Mode| match (first, *mode) {
        (Mode::Shared, Mode::Shared) => true,
        (Mode::Permits { of: total, .. }, Mode::Permits { count, of }) if of == total => {
            used = used.saturating_add(count);
            used <= of
        }
        _ => false,
    };
    1 + modes.take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use Mode::{Exclusive, Shared};

    use super::*;

    /// Its place, from 1, and its mode.
    struct Numbered(u8, Mode);

    impl Contender for Numbered {
        fn mode(&self) -> Mode {
            self.1
        }

        fn is(&self, id: LeaseId) -> bool {
            id == LeaseId::from_bytes([self.0; 16])
        }
    }

    fn queue(modes: &[Mode]) -> SequencedQueue<Numbered> {
        SequencedQueue::new((1..).zip(modes).map(|(place, mode)| Numbered(place, *mode)).collect())
    }

    fn permits(count: u32) -> Mode {
        Mode::Permits { count, of: 4 }
    }

    #[test]
    fn the_first_contenders_that_fit_together_hold() {
        for (modes, holding) in [
            (vec![], 0),
            (vec![Exclusive, Exclusive], 1),
            (vec![Exclusive, Shared], 1),
            (vec![Shared, Shared, Exclusive], 2),
            (vec![Shared, Exclusive, Shared], 1),
            (vec![permits(1), permits(2), permits(1)], 3),
            (vec![permits(1), permits(2), permits(1), permits(1)], 3),
            (vec![permits(2), permits(3), permits(1)], 1),
            (vec![permits(4)], 1),
            (vec![permits(1), Exclusive], 1),
            (vec![Exclusive, permits(1)], 1),
            (vec![permits(1), Mode::Permits { count: 1, of: 9 }], 1),
        ] {
            let queue = queue(&modes);
            assert_eq!(queue.holders().len(), holding, "{modes:?}");
            assert_eq!(queue.waiting().len(), modes.len() - holding, "{modes:?}");
            for (place, mode) in (1..).zip(&modes) {
                let (found, waits) = queue.find(LeaseId::from_bytes([place; 16])).expect("there");
                assert_eq!(found.1, *mode);
                assert_eq!(waits, (usize::from(place) - 1).checked_sub(holding), "{modes:?}");
            }
        }
    }

    #[test]
    fn a_contender_is_admitted_if_it_would_hold_at_the_end_of_the_queue() {
        for (modes, mode, admitted) in [
            (vec![], Exclusive, true),
            (vec![Exclusive], Exclusive, false),
            (vec![Exclusive], Shared, false),
            (vec![Shared, Shared], Shared, true),
            (vec![Shared, Exclusive], Shared, false),
            (vec![permits(1), permits(1)], permits(2), true),
            (vec![permits(1), permits(2)], permits(2), false),
            (vec![permits(3), permits(2)], permits(1), false),
        ] {
            assert_eq!(queue(&modes).admits(mode), admitted, "{mode} behind {modes:?}");
        }
    }

    #[test]
    fn a_waiter_is_blocked_by_the_contenders_that_exclude_it() {
        for (modes, of, blockers) in [
            (vec![Exclusive, Exclusive, Exclusive], 3, vec![2]),
            (vec![Exclusive, Shared, Shared], 3, vec![1]),
            (vec![Shared, Shared, Exclusive], 3, vec![2]),
            (vec![Exclusive, Shared, Exclusive], 2, vec![1]),
            (vec![permits(3), permits(1), permits(2)], 3, vec![2, 1]),
            (vec![permits(1); 7], 7, vec![6, 5, 4, 3]),
            (vec![permits(1), permits(4), permits(1)], 3, vec![2]),
            (vec![permits(1), permits(2)], 2, vec![]),
            (vec![Exclusive, permits(1), permits(1)], 3, vec![2, 1]),
            (vec![permits(1), Exclusive, permits(1)], 3, vec![2]),
            (vec![Mode::Permits { count: 1, of: 9 }, permits(1)], 2, vec![1]),
            (vec![Exclusive], 9, vec![]),
        ] {
            let queue = queue(&modes);
            let found = queue.blockers(LeaseId::from_bytes([of; 16]));
            assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), blockers, "{modes:?}");
        }
    }

    /// Every queue of up to five, and every set of contenders that may have left it.
    #[test]
    fn a_contender_waits_exactly_as_long_as_all_its_blockers_are_there() {
        let modes = [Exclusive, Shared, permits(1), permits(2), permits(4)];
        let mut waits = 0;
        for length in 1..=5_u32 {
            for number in 0..modes.len().pow(length) {
                let digit = |at: u32| number / modes.len().pow(at) % modes.len();
                let asked: Vec<Mode> = (0..length).map(|at| modes[digit(at)]).collect();
                waits += check_all_departures(&asked);
            }
        }
        assert!(waits > 10_000, "{waits}");
    }

    /// Checks the last contender; returns in how many cases it waits.
    fn check_all_departures(modes: &[Mode]) -> usize {
        let place = u8::try_from(modes.len()).expect("few");
        let id = LeaseId::from_bytes([place; 16]);
        let present = |left: u32| {
            let stays = |(at, _): &(u8, &Mode)| left & (1 << at) == 0;
            let contenders = (1..).zip(modes).filter(stays);
            SequencedQueue::new(contenders.map(|(at, mode)| Numbered(at, *mode)).collect())
        };
        let queue = present(0);
        let blockers: Vec<u8> = queue.blockers(id).iter().map(|one| one.0).collect();
        assert_eq!(blockers.is_empty(), queue.find(id).is_some_and(|(_, waits)| waits.is_none()));
        // The nearest are enough to find them.
        let own = modes[modes.len() - 1];
        let counts = |one: &&Numbered| own != Shared || one.1 != Shared;
        let before = queue.contenders().iter().rev().skip(1);
        let nearest = before.filter(counts).take(most_blockers(own));
        let found: Vec<u8> = super::blockers(own, nearest).iter().map(|one| one.0).collect();
        assert_eq!(found, blockers, "{modes:?}");
        let is_next = queue.is_next(id);
        let mut one_is_not_enough = false;
        let mut waits = 0;
        for left in (0..1 << place).step_by(2) {
            let queue = present(left);
            let there = |at: &u8| left & (1 << at) == 0;
            let is_waiting = queue.find(id).is_some_and(|(_, waits)| waits.is_some());
            let before = queue.contenders().iter().take_while(|one| !one.is(id));
            let weight: u32 = before.map(|one| weight_before(own, one.1)).sum();
            assert_eq!(is_waiting, weight > most_weight_before(own), "{modes:?}, {left:b}");
            if !blockers.is_empty() && blockers.iter().all(there) {
                assert!(is_waiting, "{modes:?} without {left:b}");
            } else if is_next {
                assert!(!is_waiting, "{modes:?} without {left:b}");
            }
            one_is_not_enough |= is_waiting && blockers.iter().any(|at| left == 1 << at);
            waits += usize::from(is_waiting);
        }
        assert_eq!(is_next, !blockers.is_empty() && !one_is_not_enough, "{modes:?}");
        waits
    }

    #[test]
    fn a_mode_that_cannot_share_the_queue_is_invalid() {
        assert!(queue(&[]).check_mode("e", permits(1)).is_ok());
        assert!(queue(&[Exclusive]).check_mode("e", Shared).is_ok());
        for (modes, mode, says) in [
            ([Exclusive], permits(1), "in use as a mutex"),
            ([permits(1)], Exclusive, "semaphore of 4"),
            ([permits(1)], Mode::Permits { count: 1, of: 9 }, "semaphore of 4"),
        ] {
            let error = queue(&modes).check_mode("e", mode).expect_err("another kind").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
