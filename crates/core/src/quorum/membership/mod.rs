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
//!   configuration: one of them knows every token that was proven with the old id. The node
//!   receives it with the beginning of its quarantine. Where no majority has kept its data, every
//!   node of the set answers then, and the floor is above what each of them knows.
//! - M5: a new node gets a slot without an operator in two cases only. This client saw the id of
//!   the slot by the same name before. Or the node knows that id from before it lost its data, and
//!   has the address of the slot. (The id alone is no proof: a backup of a member knows it too.) In
//!   all other cases the names of this client may lead to other servers than those of the set, so
//!   that a member would lose its slot to a stranger.
//! - M6: where a majority of the members of one set has kept its data, a node of another set counts
//!   as one that does not answer. Without such a majority it is not known which set is meant.
//! - M7: the quarantine becomes that of the set's own longest lease only when a majority votes
//!   ([`super::configuration`], G3).
//!
//! Why M4: two majorities share a node. A token that was proven with the old id has evidence from a
//! majority, so one node of that majority is asked for the floor. There the evidence came before
//! the node accepted the new configuration, since under the new one the old id does not count. The
//! argument needs no clock. Where no majority has kept its data, only the clocks are left.
//!
//! Why M7: all servers had answered without data before the first of them was activated. So no
//! lease of an earlier set is younger than that, and each node waits for the longest lease before
//! it votes.
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
    /// The nodes whose quarantine an operator ends: the id that each had when the operator was
    /// asked. A node that has lost its data since has another one.
    pub vouched: Vec<NodeId>,
    /// An operator has confirmed that the addresses lead to the servers of the set. A new node then
    /// gets the slot of its address (M5).
    pub by_address: bool,
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

/// Returns the indices of the nodes whose quarantine an operator may end by vouching for them:
/// those that are in quarantine only because no majority has kept its data. (A node whose
/// quarantine has not begun is no such node: until then another majority may grant locks.)
pub fn vouchable(reports: &[Option<NodeReport>], desired: &DesiredConfiguration) -> Vec<usize> {
    let SetStatus::Agreed(current) = plan(reports, desired).status else { return Vec::new() };
    let may_be = |report: &NodeReport| {
        current.has(report.id) && report.quarantine.is_some_and(|(_, by_time)| by_time)
    };
    let planner = Planner { reports, desired };
    planner.seen().filter(|(_, report)| may_be(report)).map(|(at, _)| at).collect()
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

    /// Returns the configurations that the nodes have.
    fn configurations(&self) -> impl Iterator<Item = &Configuration> {
        self.seen().filter_map(|(_, report)| report.configuration.as_ref())
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
        let epoch = self.configurations().map(Configuration::epoch).max();
        let newest = self.configurations().filter(|one| Some(one.epoch()) == epoch);
        let mut newest: Vec<Configuration> = newest.cloned().collect();
        newest.sort_unstable_by_key(Configuration::stamp);
        newest.dedup_by_key(|one| one.stamp());
        newest
    }

    fn has_data(report: &NodeReport) -> bool {
        matches!(report.state, MemberState::Voting | MemberState::Proposed)
    }

    /// Returns whether a majority of the members of a configuration has kept its data (M2).
    fn majority_has_data(&self, current: &Configuration) -> bool {
        self.is_majority(current, Planner::has_data)
    }

    /// Returns whether a majority of the members of a configuration fulfils a condition.
    fn is_majority(
        &self,
        current: &Configuration,
        condition: impl Fn(&NodeReport) -> bool,
    ) -> bool {
        let members = self.seen().filter(|(_, report)| current.has(report.id));
        let count = members.filter(|(_, report)| condition(report)).count();
        count >= majority(current.slots().len())
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
}

fn stamp_of(report: &NodeReport) -> Option<Stamp> {
    report.configuration.as_ref().map(Configuration::stamp)
}
