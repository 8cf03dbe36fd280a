//! What is under way on one connection, in the order in which it was written.
//!
//! A server answers in order, so an answer to one request tells that every earlier one was
//! answered too, also those that nobody waits for any more.
//!
//! - Invariant P1: a request leaves the table only when its answer, or a later one, was seen.
//! - Invariant P2: [`Pending::soonest`] is no later than the deadline of any request whose
//!   deadline has not been told yet.

use std::collections::VecDeque;
use std::task::Waker;

use holdline_core::Moment;

use super::Affinity;

/// The place of a request in the order of one connection.
pub(super) type Ticket = u64;

/// What became of the one who waits for an answer.
#[derive(Debug)]
enum Waiting {
    /// Still waits.
    Here(Waker),
    /// Its deadline has passed: it is told so when it looks.
    Expired,
    /// It went away before that.
    Gone,
}

/// Until when an answer is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Moment,
    /// It is so close that missing it says nothing about the connection.
    pub(super) hasty: bool,
}

#[derive(Debug)]
struct Entry {
    deadline: Deadline,
    affinity: Option<Affinity>,
    waiting: Waiting,
    /// The deadline was counted already.
    told: bool,
}

/// What a look at the deadlines has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overdue {
    /// Somebody waited for an answer until the deadline.
    pub(super) waited_for: bool,
    /// Nobody waited, so the answer may have come unseen; or not for long enough.
    pub(super) in_doubt: bool,
}

/// The requests of one connection that may be unanswered.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The ticket of the first entry.
    first: Ticket,
    /// All tickets below were answered, seen or unseen.
    answered: Ticket,
    /// `None` where the answer was seen out of turn.
    entries: VecDeque<Option<Entry>>,
}

impl Pending {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a request at the end.
    pub(super) fn add(
        &mut self,
        deadline: Deadline,
        affinity: Option<Affinity>,
        waker: Waker,
    ) -> Ticket {
        let waiting = Waiting::Here(waker);
        self.entries.push_back(Some(Entry { deadline, affinity, waiting, told: false }));
        self.first + self.entries.len() as Ticket - 1
    }

    /// An answer was seen: the request and all earlier ones that nobody watches are over.
    pub(super) fn answered(&mut self, ticket: Ticket) {
        if let Some(entry) = self.entry(ticket) {
            *entry = None;
        }
        self.answered = self.answered.max(ticket + 1);
        while let Some(front) = self.entries.front() {
            let watched = matches!(front, Some(Entry { waiting: Waiting::Here(_), .. }));
            if watched || (front.is_some() && self.first >= self.answered) {
                return;
            }
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Renews the waker; tells whether the deadline has passed.
    pub(super) fn look(&mut self, ticket: Ticket, waker: &Waker) -> bool {
        match self.entry(ticket) {
            Some(Some(Entry { waiting: Waiting::Here(known), .. })) => {
                known.clone_from(waker);
                false
            }
            Some(Some(entry)) => matches!(entry.waiting, Waiting::Expired),
            _ => false,
        }
    }

    /// Whoever waited went away.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        if let Some(Some(entry)) = self.entry(ticket) {
            entry.waiting = Waiting::Gone;
        }
    }

    /// Tells whether a request of this affinity may be unanswered.
    pub(super) fn has(&self, affinity: &Affinity) -> bool {
        self.entries.iter().flatten().any(|entry| entry.affinity.as_ref() == Some(affinity))
    }

    /// The soonest deadline that was not told yet.
    pub(super) fn soonest(&self) -> Option<Moment> {
        self.untold().map(|entry| entry.deadline.at).min()
    }

    /// Tells all whose deadline has passed; the wakers are for the caller to wake.
    pub(super) fn expire(&mut self, now: Moment, wake: &mut Vec<Waker>) -> Overdue {
        let mut overdue = Overdue::default();
        for entry in self.entries.iter_mut().flatten() {
            if entry.told || entry.deadline.at > now {
                continue;
            }
            entry.told = true;
            let Waiting::Here(waker) = &entry.waiting else {
                overdue.in_doubt = true;
                continue;
            };
            wake.push(waker.clone());
            entry.waiting = Waiting::Expired;
            match entry.deadline.hasty {
                true => overdue.in_doubt = true,
                false => overdue.waited_for = true,
            }
        }
        overdue
    }

