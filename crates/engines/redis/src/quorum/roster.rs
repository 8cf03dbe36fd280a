//! Who of a set votes, and under which configuration: what the last look at it has shown.

use std::sync::Arc;

use holdline_core::Moment;
use holdline_core::quorum::{Configuration, majority};

use super::attempt::waits;
use super::requests::Pass;

/// Who votes.
#[derive(Debug)]
pub(super) struct Roster {
    pub(super) configuration: Configuration,
    pub(super) seats: Vec<Seat>,
    /// The nodes' clock, in microseconds, at a moment of ours.
    pub(super) clock: (Moment, u64),
}

/// How a node stands.
#[derive(Clone, Debug)]
pub(super) enum Seat {
    /// It votes for who shows this.
    Votes(Arc<Pass>),
    /// It has lost its memory, and waits until then; `None` while the others have not agreed yet.
    Waits(Option<Moment>),
    /// It gives no vote, for this reason.
    Out(Arc<str>),
}

impl Roster {
    /// Tells whether a majority votes.
    pub(super) fn has_majority(&self) -> bool {
        let votes = self.seats.iter().filter(|seat| matches!(seat, Seat::Votes(_))).count();
        votes >= majority(self.seats.len())
    }

    /// Tells whether a node votes that did not.
    pub(super) fn has_new_voter(&self, before: &Roster) -> bool {
        let votes = |seat: &Seat| matches!(seat, Seat::Votes(_));
        before.seats.iter().zip(&self.seats).any(|(before, now)| votes(now) && !votes(before))
    }

    /// Returns of each node why it is not asked; `None` of those that are.
    pub(super) fn excuses(&self, now: Moment) -> Vec<Option<String>> {
        let excuse = |seat: &Seat| match seat {
            Seat::Votes(_) => None,
            Seat::Waits(until) => Some(waits(*until, now)),
            Seat::Out(why) => Some(why.to_string()),
        };
        self.seats.iter().map(excuse).collect()
    }

    /// Returns what the nodes' clocks show now, in microseconds.
    pub(super) fn time_us(&self, now: Moment) -> u64 {
        let (at, time_us) = self.clock;
        let since = u64::try_from(at.until(now).as_micros()).unwrap_or(u64::MAX);
        time_us.saturating_add(since)
    }
}
