//! The steps that make all nodes of a set agree on its membership.
//!
//! A pure function of the nodes' reports, evaluated again after each step. Any client may carry the
//! steps out. Several may do so at once, and any of them may die between two steps. A node rejects
//! a step that comes too late ([`super::node`], N2).
//!
//! - M1: a set is initialised only when all its nodes have accepted the same configuration. So two
//!   clients with different lists of nodes never initialise two sets that share a node.
//! - M2: a change needs a majority of the *members* of the newest configuration that is seen, and
//!   these must have kept their data. Without such a majority, each slot of that configuration must
//!   have a node that answers, or be given to a new node that answers. So no agreed change is lost.
//!   Nodes that are no members of the configuration do not count.
//! - M3: the quarantine of a recovering node begins only once a majority that has kept its data has
//!   accepted the configuration with the node's new id. From then on no majority can be won with
//!   grants under the old id. So after the longest lease none of them is left. Clients measure the
//!   quarantine ([`super::node`], N5).
//! - M4: its floor is the largest token of a majority that has kept its data and has that
//!   configuration: one of them knows every token that was proven with the old id.
//! - M5: a new node gets a slot automatically in three cases. It had the slot's id before it lost
//!   its data, it answers at the slot's address, or it answers where this client saw the slot's id
//!   before. Any other new node gets one only by an operator's command, because the list of the
//!   client may be wrong.
//! - M6: where a majority of the members of one set has kept its data, a node of another set counts
//!   as one that does not answer. Without such a majority it is not known which set is meant.
//!
//! Why M4: two majorities share a node. A token that was proven with the old id has evidence from a
//! majority, so one node of that majority is asked for the floor. There the evidence came before
//! the node accepted the new configuration, since under the new one the old id does not count. The
//! argument needs no clock. Where no majority has kept its data, only the clocks are left.
//!
//! Read next: `initialise` for a new set, `recovery` for a set in use, `slots` for M5.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::quorum::configuration::{Configuration, NodeId, SetId, Stamp};
use crate::quorum::majority;
use crate::quorum::node::{MemberState, NodeCommand, NodeReport};

mod initialise;
mod recovery;
mod slots;

use slots::SlotChange;

/// The configuration that a client wants the nodes to agree on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DesiredConfiguration {
    /// The addresses of the nodes, in the order of the reports.
    pub addresses: Vec<String>,
    /// The longest lease of a set that is initialised now.
    pub max_lease: Duration,
    /// An operator has confirmed that no locks are held on these nodes.
    pub vouched: bool,
    /// How much too fast the clock of a measuring client may run, in parts per million.
    pub drift_ppm: u32,
    /// An operator's command: the slot of the first id goes to the node with the second id.
    pub replace: Vec<(NodeId, NodeId)>,
}

/// The state of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetStatus {
    /// The nodes agree on this configuration. The set is usable if enough of them vote.
    Agreed(Configuration),
    /// There is no set yet; the `silent` nodes must answer before there can be one.
    Uninitialised {
        /// The indices of nodes that did not answer.
        silent: Vec<usize>,
    },
    /// The nodes belong to different sets, or to one that has most of its nodes elsewhere.
    Foreign {
        /// For each index, the configuration of that node.
        sets: Vec<Option<Stamp>>,
    },
    /// All nodes answer, no majority of the set's members has kept its data, and some nodes have no
    /// slot ([`MembershipPlan::mislisted`]): the list names other servers than those of the set.
    Mislisted(Configuration),
    /// The set has another number of nodes than the list, so its majority has another size.
    WrongSize {
        /// The number of nodes in the set.
        nodes: usize,
    },
    /// Two addresses lead to the same node.
    Duplicate {
        /// Their indices.
        places: (usize, usize),
    },
}

/// The next steps, and the state of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipPlan {
    /// The state of the set.
    pub status: SetStatus,
    /// The commands to send, each with the index of its node. In any order.
    pub steps: Vec<(usize, NodeCommand)>,
    /// The indices of nodes that need a slot and get none (M5).
    pub mislisted: Vec<usize>,
}

impl MembershipPlan {
    /// Makes a plan without steps.
    fn none(status: SetStatus) -> MembershipPlan {
        MembershipPlan { status, steps: Vec::new(), mislisted: Vec::new() }
    }
}

/// Returns the next steps for these reports; a node that did not answer has `None`.
pub fn plan(reports: &[Option<NodeReport>], desired: &DesiredConfiguration) -> MembershipPlan {
    Planner { reports, desired }.plan()
}

/// Returns the slots that go to new nodes once a majority can agree: the old id and the new of
/// each.
pub fn replacements(
    reports: &[Option<NodeReport>],
    desired: &DesiredConfiguration,
) -> Vec<(NodeId, NodeId)> {
    let Some(reports) = (Planner { reports, desired }).reports_of_one_set() else {
        return Vec::new();
    };
    let planner = Planner { reports: &reports, desired };
    let Some(current) = Configuration::merged(planner.newest()) else { return Vec::new() };
    let (changes, _) = planner.slot_changes(&current);
    changes.into_iter().map(|(old, new, _)| (old, new)).collect()
}

