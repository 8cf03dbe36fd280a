//! Which nodes of a set vote, and under which configuration, by their last reports.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdline_core::quorum::{
    Configuration, MemberState, MembershipPlan, SetStatus, Stamp, VoteRefusal,
};
use holdline_core::{ErrorKind, LockError};

use super::NodeSet;
use crate::quorum::member::{Member, Observed, same_run};
use crate::quorum::membership::{Eligibility, MembershipView};
use crate::quorum::not_voting::{NotVoting, QuarantineReason, RELIST};
use crate::quorum::outcome::NodeOutcome;
use crate::quorum::replies::EpochProof;
use crate::quorum::{not_applied, refused};

impl NodeSet {
    /// Computes the view of the membership.
    ///
    /// # Errors
    /// The reason why these servers cannot be used as a set.
    pub(in crate::quorum) fn membership(
        &self,
        plan: &MembershipPlan,
        observed: &[Observed],
    ) -> Result<MembershipView, LockError> {
        if let Some((one, other)) = same_run(observed) {
            return Err(self.duplicate(one, other));
        }
        let configuration = self.agreed(plan)?.clone();
        let node = |(at, observed)| self.eligibility(plan, Some(&configuration), at, observed);
        let nodes = observed.iter().enumerate().map(node).collect();
        Ok(MembershipView { configuration, nodes, clock: self.median_clock(observed) })
    }

