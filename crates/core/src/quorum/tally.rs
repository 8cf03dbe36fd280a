//! One renewal of a lease: answers come in, and at some point it is kept or cannot be.
//!
//! A lease is renewed only when a majority of the nodes says that it is still theirs to keep.
//! Where a node has nothing of it, because it was silent then or has lost its memory since, the
//! name is taken again there, behind a renewal that was good: so a set does not wear out as its
//! nodes are restarted one by one. What was taken so counts with the next renewal, and is never
//! evidence for a token.

use std::time::Duration;

use crate::moment::Moment;
use crate::quorum::majority;
use crate::validity;

/// How a renewal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kept {
    /// More answers are needed.
    Open,
    /// A majority keeps it.
    Yes {
        /// Until when the lease may be believed.
        valid_until: Moment,
    },
    /// So many say that they have nothing of it that no majority can keep it.
    No,
    /// Too few answer to tell.
    Unclear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Seat {
    Spared,
    Asked { sent: Moment },
    Kept { until: Moment },
    Gone { free: bool },
    Silent,
}

/// One renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tally {
    seats: Vec<Seat>,
    lease: Duration,
    drift_ppm: u32,
    verdict: Kept,
}

impl Tally {
    /// Begins a renewal over `nodes` nodes. None of them is asked yet.
    pub fn new(nodes: usize, lease: Duration, drift_ppm: u32) -> Tally {
        Tally { seats: vec![Seat::Spared; nodes], lease, drift_ppm, verdict: Kept::Open }
    }

    /// Notes that a node is asked. `sent` is the clock read before the request leaves.
    pub fn asked(&mut self, node: usize, sent: Moment) {
        if let Some(seat @ Seat::Spared) = self.seats.get_mut(node) {
            *seat = Seat::Asked { sent };
        }
    }

    /// Notes that a node keeps the lease from now.
    pub fn kept(&mut self, node: usize) {
        let lease = validity::believed(self.lease, self.drift_ppm);
        if let Some(seat) = self.seats.get_mut(node)
            && let Seat::Asked { sent } = *seat
        {
            *seat = Seat::Kept { until: sent.after(lease) };
        }
    }

    /// Notes that a node has nothing of it. `free`: nobody else has the name there.
    pub fn gone(&mut self, node: usize, free: bool) {
        if let Some(seat @ Seat::Asked { .. }) = self.seats.get_mut(node) {
            *seat = Seat::Gone { free };
        }
    }

    /// Notes that a node will not be heard of in time, or does not say.
    pub fn unanswered(&mut self, node: usize) {
        if let Some(seat @ Seat::Asked { .. }) = self.seats.get_mut(node) {
            *seat = Seat::Silent;
        }
    }

    /// Decides, if what is known allows it. A decision stays.
    pub fn decide(&mut self, now: Moment) -> Kept {
        if self.verdict == Kept::Open {
            self.verdict = self.judge(now);
        }
        self.verdict
    }

    /// Returns the nodes whose answer is awaited.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        let seats = self.seats.iter().enumerate();
        seats.filter(|(_, seat)| matches!(seat, Seat::Asked { .. })).map(|(node, _)| node)
    }

    /// Tells whether a majority is known to keep it: then it may be taken again where it lacks.
    pub fn is_good(&self) -> bool {
        matches!(self.verdict, Kept::Yes { .. })
    }

    /// Returns the nodes where the name is free and may be taken again: none but after a renewal
    /// that was good.
    pub fn to_heal(&self) -> impl Iterator<Item = usize> {
        let good = self.is_good();
        let seats = self.seats.iter().enumerate();
        let free = move |seat: &Seat| good && *seat == Seat::Gone { free: true };
        seats.filter(move |(_, seat)| free(seat)).map(|(node, _)| node)
    }

    fn judge(&self, now: Moment) -> Kept {
        let needed = majority(self.seats.len());
        let mut ends: Vec<Moment> = self
            .seats
            .iter()
            .filter_map(|seat| match seat {
                Seat::Kept { until } if *until > now => Some(*until),
                _ => None,
            })
            .collect();
        if ends.len() >= needed {
            ends.sort_unstable_by(|one, other| other.cmp(one));
            return Kept::Yes { valid_until: ends[needed - 1] };
        }
        let gone = self.seats.iter().filter(|seat| matches!(seat, Seat::Gone { .. })).count();
        let (waiting, spare) = (self.awaited().count(), self.seats.len() - needed);
        if gone > spare {
            return Kept::No;
        }
        let may_yet = ends.len() + waiting >= needed || gone + waiting > spare;
        if may_yet { Kept::Open } else { Kept::Unclear }
    }
}
