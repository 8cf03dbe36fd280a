//! How nodes that belong to no set become one: all accept the same proposal, then all are activated
//! (M1).

use super::{MembershipPlan, Planner, SetStatus, stamp_of};
use crate::quorum::configuration::{Configuration, MemberSlot, NodeId};
use crate::quorum::node::{MemberState, NodeCommand, NodeReport};

impl Planner<'_> {
    /// Returns whether another client may initialise a set of other nodes: a proposal has members
    /// that are not seen here, and it is not certain that they have lost their data (M5). A node
    /// that does not answer may be one of them.
    pub(super) fn has_rival_proposal(&self) -> bool {
        let known = |slot: &MemberSlot| {
            let is_it =
                |report: &NodeReport| report.id == slot.id || report.last_seen_id == Some(slot.id);
            let has_its_address = self.desired.addresses.contains(&slot.address);
            self.seen().any(|(_, report)| is_it(report))
                || (self.desired.by_address && has_its_address)
        };
        let silent = self.reports.iter().filter(|report| report.is_none()).count();
        let is_rival = |one: &Configuration| {
            let unknown = one.slots().iter().filter(|slot| !known(slot)).count();
            one.slots().len() != self.reports.len() || unknown > silent
        };
        self.configurations().any(is_rival)
    }

    pub(super) fn initialise(&self) -> MembershipPlan {
        let silent = self.reports.iter().enumerate().filter(|(_, report)| report.is_none());
        let silent: Vec<usize> = silent.map(|(at, _)| at).collect();
        let steps = if silent.is_empty() { self.propose() } else { Vec::new() };
        MembershipPlan { steps, ..MembershipPlan::none(SetStatus::Uninitialised { silent }) }
    }

    fn propose(&self) -> Vec<(usize, NodeCommand)> {
        let address = |at: usize| self.desired.addresses.get(at).map_or("", String::as_str);
        let nodes: Vec<(NodeId, &str)> =
            self.seen().map(|(at, report)| (report.id, address(at))).collect();
        let proposed: Vec<&Configuration> = self.configurations().collect();
        let fits = |one: &Configuration| {
            let is_same = |other: &&Configuration| other.stamp() == one.stamp();
            proposed.iter().all(is_same) && nodes.iter().all(|(id, _)| one.has(*id))
        };
        let wanted = match proposed.first() {
            None => Configuration::initial(&nodes, self.desired.max_lease),
            Some(one) if fits(one) => (*one).clone(),
            // Proposals that cannot be agreed on: a node lost its own, or two clients want
            // different leases. No client can have seen all nodes accept one, so a later one may
            // replace them.
            Some(one) => {
                let epoch = proposed.iter().map(|one| one.epoch()).max().unwrap_or(0);
                let max_lease = proposed.iter().map(|one| one.max_lease()).max();
                let max_lease = max_lease.unwrap_or(self.desired.max_lease);
                Configuration::initial(&nodes, max_lease).after(one.set(), epoch)
            }
        };
        let stamp = wanted.stamp();
        let without_it = self.seen().filter(|(_, report)| stamp_of(report) != Some(stamp));
        let propose = |report: &NodeReport| NodeCommand::Propose {
            from: stamp_of(report),
            configuration: wanted.clone(),
        };
        let steps: Vec<(usize, NodeCommand)> =
            without_it.map(|(at, report)| (at, propose(report))).collect();
        if steps.is_empty() { self.activate(&wanted) } else { steps }
    }

    /// Activates nodes whose proposal all others have accepted.
    pub(super) fn activate(&self, accepted: &Configuration) -> Vec<(usize, NodeCommand)> {
        let stamp = accepted.stamp();
        let quarantine = accepted.quarantine();
        let proposed = self.seen().filter(|(_, report)| {
            report.state == MemberState::Proposed && stamp_of(report) == Some(stamp)
        });
        proposed.map(|(at, _)| (at, NodeCommand::Activate { stamp, quarantine })).collect()
    }
}