/// Returns the indices of the nodes that vote sooner if an operator vouches: it ends their
/// quarantine, or they get none. No other node votes sooner by it.
pub fn vouched(reports: &[Option<NodeReport>], desired: &DesiredConfiguration) -> Vec<usize> {
    let Some(reports) = (Planner { reports, desired }).reports_of_one_set() else {
        return Vec::new();
    };
    Planner { reports: &reports, desired }.nodes_helped_by_vouching()
}

struct Planner<'a> {
    reports: &'a [Option<NodeReport>],
    desired: &'a DesiredConfiguration,
}

impl Planner<'_> {
    fn plan(&self) -> MembershipPlan {
        if let Some(places) = self.duplicate() {
            return MembershipPlan::none(SetStatus::Duplicate { places });
        }
        let Some(reports) = self.reports_of_one_set() else {
            return MembershipPlan::none(SetStatus::Foreign { sets: self.sets() });
        };
        let planner = Planner { reports: &reports, desired: self.desired };
        match planner.is_initialised() {
            true => planner.maintain(),
            false if planner.has_rival_proposal() => {
                MembershipPlan::none(SetStatus::Foreign { sets: planner.sets() })
            }
            false => planner.initialise(),
        }
    }

    /// Returns the configuration of the node at each index.
    fn sets(&self) -> Vec<Option<Stamp>> {
        self.reports.iter().map(|report| report.as_ref().and_then(stamp_of)).collect()
    }

    fn seen(&self) -> impl Iterator<Item = (usize, &NodeReport)> {
        self.reports.iter().enumerate().filter_map(|(at, report)| Some((at, report.as_ref()?)))
    }

    fn all_answer(&self) -> bool {
        self.reports.iter().all(Option::is_some)
    }

    fn duplicate(&self) -> Option<(usize, usize)> {
        let mut seen = self.seen();
        seen.find_map(|(at, report)| {
            let other = self.seen().find(|(other, same)| *other > at && same.id == report.id);
            other.map(|(other, _)| (at, other))
        })
    }

    /// Returns whether the set was initialised: at least one node is past its first proposal.
    fn is_initialised(&self) -> bool {
        let is_initialised = |state| !matches!(state, MemberState::Blank | MemberState::Proposed);
        self.seen().any(|(_, report)| is_initialised(report.state))
    }

    /// Returns the reports of the one set that is meant; `None` if that is not known (M6).
    fn reports_of_one_set(&self) -> Option<Vec<Option<NodeReport>>> {
        let sets: BTreeSet<SetId> = self.sets().into_iter().flatten().map(|one| one.set).collect();
        match sets.len() {
            0 | 1 => Some(self.reports.to_vec()),
            _ => sets.into_iter().find_map(|set| self.without_others(set)),
        }
    }

    /// Returns the reports of one set, as if the nodes of others did not answer; `None` unless a
    /// majority of its members has kept its data (M6).
    fn without_others(&self, set: SetId) -> Option<Vec<Option<NodeReport>>> {
        let own = |report: &NodeReport| stamp_of(report).is_none_or(|stamp| stamp.set == set);
        let reports: Vec<_> =
            self.reports.iter().map(|report| report.clone().filter(own)).collect();
        let planner = Planner { reports: &reports, desired: self.desired };
        let current = Configuration::merged(planner.newest())?;
        let agrees = current.slots().len() == reports.len()
            && planner.is_initialised()
            && planner.majority_has_data(&current);
        agrees.then_some(reports)
    }

    /// Returns the configurations of the last epoch that is seen, each once.
    fn newest(&self) -> Vec<Configuration> {
        let configured = || self.seen().filter_map(|(_, report)| report.configuration.as_ref());
        let epoch = configured().map(Configuration::epoch).max().unwrap_or(0);
        let mut newest: Vec<Configuration> =
            configured().filter(|one| one.epoch() == epoch).cloned().collect();
        newest.sort_unstable_by_key(Configuration::stamp);
        newest.dedup_by_key(|one| one.stamp());
        newest
    }

    fn has_data(report: &NodeReport) -> bool {
        matches!(report.state, MemberState::Voting | MemberState::Proposed)
    }

    /// Returns whether a majority of the members of a configuration has kept its data (M2).
    fn majority_has_data(&self, current: &Configuration) -> bool {
        let members = self.seen().filter(|(_, report)| current.has(report.id));
        let with_data = members.filter(|(_, report)| Planner::has_data(report)).count();
        with_data >= majority(current.slots().len())
    }

    /// Returns whether the node of each slot is seen, or a seen node gets the slot.
    fn every_slot_is_known(&self, current: &Configuration, changes: &[SlotChange]) -> bool {
        current.slots().iter().all(|slot| {
            self.seen().any(|(_, report)| report.id == slot.id)
                || changes.iter().any(|(old, ..)| *old == slot.id)
        })
    }

    /// Returns whether these reports cannot miss a change that was agreed to (M2).
    fn may_change(&self, current: &Configuration, changes: &[SlotChange]) -> bool {
        self.majority_has_data(current) || self.every_slot_is_known(current, changes)
    }

    /// Stretches a duration so that it is long enough even if the measuring client's clock runs
    /// fast.
    fn with_drift(&self, duration: Duration) -> Duration {
        duration + duration.mul_f64(f64::from(self.desired.drift_ppm) / 1e6)
    }
}

fn stamp_of(report: &NodeReport) -> Option<Stamp> {
    report.configuration.as_ref().map(Configuration::stamp)
}
