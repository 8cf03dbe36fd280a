//! How an operator gives slots of a set to other servers.
//!
//! The change itself is a change of membership like any other ([`plan`]): the next epoch, agreed by
//! compare-and-set, and a quarantine of the new server. The operator only decides which server gets
//! which slot (M5 of [`holdline_core::quorum::membership`]).

use std::sync::Arc;

use holdline_core::LockError;
use holdline_core::quorum::{
    Configuration, DesiredConfiguration, MemberSlot, MemberState, MembershipPlan, NodeCommand,
    NodeId, NodeReport, SetStatus, majority, plan, replacements,
};
use serde::Serialize;

use super::super::member::Observed;
use super::super::not_voting::NodeState;
use super::super::refused;
use super::status::QuorumStatus;
use super::{Goal, QuorumAdmin};
use crate::in_flight::InFlight;

/// A slot that goes from one server to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Replacement {
    /// The last address of the server that loses its slot.
    pub address: String,
    /// The beginning of its id.
    pub id: String,
    /// Its state; `Down` also if no address of the list leads to it.
    pub state: NodeState,
    /// The address of the server that gets the slot.
    pub by: String,
    #[serde(skip)]
    slot: NodeId,
    #[serde(skip)]
    index: usize,
    /// The run of the server that gets the slot, when the operator was asked.
    #[serde(skip)]
    marker: Arc<str>,
}

impl Replacement {
    /// Returns whether the server has the slot.
    pub(super) fn is_given(&self, configuration: &Configuration, observed: &[Observed]) -> bool {
        let has_new = self.ids(observed).is_some_and(|(_, new)| configuration.has(new));
        has_new && !configuration.has(self.slot)
    }

    /// Returns the id that has the slot, and that of the server that gets it.
    pub(super) fn ids(&self, observed: &[Observed]) -> Option<(NodeId, NodeId)> {
        let current = observed.get(self.index)?.current.as_ref()?;
        Some((self.slot, current.report.id))
    }
}

/// Shows nodes that have lost their slots as an operator's readmission leaves them: new, under
/// other ids.
fn as_if_readmitted(
    reports: &[Option<NodeReport>],
    configuration: &Configuration,
) -> Vec<Option<NodeReport>> {
    let readmitted = |(report, number): (&Option<NodeReport>, u8)| {
        let mut report = report.clone()?;
        if report.state == MemberState::Replaced || report.is_evicted(configuration) {
            report.state = MemberState::Recovering;
            report.id = NodeId::from_bytes([number; 16]);
            report.last_seen_id = None;
        }
        Some(report)
    };
    reports.iter().zip(0..).map(readmitted).collect()
}

impl QuorumAdmin {
    /// Returns which servers would lose their slots to which, and changes nothing. The first of
    /// each pair is a server of the set: an address, as the set or the list has it, or the
    /// beginning of an id. The second is an address of the list.
    ///
    /// # Errors
    /// `Refused`: the replacement is not possible; the message says why. `NotInitialised`,
    /// `NoQuorum`: there is no set, or too few nodes answered.
    pub async fn plan_replace<S: AsRef<str>>(
        &self,
        pairs: &[(S, S)],
    ) -> Result<Vec<Replacement>, LockError> {
        self.set.inspect_all().await;
        let observed = self.set.observed();
        let (reports, planned) = self.set.assess(&observed, self.set.desired());
        let configuration = match &planned.status {
            SetStatus::Agreed(configuration) | SetStatus::Mislisted(configuration) => configuration,
            _ => return Err(self.set.membership(&planned, &observed).err().unwrap_or_else(no_set)),
        };
        let mut all: Vec<Replacement> = Vec::new();
        for (old, new) in pairs {
            let slot = self.slot_of(configuration, &reports, old.as_ref())?;
            let (index, marker) = self.newcomer(configuration, &observed, new.as_ref())?;
            if all.iter().any(|one| one.slot == slot.id || one.index == index) {
                return Err(refused("each server can be named in one pair only".to_owned()));
            }
            all.push(self.replacement(slot, &reports, index, marker));
        }
        self.check_votes(&all)?;
        self.check_agreement(configuration, &reports, &all)?;
        Ok(all)
    }

    /// Gives the slots to the new servers. These vote after a quarantine, as any server does that
    /// has lost its data. The evicted servers do not vote from the agreement on.
    ///
    /// # Errors
    /// As for [`QuorumAdmin::plan_replace`]. After `NoQuorum` some servers may know of the change:
    /// the next client that reaches enough of them completes it, or it has no effect.
    pub async fn replace(&self, all: &[Replacement]) -> Result<QuorumStatus, LockError> {
        self.converge(&Goal { replacements: all, ..Goal::default() }).await
    }

