//! The requests under way on one connection, in the order in which they were written.
//!
//! A server replies in order, so each reply belongs to the oldest request without one. A request
//! whose caller went away keeps its entry: its reply is read and dropped.
//!
//! - Invariant P1: a request leaves the order only when its reply was read.
//! - Invariant P2: [`Pending::soonest`] is no later than the deadline of any request whose
//!   deadline was not reported yet.
//! - Invariant P3: there are never more entries than there were, at one time, requests under way
//!   and replies not yet taken.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use holdline_core::Moment;

use super::Affinity;
use super::resp::Reply;
use super::value::Value;

/// Names the entry of a request, until its caller has taken the reply or gone away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u32);

/// What became of a request and its caller.
#[derive(Debug)]
pub(super) enum EntryState {
    /// The caller waits; without a waker it has not polled yet.
    Waiting(Option<Waker>),
    /// The deadline has passed; the caller learns that when it polls.
    Expired,
    /// The caller went away.
    Abandoned,
    /// The reply is there for the caller to take.
    Ready(Reply),
}

/// What a caller finds when it polls.
#[derive(Debug, PartialEq)]
pub(super) enum ReplyPoll {
    Pending,
    Expired,
    Ready(Reply),
}

/// Until when a reply is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Moment,
    /// It is so close that missing it says nothing about the connection.
    pub(super) inconclusive: bool,
}

/// Until when a reply is waited for; `asked` is the duration that the caller gave, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) end: Moment,
    pub(super) asked: Duration,
}

impl Limit {
    /// Returns when half of the time is over.
    pub(super) fn half(&self) -> Moment {
        self.end.before(self.asked / 2)
    }

    /// Describes for people that it has passed. Names the round trip of the server if that is too
    /// long for the limit.
    pub(super) fn describe(&self, round_trip: Duration) -> String {
        let asked = self.asked;
        if round_trip < asked / 2 {
            return format!("no reply within {asked:?}");
        }
        let millis = round_trip.as_millis();
        format!("no reply within {asked:?} (the last round trip took {millis} ms)")
    }
}

#[derive(Debug)]
struct Entry {
    deadline: Deadline,
    affinity: Option<Affinity>,
    state: EntryState,
    /// That the deadline has passed was reported already.
    reported: bool,
    /// How many pushed messages confirm it; none where one reply does.
    confirmations: usize,
    /// Which pushed message confirms it, if it is about a sharded channel: the server sends
    /// others of that kind when a slot moves.
    shard: Option<ShardConfirmation>,
}

/// The kind and the channel of a pushed message.
pub(super) type ShardConfirmation = (&'static str, Vec<u8>);

/// What expired deadlines say about the connection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Overdue {
    /// A request with a fair deadline has no reply.
    pub(super) silent: bool,
    /// Only a request with a very short deadline has no reply.
    pub(super) uncertain: bool,
}

/// The unanswered requests of one connection, and the replies that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The indexes of the unanswered ones, oldest first.
    order: VecDeque<u32>,
}