    fn untold(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten().filter(|entry| !entry.told)
    }

    fn entry(&mut self, ticket: Ticket) -> Option<&mut Option<Entry>> {
        let place = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn due(nanos: u64) -> Deadline {
        Deadline { at: at(nanos), hasty: false }
    }

    fn with(deadlines: &[u64]) -> (Pending, Vec<Ticket>) {
        let mut pending = Pending::default();
        let add = |nanos: &u64| pending.add(due(*nanos), Some([*nanos as u8; 16]), noop());
        let tickets = deadlines.iter().map(add).collect();
        (pending, tickets)
    }

    fn noop() -> Waker {
        Waker::noop().clone()
    }

    #[test]
    fn an_answer_ends_the_earlier_ones_that_nobody_watches() {
        let (mut pending, tickets) = with(&[1, 2, 3, 4]);
        pending.leave(tickets[0]);
        pending.answered(tickets[2]);
        assert!(!pending.has(&[1; 16]), "answered before the third");
        assert!(pending.has(&[2; 16]), "somebody still takes its answer");
        pending.answered(tickets[1]);
        assert!(!pending.has(&[3; 16]) && pending.has(&[4; 16]));
        assert_eq!(pending.len(), 1);
        pending.leave(tickets[3]);
        assert!(pending.has(&[4; 16]), "nothing tells that it was answered");
        pending.answered(tickets[3]);
        assert!(pending.is_empty());
    }

    #[test]
    fn a_slow_taker_does_not_hide_that_later_ones_were_answered() {
        let (mut pending, tickets) = with(&[1, 2, 3]);
        pending.leave(tickets[1]);
        pending.answered(tickets[2]);
        pending.answered(tickets[0]);
        assert!(pending.is_empty());
    }

    #[test]
    fn what_nobody_watches_behind_the_answer_stays() {
        let (mut pending, tickets) = with(&[1, 2]);
        pending.leave(tickets[1]);
        pending.answered(tickets[0]);
        assert!(pending.has(&[2; 16]));
        assert_eq!(pending.add(due(9), None, noop()), tickets[1] + 1);
    }

    #[test]
    fn deadlines_are_told_once_and_to_whom_they_concern() {
        let (mut pending, tickets) = with(&[30, 10, 20]);
        assert_eq!(pending.soonest(), Some(at(10)));
        pending.leave(tickets[2]);
        let mut wake = Vec::new();
        assert_eq!(pending.expire(at(9), &mut wake), Overdue::default());
        let both = Overdue { waited_for: true, in_doubt: true };
        assert_eq!(pending.expire(at(20), &mut wake), both);
        assert_eq!(wake.len(), 1);
        assert_eq!(pending.expire(at(20), &mut wake), Overdue::default(), "told once");
        assert_eq!(pending.soonest(), Some(at(30)));
        let late = tickets.iter().map(|ticket| pending.look(*ticket, Waker::noop()));
        assert_eq!(late.collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(pending.len(), 3, "an expired request may still be unanswered");
    }

    #[test]
    fn a_hasty_deadline_is_told_and_proves_nothing() {
        let mut pending = Pending::default();
        let ticket = pending.add(Deadline { at: at(1), hasty: true }, None, noop());
        let mut wake = Vec::new();
        let doubt = Overdue { waited_for: false, in_doubt: true };
        assert_eq!(pending.expire(at(1), &mut wake), doubt);
        assert!(pending.look(ticket, Waker::noop()) && wake.len() == 1);
    }

    #[test]
    fn an_answer_to_what_is_over_changes_nothing() {
        let (mut pending, tickets) = with(&[1]);
        pending.answered(tickets[0]);
        pending.answered(tickets[0]);
        assert!(!pending.look(tickets[0], Waker::noop()));
        pending.leave(tickets[0]);
        assert!(pending.is_empty());
        assert_eq!(pending.soonest(), None);
    }
}
