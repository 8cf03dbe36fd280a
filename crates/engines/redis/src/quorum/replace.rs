//! How an operator gives slots of a set to other servers.
//!
//! The change itself is a change of membership like any other ([`plan`]): the next epoch, agreed by
//! compare-and-set, and a quarantine of the new server. The operator only decides which server gets
//! which slot (M5 of [`holdline_core::quorum::membership`]).

use holdline_core::LockError;
use holdline_core::quorum::{
    Configuration, DesiredConfiguration, MemberSlot, MemberState, NodeCommand, NodeId, NodeReport,
    SetId, SetStatus, majority, plan, replacements,
};
use serde::Serialize;

use super::admin::{LIMIT, QuorumAdmin, only_reports_waits, refused};
use super::member::Observed;
use super::node_status::{NodeState, QuorumStatus};
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
            let index = self.newcomer(configuration, &observed, new.as_ref())?;
            if all.iter().any(|one| one.slot == slot.id || one.index == index) {
                return Err(refused("each server can be named in one pair only".to_owned()));
            }
            all.push(self.replacement(slot, &reports, index));
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
        self.set.handshake_all().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let observed = self.set.observed();
            let id = |one: &Replacement| Some(observed.get(one.index)?.current.as_ref()?.report.id);
            let pairs = all.iter().filter_map(|one| Some((one.slot, id(one)?)));
            let desired =
                DesiredConfiguration { replace: pairs.collect(), ..self.set.desired().clone() };
            let (reports, planned) = self.set.assess(&observed, &desired);
            let (SetStatus::Agreed(configuration) | SetStatus::Mislisted(configuration)) =
                &planned.status
            else {
                return Err(self.set.membership(&planned, &observed).err().unwrap_or_else(no_set));
            };
            let has_it = |one: &Replacement| id(one).is_some_and(|id| configuration.has(id));
            if all.iter().all(has_it) && only_reports_waits(&planned) {
                return Ok(self.current_status());
            }
            let lost = all.iter().find(|one| !configuration.has(one.slot) && !has_it(one));
            if let Some(one) = lost.filter(|one| id(one).is_some()) {
                let (address, by) = (&one.address, &one.by);
                let message = format!("another server than {by} was given the slot of {address}");
                return Err(refused(message));
            }
            if self.set.clock.now() >= end {
                return Err(self.set.no_quorum(&[]));
            }
            let is_out = |at: &usize| {
                reports[*at].as_ref().is_some_and(|report| report.state == MemberState::Replaced)
            };
            let out: Vec<usize> = all.iter().map(|one| one.index).filter(is_out).collect();
            match out.is_empty() {
                true => self.carry_out(&planned).await,
                false => self.readmit(&observed, &out).await?,
            }
            self.set.handshake_all().await;
        }
    }

    /// Returns which servers would lose their slots by [`QuorumAdmin::rejoin`], and changes
    /// nothing.
    pub async fn plan_rejoin(&self) -> Vec<Replacement> {
        self.set.inspect_all().await;
        let observed = self.set.observed();
        let (reports, planned) = self.set.assess(&observed, self.set.desired());
        let (SetStatus::Agreed(configuration) | SetStatus::Mislisted(configuration)) =
            &planned.status
        else {
            return Vec::new();
        };
        let slot = |id: NodeId| configuration.slots().iter().find(move |slot| slot.id == id);
        let rejoins = self.rejoins(&observed).into_iter();
        rejoins.filter_map(|(old, at)| Some(self.replacement(slot(old)?, &reports, at))).collect()
    }

    /// Returns the slots that go back to replaced nodes, once those are readmitted.
    pub(super) fn rejoins(&self, observed: &[Observed]) -> Vec<(NodeId, usize)> {
        let (mut reports, _) = self.set.assess(observed, self.set.desired());
        let out = |report: &Option<NodeReport>| {
            report.as_ref().is_some_and(|report| report.state == MemberState::Replaced)
        };
        let indices: Vec<usize> = (0..reports.len()).filter(|at| out(&reports[*at])).collect();
        reports.iter_mut().flatten().for_each(|report| {
            if report.state == MemberState::Replaced {
                (report.state, report.previous_id) = (MemberState::Recovering, None);
            }
        });
        let at = |id: NodeId| {
            let is = |at: &&usize| reports[**at].as_ref().is_some_and(|report| report.id == id);
            indices.iter().find(is).copied()
        };
        let given = replacements(&reports, self.set.desired()).into_iter();
        given.filter_map(|(old, new)| Some((old, at(new)?))).collect()
    }

    /// Readmits servers that were replaced.
    pub(super) async fn readmit(
        &self,
        observed: &[Observed],
        indices: &[usize],
    ) -> Result<(), LockError> {
        let mut in_flight = InFlight::with_capacity(indices.len());
        for at in indices {
            let Some(current) = &observed[*at].current else { continue };
            let member = &self.set.members[*at];
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
    ) -> Replacement {
        let is_its = |report: &Option<NodeReport>| {
            report.as_ref().is_some_and(|report| report.id == slot.id)
        };
        let states = self.current_status().nodes;
        let at = reports.iter().position(is_its);
        Replacement {
            address: slot.address.clone(),
            id: short(slot.id),
            state: at.map_or(NodeState::Down, |at| states[at].state),
            by: self.set.members[index].address().to_owned(),
            slot: slot.id,
            index,
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
            let all = slots.iter().map(|slot| format!("{} (id {})", slot.address, short(slot.id)));
            let all = all.collect::<Vec<_>>().join(", ");
            let what = if meant.is_empty() { "no server" } else { "more than one server" };
            return Err(refused(format!("{old} is {what} of the set, which has {all}")));
        };
        Ok(slot)
    }

    /// Finds the index of a server that may get a slot.
    fn newcomer(
        &self,
        configuration: &Configuration,
        observed: &[Observed],
        new: &str,
    ) -> Result<usize, LockError> {
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
            let (key, other) = (self.set.context.layout.node(), SetId::short(other));
            let message = format!(
                "{new} belongs to the set {other}: to make it leave that set, delete its key `{}`",
                String::from_utf8_lossy(&key),
            );
            return Err(refused(message));
        }
        Ok(index)
    }

    /// Rejects the eviction of a server whose vote is needed.
    fn check_votes(&self, all: &[Replacement]) -> Result<(), LockError> {
        let status = self.current_status();
        let evicted = all.iter().filter(|one| one.state == NodeState::Votes).count();
        let (left, needed) = (status.votes.saturating_sub(evicted), status.majority);
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
        let (mut reports, mut desired) = (reports.to_vec(), self.set.desired().clone());
        for one in all {
            let Some(report) = reports[one.index].as_mut() else { continue };
            (report.state, report.previous_id) = (MemberState::Recovering, None);
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

fn short(id: NodeId) -> String {
    id.to_string().chars().take(8).collect()
}

/// Returns whether an operator's text names this address, which always has a port.
fn matches_address(address: &str, observed: &str) -> bool {
    address == observed || address.strip_suffix(":6379") == Some(observed)
}

fn no_set() -> LockError {
    refused("these servers are no set".to_owned())
}