    /// Returns which servers would get slots by [`QuorumAdmin::rejoin`], and from which. Changes
    /// nothing. The servers are found by their addresses: whether these lead to the servers of the
    /// set, only the operator knows.
    ///
    /// # Errors
    /// `Refused`: these servers are not one set. `NoQuorum`: too few nodes answered.
    pub async fn plan_rejoin(&self) -> Result<Vec<Replacement>, LockError> {
        self.set.inspect_all().await;
        let observed = self.set.observed();
        let (reports, planned) = self.set.assess(&observed, self.set.desired());
        let (SetStatus::Agreed(configuration) | SetStatus::Mislisted(configuration)) =
            &planned.status
        else {
            return self.set.membership(&planned, &observed).map(|_| Vec::new());
        };
        let desired = DesiredConfiguration { by_address: true, ..self.set.desired().clone() };
        let readmitted = as_if_readmitted(&reports, configuration);
        let slot = |id: NodeId| configuration.slots().iter().find(move |slot| slot.id == id);
        let node = |id: NodeId| {
            readmitted.iter().position(|report| report.as_ref().is_some_and(|one| one.id == id))
        };
        let given = replacements(&readmitted, &desired).into_iter();
        let replacement = |(old, new)| {
            let index = node(new)?;
            let marker = observed[index].current.as_ref()?.marker.clone();
            Some(self.replacement(slot(old)?, &reports, index, marker))
        };
        Ok(given.filter_map(replacement).collect())
    }

    /// Checks that each slot can still go to its server, and returns the indices of those that must
    /// be readmitted first.
    pub(super) fn check_replacements(
        &self,
        plan: &MembershipPlan,
        observed: &[Observed],
        all: &[Replacement],
    ) -> Result<Vec<usize>, LockError> {
        let (SetStatus::Agreed(configuration) | SetStatus::Mislisted(configuration)) = &plan.status
        else {
            return Ok(Vec::new());
        };
        let mut readmissions = Vec::new();
        for one in all {
            let Some(current) = observed.get(one.index).and_then(|one| one.current.as_ref()) else {
                continue;
            };
            if configuration.has(one.slot) {
                if current.marker != one.marker {
                    return Err(refused(format!(
                        "{} was restarted, or leads to another server, since you were asked: \
                         repeat the command",
                        one.by,
                    )));
                }
                if configuration.has(current.report.id) {
                    let Replacement { address, by, .. } = one;
                    let message = format!("{by} was given another slot than that of {address}");
                    return Err(refused(message));
                }
                if current.report.state == MemberState::Replaced {
                    readmissions.push(one.index);
                }
            } else if !configuration.has(current.report.id) {
                let Replacement { address, by, .. } = one;
                let message = format!("another server than {by} was given the slot of {address}");
                return Err(refused(message));
            }
        }
        Ok(readmissions)
    }

    /// Readmits servers that were replaced.
    pub(super) async fn readmit(&self, indices: &[usize]) -> Result<(), LockError> {
        let mut in_flight = InFlight::with_capacity(indices.len());
        for at in indices {
            let member = &self.set.members[*at];
            let Some(current) = member.observed().current else { continue };
            let command = NodeCommand::Readmit { id: current.report.id, fresh: member.fresh_id() };
            in_flight
                .push(*at, async move { member.send_command(&self.set.context, &command).await });
        }
        while let Some((_, answer)) = in_flight.next().await {
            answer?;
        }
        Ok(())
    }

    fn replacement(
        &self,
        slot: &MemberSlot,
        reports: &[Option<NodeReport>],
        index: usize,
        marker: Arc<str>,
    ) -> Replacement {
        let is_its = |report: &Option<NodeReport>| {
            report.as_ref().is_some_and(|report| report.id == slot.id)
        };
        let states = self.current_status().nodes;
        let at = reports.iter().position(is_its);
        Replacement {
            address: slot.address.clone(),
            id: slot.id.short(),
            state: at.map_or(NodeState::Down, |at| states[at].state),
            by: self.set.members[index].address().to_owned(),
            slot: slot.id,
            index,
            marker,
        }
    }