    fn agreed<'p>(&self, plan: &'p MembershipPlan) -> Result<&'p Configuration, LockError> {
        match &plan.status {
            SetStatus::Agreed(configuration) => Ok(configuration),
            // The list may be right, and another client or an operator may take them in.
            SetStatus::Mislisted(configuration)
                if plan.mislisted.iter().all(|at| self.is_of_a_member(configuration, *at)) =>
            {
                Ok(configuration)
            }
            SetStatus::Uninitialised { silent } if silent.is_empty() => {
                Err(not_applied(ErrorKind::NotInitialised))
            }
            SetStatus::Uninitialised { .. } => Err(self.no_quorum(&[])),
            SetStatus::Foreign { sets } => {
                let describe = |(at, set): (usize, &Option<Stamp>)| {
                    let describe =
                        |set: Stamp| format!("{} (epoch {})", set.set.short(), set.epoch);
                    let set = set.map_or_else(|| "none".to_owned(), describe);
                    format!("{} belongs to {set}", self.members[at].address())
                };
                let nodes: Vec<String> = sets.iter().enumerate().map(describe).collect();
                let nodes = nodes.join(", ");
                let known: BTreeSet<_> =
                    sets.iter().map(|one| one.map(|stamp| stamp.set)).collect();
                let message = if known.len() == 1 {
                    format!(
                        "two operators have changed this set in ways that contradict each other: \
                         {nodes}; name the servers on whose change a majority agrees",
                    )
                } else {
                    format!("these servers are not one set: {nodes}; name the servers of one set")
                };
                Err(refused(message))
            }
            SetStatus::Mislisted(configuration) => {
                let unknown = plan.mislisted.iter().map(|at| self.members[*at].address());
                let message = format!(
                    "this is not the list of the set: {}; without a slot in it: {}; and no \
                     majority of the set has kept its data. {RELIST}",
                    self.both_lists(configuration),
                    unknown.collect::<Vec<_>>().join(", "),
                );
                Err(refused(message))
            }
            SetStatus::WrongSize { nodes } => {
                let listed = self.members.len();
                let message =
                    format!("the set has {nodes} servers, and {listed} are named: name all");
                Err(refused(message))
            }
            SetStatus::Duplicate { places: (one, other) } => Err(self.duplicate(*one, *other)),
        }
    }

    /// Returns whether a node votes, and if not, why. Without a `configuration` none does.
    pub(in crate::quorum) fn eligibility(
        &self,
        plan: &MembershipPlan,
        configuration: Option<&Configuration>,
        at: usize,
        observed: &Observed,
    ) -> Eligibility {
        // A request for a vote goes only to the run of the server that reported this, so a node
        // that is merely late need not be left out.
        let Some(current) = observed.current.as_ref().or(observed.last.as_ref()) else {
            let failure = observed.failure.as_ref().map(|failure| failure.kind().to_string());
            let why = failure.unwrap_or_else(|| "was not asked yet".to_owned());
            return Err(NotVoting::NoAnswer(why));
        };
        let report = &current.report;
        let belongs = report.configuration.as_ref().map(Configuration::stamp);
        if let (Some(other), Some(own)) = (belongs, configuration.map(Configuration::set))
            && other.set != own
        {
            return Err(NotVoting::OtherSet { own, other: other.set });
        }
        if let Some(configuration) = configuration.filter(|_| plan.mislisted.contains(&at)) {
            if self.is_of_a_member(configuration, at) {
                let is_blank = report.state == MemberState::Blank;
                return Err(NotVoting::Unconfirmed { is_blank });
            }
            return Err(NotVoting::NoSlot { lists: self.both_lists(configuration) });
        }
        if configuration.is_some_and(|one| report.is_evicted(one)) {
            return Err(NotVoting::Replaced);
        }
        let stamp = configuration.map(Configuration::stamp);
        let is_member = configuration.is_some_and(|one| one.has(report.id));
        Err(match (report.state, report.quarantine) {
            (MemberState::Voting, _) => match stamp.filter(|_| is_member && belongs == stamp) {
                Some(stamp) => return Ok(Arc::new(EpochProof::new(&current.marker, stamp))),
                None => NotVoting::OtherConfiguration,
            },
            (MemberState::Recovering, Some((_, by_time))) => {
                let is_new = report.configuration.as_ref().is_some_and(Configuration::is_new);
                let why = match by_time {
                    false => QuarantineReason::DataLoss,
                    true if is_new => QuarantineReason::NewSet,
                    true => QuarantineReason::MajorityLoss,
                };
                NotVoting::Quarantined { until: current.waits_until, why }
            }
            (MemberState::Recovering, None) => NotVoting::NotAgreed,
            (MemberState::Blank, _) => NotVoting::Blank { is_set: configuration.is_some() },
            (MemberState::Proposed, _) => NotVoting::Proposed,
            (MemberState::Replaced, _) => NotVoting::Replaced,
        })
    }

    /// Returns the proof for a node that is asked for a vote, or why it is not asked. Wakes the
    /// maintenance task if the node's server was restarted.
    pub(in crate::quorum) fn proof_for<'v>(
        &self,
        node: usize,
        eligibility: &'v Eligibility,
    ) -> Result<&'v Arc<EpochProof>, NodeOutcome> {
        let not_asked = |why: &NotVoting| NodeOutcome::NotAsked(why.describe(self.clock.now()));
        let proof = eligibility.as_ref().map_err(not_asked)?;
        let member = &self.members[node];
        match member.link().healthy_facts() {
            Some(facts) if facts.run_id.as_deref() == Some(proof.marker()) => Ok(proof),
            // The connection leads to another run of the server than the handshake.
            Some(_) => {
                self.wake_maintenance();
                Err(NodeOutcome::Refused(VoteRefusal::Marker))
            }
            None => Err(NodeOutcome::NotAsked(member.failure_text())),
        }
    }

    /// Returns whether a member had this address when it was given its slot.
    fn is_of_a_member(&self, configuration: &Configuration, at: usize) -> bool {
        let address = self.members[at].address();
        configuration.slots().iter().any(|slot| slot.address == address)
    }

    /// Describes the servers of the set, and those of the list.
    pub(in crate::quorum) fn both_lists(&self, configuration: &Configuration) -> String {
        let has: Vec<&str> = configuration.slots().iter().map(|slot| &*slot.address).collect();
        let listed: Vec<&str> = self.members.iter().map(Member::address).collect();
        format!("the set has {}, and listed are {}", has.join(", "), listed.join(", "))
    }

    fn duplicate(&self, one: usize, other: usize) -> LockError {
        let [one, other] = [one, other].map(|at| self.members[at].address());
        refused(format!("{one} and {other} are one server: name each once"))
    }
}
