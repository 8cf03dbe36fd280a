//! What is under way on one connection, in the order in which it was written.
//!
//! A server answers in order, so each reply is the answer to the oldest request that has none. A
//! request whose taker went away keeps its place: its answer is read and thrown away.
//!
//! - Invariant P1: a request leaves the order only when its answer was read.
//! - Invariant P2: [`Pending::soonest`] is no later than the deadline of any request whose
//!   deadline has not been told yet.
//! - Invariant P3: there are no more places than requests that were under way, or answered and not
//!   yet taken, at one time.

use std::collections::VecDeque;
use std::task::Waker;

use holdline_core::Moment;

use super::Affinity;
use super::resp::Reply;
use super::value::Value;

/// The place of a request, until whoever waits has taken the answer or gone away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Waiting {
    /// Still waits; without a waker it has not looked yet.
    Here(Option<Waker>),
    /// Its deadline has passed: it is told so when it looks.
    Expired,
    /// It went away.
    Gone,
    /// It has only to take the answer.
    Answered(Reply),
}

/// What whoever waits finds.
#[derive(Debug, PartialEq)]
pub(super) enum Look {
    Wait,
    Expired,
    Answered(Reply),
}

/// Until when an answer is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Moment,
    /// It is so close that missing it says nothing about the connection.
    pub(super) hasty: bool,
}

#[derive(Debug)]
struct Place {
    deadline: Deadline,
    affinity: Option<Affinity>,
    waiting: Waiting,
    /// The deadline was counted already.
    told: bool,
    /// How many messages confirm it; none where it is answered by one reply.
    confirmations: usize,
}

/// What a look at the deadlines has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overdue {
    /// A request that was given time went unanswered.
    pub(super) silent: bool,
    /// One that was given next to none did.
    pub(super) in_doubt: bool,
}

/// The requests of one connection that are unanswered, and the answers that nobody took yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    places: Vec<Place>,
    free: Vec<u32>,
    /// The unanswered ones.
    order: VecDeque<u32>,
}

impl Pending {
    /// How many are unanswered.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a request at the end.
    pub(super) fn add(
        &mut self,
        deadline: Deadline,
        affinity: Option<Affinity>,
        confirmations: usize,
    ) -> Ticket {
        let waiting = Waiting::Here(None);
        let place = Place { deadline, affinity, waiting, told: false, confirmations };
        let number = match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = place;
                number
            }
            None => {
                self.places.push(place);
                // A connection carries far fewer.
                u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.order.push_back(number);
        Ticket(number)
    }

    /// Gives a reply to the oldest request; false when there is none, and nobody asked for it.
    pub(super) fn answered(&mut self, reply: Reply, wake: &mut Vec<Waker>) -> bool {
        let Some(number) = self.order.pop_front() else { return false };
        let place = &mut self.places[number as usize];
        match &mut place.waiting {
            Waiting::Here(waker) => wake.extend(waker.take()),
            // It is late, but whoever waits has not looked yet.
            Waiting::Expired => {}
            Waiting::Gone | Waiting::Answered(_) => {
                self.free.push(number);
                return true;
            }
        }
        place.waiting = Waiting::Answered(reply);
        true
    }

    /// One of the messages has come that confirm the oldest request.
    pub(super) fn confirmed(&mut self, wake: &mut Vec<Waker>) {
        let Some(number) = self.order.front() else { return };
        let place = &mut self.places[*number as usize];
        match place.confirmations {
            0 => {}
            1 => drop(self.answered(Ok(Value::Nil), wake)),
            _ => place.confirmations -= 1,
        }
    }

