//! Which nodes of a set vote, and under which configuration, by their last reports.

use std::sync::Arc;

use holdline_core::quorum::{
    Configuration, MemberState, MembershipPlan, SetStatus, Stamp, VoteRefusal, majority,
};
use holdline_core::{Certainty, ErrorKind, LockError, Moment};

use super::ENGINE;
use super::member::{Member, Observed, same_run};
use super::requests::EpochProof;
use super::set::{NodeSet, misconfigured};

/// The membership as this client last saw it.
#[derive(Debug)]
pub(super) struct MembershipView {
    pub(super) configuration: Configuration,
    pub(super) nodes: Vec<Eligibility>,
    /// The nodes' clock, in microseconds, at a moment of ours.
    pub(super) clock: (Moment, u64),
}

/// Whether a node votes.
#[derive(Clone, Debug)]
pub(super) enum Eligibility {
    /// It votes for a request with this proof.
    Votes(Arc<EpochProof>),
    /// It is recovering, until then; `None` while the others have not agreed to it.
    Quarantined(Option<Moment>),
    /// It does not vote, for this reason.
    Excluded(Arc<str>),
}

impl MembershipView {
    /// Returns whether a majority votes.
    pub(super) fn has_majority(&self) -> bool {
        let votes = self.nodes.iter().filter(|node| matches!(node, Eligibility::Votes(_))).count();
        votes >= majority(self.nodes.len())
    }

    /// Returns whether a node votes that did not before.
    pub(super) fn has_new_voter(&self, before: &MembershipView) -> bool {
        let votes = |node: &Eligibility| matches!(node, Eligibility::Votes(_));
        before.nodes.iter().zip(&self.nodes).any(|(before, now)| votes(now) && !votes(before))
    }

    /// Returns the reason why each node is not asked; `None` for the nodes that are.
    pub(super) fn reasons(&self, now: Moment) -> Vec<Option<String>> {
        let reason = |node: &Eligibility| match node {
            Eligibility::Votes(_) => None,
            Eligibility::Quarantined(until) => Some(quarantine_text(*until, now)),
            Eligibility::Excluded(why) => Some(why.to_string()),
        };
        self.nodes.iter().map(reason).collect()
    }

    /// Returns the nodes' clock now, in microseconds.
    pub(super) fn time_us(&self, now: Moment) -> u64 {
        let (at, time_us) = self.clock;
        let since = u64::try_from(at.until(now).as_micros()).unwrap_or(u64::MAX);
        time_us.saturating_add(since)
    }
}

impl NodeSet {
    /// Computes the view of the membership.
    ///
    /// # Errors
    /// The reason why these servers cannot be used as a set.
    pub(super) fn membership(
        &self,
        plan: &MembershipPlan,
        observed: &[Observed],
    ) -> Result<MembershipView, LockError> {
        if let Some((one, other)) = same_run(observed) {
            return Err(self.duplicate(one, other));
        }
        let configuration = self.agreed(plan)?.clone();
        let node = |(at, observed)| self.eligibility(plan, &configuration, at, observed);
        let nodes = observed.iter().enumerate().map(node).collect();
        Ok(MembershipView { configuration, nodes, clock: self.median_clock(observed) })
    }