    /// Finds the slot by an address or the beginning of an id.
    fn slot_of<'c>(
        &self,
        configuration: &'c Configuration,
        reports: &[Option<NodeReport>],
        old: &str,
    ) -> Result<&'c MemberSlot, LockError> {
        let at = self.set.members.iter().position(|member| matches_address(member.address(), old));
        let listed = at.and_then(|at| reports[at].as_ref()).map(|report| report.id);
        let slots = configuration.slots();
        let is_meant = |slot: &&MemberSlot| {
            let has_id = old.len() >= SHORTEST_ID && slot.id.to_string().starts_with(old);
            matches_address(&slot.address, old) || listed == Some(slot.id) || has_id
        };
        let meant: Vec<&MemberSlot> = slots.iter().filter(is_meant).collect();
        let [slot] = meant[..] else {
            let all = slots.iter().map(|slot| format!("{} (id {})", slot.address, slot.id.short()));
            let all = all.collect::<Vec<_>>().join(", ");
            let what = if meant.is_empty() { "no server" } else { "more than one server" };
            return Err(refused(format!("{old} is {what} of the set, which has {all}")));
        };
        Ok(slot)
    }

    /// Finds a server that may get a slot: its index, and its run.
    fn newcomer(
        &self,
        configuration: &Configuration,
        observed: &[Observed],
        new: &str,
    ) -> Result<(usize, Arc<str>), LockError> {
        let index =
            self.set.members.iter().position(|member| matches_address(member.address(), new));
        let Some(index) = index else {
            return Err(refused(format!("{new} is not among the servers that the URL names")));
        };
        let Some(current) = &observed[index].current else {
            let failure = observed[index].failure.as_ref();
            let why = failure.map_or("no answer".to_owned(), |failure| failure.kind().to_string());
            return Err(refused(format!("{new} cannot be used: {why}")));
        };
        if configuration.has(current.report.id) {
            return Err(refused(format!("{new} is a server of the set already")));
        }
        let other = current.report.configuration.as_ref().map(Configuration::set);
        if let Some(other) = other.filter(|other| *other != configuration.set()) {
            let other = other.short();
            let message = format!(
                "{new} belongs to the set {other}, which may need it: name a server that belongs \
                 to no set",
            );
            return Err(refused(message));
        }
        Ok((index, current.marker.clone()))
    }

    /// Rejects the eviction of a server whose vote is needed.
    fn check_votes(&self, all: &[Replacement]) -> Result<(), LockError> {
        let status = self.current_status();
        let evicted = all.iter().filter(|one| one.state == NodeState::Votes).count();
        let left = status.votes.saturating_sub(evicted);
        let needed = status.majority;
        if evicted == 0 || left >= needed {
            return Ok(());
        }
        let message = format!(
            "without them {left} of {} servers vote, and {needed} must: wait until the others vote",
            status.nodes.len(),
        );
        Err(refused(message))
    }

    /// Checks that the nodes which answer can agree on the change.
    fn check_agreement(
        &self,
        configuration: &Configuration,
        reports: &[Option<NodeReport>],
        all: &[Replacement],
    ) -> Result<(), LockError> {
        let reports = as_if_readmitted(reports, configuration);
        let mut desired = self.set.desired().clone();
        for one in all {
            let Some(report) = &reports[one.index] else { continue };
            desired.replace.push((one.slot, report.id));
        }
        let carries_out_all = |command: &NodeCommand| match command {
            NodeCommand::Adopt { configuration, .. } => desired
                .replace
                .iter()
                .all(|(old, new)| !configuration.has(*old) && configuration.has(*new)),
            _ => false,
        };
        if plan(&reports, &desired).steps.iter().any(|(_, command)| carries_out_all(command)) {
            return Ok(());
        }
        let given = replacements(&reports, &desired);
        let is_gone = |slot: &&MemberSlot| {
            let is_seen = reports.iter().flatten().any(|report| report.id == slot.id);
            !is_seen && !given.iter().any(|(old, _)| *old == slot.id)
        };
        let gone = configuration.slots().iter().filter(is_gone);
        let gone = gone.map(|slot| slot.address.as_str()).collect::<Vec<_>>().join(", ");
        let message = format!(
            "too few servers of the set have kept their data to agree on it ({} must), so every \
             slot must be accounted for: bring back, or name with a server that takes its slot: \
             {gone}",
            majority(reports.len()),
        );
        Err(refused(message))
    }
}

/// The shortest accepted beginning of an id.
const SHORTEST_ID: usize = 6;

/// Returns whether an operator's text names this address, which always has a port.
fn matches_address(address: &str, observed: &str) -> bool {
    address == observed || address.strip_suffix(":6379") == Some(observed)
}

fn no_set() -> LockError {
    refused("these servers are no set".to_owned())
}