    /// Looks for the answer, and renews the waker. What is told ends the ticket, unless it is to
    /// wait.
    pub(super) fn look(&mut self, ticket: Ticket, waker: &Waker) -> Look {
        let place = &mut self.places[ticket.0 as usize];
        match &mut place.waiting {
            Waiting::Here(Some(known)) => known.clone_from(waker),
            Waiting::Here(none) => *none = Some(waker.clone()),
            Waiting::Expired | Waiting::Gone | Waiting::Answered(_) => {
                return match self.leave(ticket) {
                    Waiting::Answered(reply) => Look::Answered(reply),
                    _ => Look::Expired,
                };
            }
        }
        Look::Wait
    }

    /// Whoever waited goes away: the ticket ends, and the place as soon as it is answered.
    pub(super) fn leave(&mut self, ticket: Ticket) -> Waiting {
        let place = &mut self.places[ticket.0 as usize];
        let waiting = std::mem::replace(&mut place.waiting, Waiting::Gone);
        if matches!(waiting, Waiting::Answered(_)) {
            self.free.push(ticket.0);
        }
        waiting
    }

    /// Tells whether a request of this affinity is unanswered.
    pub(super) fn has(&self, affinity: &Affinity) -> bool {
        self.unanswered().any(|place| place.affinity.as_ref() == Some(affinity))
    }

    /// The soonest deadline that was not told yet.
    pub(super) fn soonest(&self) -> Option<Moment> {
        let untold = self.unanswered().filter(|place| !place.told);
        untold.map(|place| place.deadline.at).min()
    }

    /// Tells all whose deadline has passed; the wakers are for the caller to wake.
    pub(super) fn expire(&mut self, now: Moment, wake: &mut Vec<Waker>) -> Overdue {
        let mut overdue = Overdue::default();
        for number in &self.order {
            let place = &mut self.places[*number as usize];
            if place.told || place.deadline.at > now {
                continue;
            }
            place.told = true;
            match place.deadline.hasty {
                true => overdue.in_doubt = true,
                false => overdue.silent = true,
            }
            if let Waiting::Here(waker) = &mut place.waiting {
                wake.extend(waker.take());
                place.waiting = Waiting::Expired;
            }
        }
        overdue
    }