    fn agreed<'p>(&self, plan: &'p MembershipPlan) -> Result<&'p Configuration, LockError> {
        match &plan.status {
            SetStatus::Agreed(configuration) => Ok(configuration),
            SetStatus::Uninitialised { silent } if silent.is_empty() => {
                let kind = ErrorKind::NotInitialised;
                Err(LockError::new(ENGINE, kind, Certainty::NotApplied))
            }
            SetStatus::Uninitialised { .. } => Err(self.no_quorum(&[])),
            SetStatus::Foreign { sets } => {
                let describe = |(at, set): (usize, &Option<Stamp>)| {
                    let set = set.map_or_else(|| "none".to_owned(), |set| set.set.short());
                    format!("{} belongs to {set}", self.members[at].address())
                };
                let nodes: Vec<String> = sets.iter().enumerate().map(describe).collect();
                let key = self.context.layout.node();
                let message = format!(
                    "these servers are not one set: {}; list the servers of one set, or delete the \
                     key `{}` on a server that is to leave its set: it can join this one then",
                    nodes.join(", "),
                    String::from_utf8_lossy(&key),
                );
                Err(misconfigured(message))
            }
            SetStatus::Mislisted(configuration) => {
                let strangers = plan.mislisted.iter().map(|at| self.members[*at].address());
                let message = format!(
                    "this is not the list of the set: {}; without a slot in it: {}; and no \
                     majority of the set has kept its data. {RELIST}",
                    self.both_lists(configuration),
                    strangers.collect::<Vec<_>>().join(", "),
                );
                Err(misconfigured(message))
            }
            SetStatus::WrongSize { nodes } => {
                let listed = self.members.len();
                let message =
                    format!("the set has {nodes} servers, and {listed} are named: name all");
                Err(misconfigured(message))
            }
            SetStatus::Duplicate { places: (one, other) } => Err(self.duplicate(*one, *other)),
        }
    }

    fn eligibility(
        &self,
        plan: &MembershipPlan,
        configuration: &Configuration,
        at: usize,
        observed: &Observed,
    ) -> Eligibility {
        let excluded = |why: String| Eligibility::Excluded(why.into());
        let stamp = configuration.stamp();
        // A request for a vote goes only to the run of the server that reported this, so a node
        // that is merely late need not be left out.
        let Some(current) = observed.current.as_ref().or(observed.last.as_ref()) else {
            let failure = observed.failure.as_ref().map(|failure| failure.kind().to_string());
            return excluded(failure.unwrap_or_else(|| "was not asked yet".to_owned()));
        };
        let report = &current.report;
        let belongs = report.configuration.as_ref().map(Configuration::stamp);
        if let Some(other) = belongs.filter(|other| other.set != stamp.set) {
            let (own, other) = (stamp.set.short(), other.set.short());
            return excluded(format!("belongs to the set {other}, not to {own}"));
        }
        let mine = belongs == Some(stamp);
        if plan.mislisted.contains(&at) {
            let lists = self.both_lists(configuration);
            return excluded(format!("has no slot in the set: {lists}. {RELIST}"));
        }
        match report.state {
            MemberState::Voting if mine && configuration.has(report.id) => {
                Eligibility::Votes(Arc::new(EpochProof::new(&current.marker, stamp)))
            }
            MemberState::Voting => excluded("has another configuration".to_owned()),
            MemberState::Recovering | MemberState::Blank | MemberState::Proposed => {
                Eligibility::Quarantined(current.waits_until)
            }
            MemberState::Replaced => {
                excluded("was replaced by another server: `quorum rejoin`".to_owned())
            }
        }
    }

    /// Describes the servers of the set, and those of the list.
    pub(super) fn both_lists(&self, configuration: &Configuration) -> String {
        let has: Vec<&str> = configuration.slots().iter().map(|slot| &*slot.address).collect();
        let listed: Vec<&str> = self.members.iter().map(Member::address).collect();
        format!("the set has {}, and listed are {}", has.join(", "), listed.join(", "))
    }

    fn duplicate(&self, one: usize, other: usize) -> LockError {
        let [one, other] = [one, other].map(|at| self.members[at].address());
        misconfigured(format!("{one} and {other} are one server: name each once"))
    }
}

/// What an operator can do about a server that has no slot in the set.
pub(super) const RELIST: &str = "Correct the list; or, if a server of the set is gone for good, \
                                 `holdline quorum replace OLD NEW` gives its slot away";

/// Describes why a node does not vote.
pub(super) fn refusal_text(why: VoteRefusal) -> String {
    match why {
        VoteRefusal::Marker => "was restarted",
        VoteRefusal::State(MemberState::Recovering) => "has lost its data, and is in quarantine",
        VoteRefusal::State(MemberState::Replaced) => "was replaced by another server",
        VoteRefusal::State(_) => "was not initialised",
        VoteRefusal::Configuration => "has another configuration",
    }
    .to_owned()
}

/// Describes how long a node gives no votes.
pub(super) fn quarantine_text(until: Option<Moment>, now: Moment) -> String {
    match until {
        Some(until) => {
            let left = holdline_core::snapshot::coarse(now.until(until));
            format!("has lost its data, and is in quarantine for {left} more")
        }
        None => "has lost its data, and the others have not agreed to it yet".to_owned(),
    }
}