impl Pending {
    /// Returns how many are unanswered.
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
        let state = EntryState::Waiting(None);
        let shard = None;
        let entry = Entry { deadline, affinity, state, reported: false, confirmations, shard };
        let index = match self.free.pop() {
            Some(index) => {
                self.entries[index as usize] = entry;
                index
            }
            None => {
                self.entries.push(entry);
                // A connection carries far fewer.
                u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
            }
        };
        self.order.push_back(index);
        Ticket(index)
    }

    /// Gives a reply to the oldest request; false when there is no request.
    pub(super) fn complete_next(&mut self, reply: Reply, wake: &mut Vec<Waker>) -> bool {
        let Some(index) = self.order.pop_front() else { return false };
        let entry = &mut self.entries[index as usize];
        match &mut entry.state {
            EntryState::Waiting(waker) => wake.extend(waker.take()),
            // The reply is late, but the caller has not polled yet.
            EntryState::Expired => {}
            EntryState::Abandoned | EntryState::Ready(_) => {
                self.free.push(index);
                return true;
            }
        }
        entry.state = EntryState::Ready(reply);
        true
    }

    /// Counts one of the messages that confirm the oldest request.
    pub(super) fn confirm_next(&mut self, wake: &mut Vec<Waker>) {
        let Some(index) = self.order.front() else { return };
        let entry = &mut self.entries[*index as usize];
        match entry.confirmations {
            _ if entry.shard.is_some() => {}
            0 => {}
            1 => drop(self.complete_next(Ok(Value::Nil), wake)),
            _ => entry.confirmations -= 1,
        }
    }

    /// Sets which pushed message confirms a request about a sharded channel.
    pub(super) fn expect_shard(&mut self, ticket: Ticket, confirmation: ShardConfirmation) {
        self.entries[ticket.0 as usize].shard = Some(confirmation);
    }

    /// Confirms the oldest request if it expects this message about a sharded channel.
    pub(super) fn confirm_shard(&mut self, kind: &str, channel: &[u8], wake: &mut Vec<Waker>) {
        let Some(index) = self.order.front() else { return };
        let expected = self.entries[*index as usize].shard.as_ref();
        if expected.is_some_and(|expected| expected.0 == kind && expected.1 == channel) {
            self.complete_next(Ok(Value::Nil), wake);
        }
    }

    /// Polls for the reply, and stores the waker. Any result but `Pending` ends the ticket.
    pub(super) fn poll_reply(&mut self, ticket: Ticket, waker: &Waker) -> ReplyPoll {
        let entry = &mut self.entries[ticket.0 as usize];
        match &mut entry.state {
            EntryState::Waiting(Some(known)) => known.clone_from(waker),
            EntryState::Waiting(none) => *none = Some(waker.clone()),
            EntryState::Expired | EntryState::Abandoned | EntryState::Ready(_) => {
                return match self.abandon(ticket) {
                    EntryState::Ready(reply) => ReplyPoll::Ready(reply),
                    _ => ReplyPoll::Expired,
                };
            }
        }
        ReplyPoll::Pending
    }

    /// Ends the ticket of a caller that goes away; the entry is freed when the reply comes.
    pub(super) fn abandon(&mut self, ticket: Ticket) -> EntryState {
        let entry = &mut self.entries[ticket.0 as usize];
        let state = std::mem::replace(&mut entry.state, EntryState::Abandoned);
        if matches!(state, EntryState::Ready(_)) {
            self.free.push(ticket.0);
        }
        state
    }

    /// Returns whether a request of this affinity is unanswered.
    pub(super) fn has_unanswered(&self, affinity: &Affinity) -> bool {
        self.unanswered().any(|entry| entry.affinity.as_ref() == Some(affinity))
    }

    /// Returns the soonest deadline that was not reported yet.
    pub(super) fn soonest(&self) -> Option<Moment> {
        let unreported = self.unanswered().filter(|entry| !entry.reported);
        unreported.map(|entry| entry.deadline.at).min()
    }

    /// Expires all requests whose deadline has passed; `wake` receives the wakers to call.
    pub(super) fn expire(&mut self, now: Moment, wake: &mut Vec<Waker>) -> Overdue {
        let mut overdue = Overdue::default();
        for index in &self.order {
            let entry = &mut self.entries[*index as usize];
            if entry.reported || entry.deadline.at > now {
                continue;
            }
            entry.reported = true;
            if entry.deadline.inconclusive {
                overdue.uncertain = true;
            } else {
                overdue.silent = true;
            }
            if let EntryState::Waiting(waker) = &mut entry.state {
                wake.extend(waker.take());
                entry.state = EntryState::Expired;
            }
        }
        overdue
    }

    /// Collects the wakers of all callers: the connection has ended.
    pub(super) fn wake_all(&mut self, wake: &mut Vec<Waker>) {
        for entry in &mut self.entries {
            if let EntryState::Waiting(waker) = &mut entry.state {
                wake.extend(waker.take());
            }
        }
    }

    fn unanswered(&self) -> impl Iterator<Item = &Entry> {
        self.order.iter().map(|index| &self.entries[*index as usize])
    }
}

#[cfg(test)]
mod tests;