    /// The connection has ended: everybody who waits is to look.
    pub(super) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        for place in &mut self.places {
            if let Waiting::Here(waker) = &mut place.waiting {
                wake.extend(waker.take());
            }
        }
    }

    fn unanswered(&self) -> impl Iterator<Item = &Place> {
        self.order.iter().map(|number| &self.places[*number as usize])
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
        let add = |nanos: &u64| pending.add(due(*nanos), Some([*nanos as u8; 16]), 0);
        let tickets = deadlines.iter().map(add).collect();
        (pending, tickets)
    }

    fn number(number: i64) -> Reply {
        Ok(Value::Integer(number))
    }

    fn answer(pending: &mut Pending, reply: i64) -> usize {
        let mut wake = Vec::new();
        assert!(pending.answered(number(reply), &mut wake));
        wake.len()
    }

    fn look(pending: &mut Pending, ticket: Ticket) -> Look {
        pending.look(ticket, Waker::noop())
    }

    #[test]
    fn answers_go_to_the_requests_in_their_order() {
        let (mut pending, tickets) = with(&[1, 2, 3]);
        assert_eq!(look(&mut pending, tickets[1]), Look::Wait);
        assert_eq!(answer(&mut pending, 10), 0, "it has not looked yet");
        assert_eq!(answer(&mut pending, 20), 1);
        assert!(!pending.has(&[2; 16]) && pending.has(&[3; 16]));
        assert_eq!(look(&mut pending, tickets[1]), Look::Answered(number(20)));
        assert_eq!(look(&mut pending, tickets[0]), Look::Answered(number(10)));
        assert_eq!(look(&mut pending, tickets[2]), Look::Wait);
        assert_eq!(pending.len(), 1);
    }

    #[test]
    fn the_answer_to_whoever_went_away_is_taken_for_nobody_elses() {
        let (mut pending, tickets) = with(&[1, 2]);
        pending.leave(tickets[0]);
        assert!(pending.has(&[1; 16]), "it may be carried out yet");
        answer(&mut pending, 10);
        assert!(!pending.has(&[1; 16]));
        answer(&mut pending, 20);
        assert_eq!(look(&mut pending, tickets[1]), Look::Answered(number(20)));
        assert!(!pending.answered(number(30), &mut Vec::new()), "nobody asked");
    }

    #[test]
    fn places_are_used_again_and_never_while_they_are_needed() {
        let (mut pending, tickets) = with(&[1, 2, 3]);
        pending.leave(tickets[0]);
        assert_ne!(pending.add(due(4), None, 0), tickets[0], "it is unanswered");
        answer(&mut pending, 10);
        answer(&mut pending, 20);
        assert_eq!(pending.add(due(5), None, 0), tickets[0]);
        assert_ne!(pending.add(due(6), None, 0), tickets[1], "its answer was not taken");
        pending.leave(tickets[1]);
        assert_eq!(pending.add(due(7), None, 0), tickets[1]);
        assert_eq!(pending.places.len(), 5);
    }

    #[test]
    fn a_subscription_is_confirmed_channel_by_channel_or_refused_at_once() {
        let mut pending = Pending::default();
        let (two, refused) = (pending.add(due(1), None, 2), pending.add(due(1), None, 2));
        let mut wake = Vec::new();
        pending.confirmed(&mut wake);
        assert_eq!(look(&mut pending, two), Look::Wait);
        pending.confirmed(&mut wake);
        assert_eq!(look(&mut pending, two), Look::Answered(Ok(Value::Nil)));
        answer(&mut pending, 1);
        assert_eq!(look(&mut pending, refused), Look::Answered(number(1)));
        let plain = pending.add(due(1), None, 0);
        pending.confirmed(&mut wake);
        assert_eq!(look(&mut pending, plain), Look::Wait, "it is answered by a reply");
    }

    #[test]
    fn deadlines_are_told_once_and_to_whom_they_concern() {
        let (mut pending, tickets) = with(&[30, 10, 20]);
        assert_eq!(pending.soonest(), Some(at(10)));
        pending.leave(tickets[2]);
        tickets[..2].iter().for_each(|ticket| drop(look(&mut pending, *ticket)));
        let mut wake = Vec::new();
        assert_eq!(pending.expire(at(9), &mut wake), Overdue::default());
        let silent = Overdue { silent: true, in_doubt: false };
        assert_eq!(pending.expire(at(20), &mut wake), silent);
        assert_eq!(wake.len(), 1);
        assert_eq!(pending.expire(at(20), &mut wake), Overdue::default(), "told once");
        assert_eq!(pending.soonest(), Some(at(30)));
        assert_eq!(look(&mut pending, tickets[0]), Look::Wait);
        assert_eq!(look(&mut pending, tickets[1]), Look::Expired);
        assert_eq!(pending.len(), 3, "an expired request is unanswered all the same");
    }

    #[test]
    fn a_late_answer_is_taken_by_whoever_was_not_told_yet() {
        let (mut pending, tickets) = with(&[1]);
        pending.expire(at(1), &mut Vec::new());
        answer(&mut pending, 10);
        assert_eq!(look(&mut pending, tickets[0]), Look::Answered(number(10)));
        assert_eq!(pending.add(due(2), None, 0), tickets[0]);
    }

    #[test]
    fn a_hasty_deadline_is_told_and_proves_nothing() {
        let mut pending = Pending::default();
        let ticket = pending.add(Deadline { at: at(1), hasty: true }, None, 0);
        assert_eq!(look(&mut pending, ticket), Look::Wait);
        let mut wake = Vec::new();
        let doubt = Overdue { silent: false, in_doubt: true };
        assert_eq!(pending.expire(at(1), &mut wake), doubt);
        assert!(look(&mut pending, ticket) == Look::Expired && wake.len() == 1);
    }
}
