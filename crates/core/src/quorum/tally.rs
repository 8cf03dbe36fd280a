//! One renewal of a lease: counts answers until a majority keeps the lease or no longer can.
//!
//! A lease is renewed only when a majority of the nodes still holds it. A node may lack the lease
//! because it did not answer the acquire, or because it lost its data since. The name is taken
//! again there (*healed*) after a successful renewal, so a set survives a rolling restart of its
//! nodes. A healed record counts from the next renewal on, and is never evidence for a token.

use std::time::Duration;

use crate::moment::Moment;
use crate::quorum::{end_of_majority, majority, nodes_where};
use crate::validity;

/// The outcome of a renewal so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenewalOutcome {
    /// More answers are needed.
    Pending,
    /// A majority keeps the lease.
    Renewed {
        /// Until when the lease is valid.
        valid_until: Moment,
    },
    /// So many nodes lack the lease that no majority can keep it.
    Lost,
    /// Too few nodes answered to know.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RenewalEntry {
    Skipped,
    Pending { sent: Moment },
    Kept { until: Moment },
    Gone { free: bool },
    Unanswered,
}

/// One renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tally {
    entries: Vec<RenewalEntry>,
    lease: Duration,
    outcome: RenewalOutcome,
}

impl Tally {
    /// Creates a renewal over `nodes` nodes. None of them has been asked yet. The caller subtracts
    /// the drift of the clocks.
    pub fn new(nodes: usize, lease: Duration) -> Tally {
        let entries = vec![RenewalEntry::Skipped; nodes];
        Tally { entries, lease, outcome: RenewalOutcome::Pending }
    }

    /// Records that a node is asked. `sent` is the clock as read before the request is sent.
    pub fn asked(&mut self, node: usize, sent: Moment) {
        if let Some(entry @ RenewalEntry::Skipped) = self.entries.get_mut(node) {
            *entry = RenewalEntry::Pending { sent };
        }
    }

    /// Records that a node has renewed the lease.
    pub fn kept(&mut self, node: usize) {
        let lease = validity::validity_time(self.lease, 0);
        if let Some(entry) = self.entries.get_mut(node)
            && let RenewalEntry::Pending { sent } = *entry
        {
            *entry = RenewalEntry::Kept { until: sent.after(lease) };
        }
    }

    /// Records that a node does not hold the lease. `free`: nor does any other lease id.
    pub fn gone(&mut self, node: usize, free: bool) {
        if let Some(entry @ RenewalEntry::Pending { .. }) = self.entries.get_mut(node) {
            *entry = RenewalEntry::Gone { free };
        }
    }

    /// Records that a node will not answer in time, or gave no usable answer.
    pub fn unanswered(&mut self, node: usize) {
        if let Some(entry @ RenewalEntry::Pending { .. }) = self.entries.get_mut(node) {
            *entry = RenewalEntry::Unanswered;
        }
    }

    /// Decides, if the answers so far allow it. A decision is final.
    pub fn decide(&mut self, now: Moment) -> RenewalOutcome {
        if self.outcome == RenewalOutcome::Pending {
            self.outcome = self.evaluate(now);
        }
        self.outcome
    }

    /// Returns the nodes whose answer is pending.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        nodes_where(&self.entries, |entry| matches!(entry, RenewalEntry::Pending { .. }))
    }

    /// Returns whether a majority keeps the lease. Only then may it be healed on other nodes.
    pub fn is_good(&self) -> bool {
        matches!(self.outcome, RenewalOutcome::Renewed { .. })
    }

    /// Returns the nodes where the name is free and the lease may be healed. Empty unless the
    /// renewal succeeded.
    pub fn to_heal(&self) -> impl Iterator<Item = usize> {
        let good = self.is_good();
        let free = RenewalEntry::Gone { free: true };
        nodes_where(&self.entries, move |entry| good && *entry == free)
    }

    fn evaluate(&self, now: Moment) -> RenewalOutcome {
        let nodes = self.entries.len();
        let needed = majority(nodes);
        let kept = self.entries.iter().filter_map(|entry| match entry {
            RenewalEntry::Kept { until } if *until > now => Some(*until),
            _ => None,
        });
        if let Some(valid_until) = end_of_majority(kept.clone(), nodes) {
            return RenewalOutcome::Renewed { valid_until };
        }
        let gone =
            self.entries.iter().filter(|entry| matches!(entry, RenewalEntry::Gone { .. })).count();
        let waiting = self.awaited().count();
        let spare = nodes - needed;
        if gone > spare {
            return RenewalOutcome::Lost;
        }
        let may_yet = kept.count() + waiting >= needed || gone + waiting > spare;
        if may_yet { RenewalOutcome::Pending } else { RenewalOutcome::Unknown }
    }
}
