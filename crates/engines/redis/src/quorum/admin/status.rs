//! The state of a set and of its nodes, for operators.

use holdline_core::moment::whole_millis;
use holdline_core::quorum::{Configuration, NodeReport, SetStatus, majority};
use serde::Serialize;

use super::super::member::Observed;
use super::super::not_voting::{NodeState, NotVoting};
use super::QuorumAdmin;

/// The state of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuorumStatus {
    /// The beginning of its id; `None` before it was initialised.
    pub set: Option<String>,
    /// The epoch of its configuration.
    pub epoch: Option<u64>,
    /// The longest lease, in milliseconds.
    pub max_lease_ms: Option<u64>,
    /// How many nodes must agree.
    pub majority: usize,
    /// How many nodes vote now.
    pub votes: usize,
    /// How many more nodes may fail before no lock can be acquired.
    pub may_lose: usize,
    /// Why the set cannot be used; `None` if it can, as far as enough nodes vote.
    pub problem: Option<String>,
    /// How to resolve it.
    pub fix: Option<String>,
    /// The nodes, in the order of the list.
    pub nodes: Vec<NodeStatus>,
}

/// The state of a node, with details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its address.
    pub address: String,
    /// Its state.
    pub state: NodeState,
    /// The beginning of its id.
    pub id: Option<String>,
    /// The beginning of its marker, which identifies the run of its server.
    pub marker: Option<String>,
    /// The uptime of this run, in milliseconds.
    pub up_for_ms: Option<u64>,
    /// The epoch of its configuration.
    pub epoch: Option<u64>,
    /// The round trip of its last answer, in microseconds.
    pub round_trip_us: Option<u64>,
    /// How far its clock is ahead of the median, in microseconds.
    pub clock_offset_us: Option<i64>,
    /// The rest of its quarantine, in milliseconds, while a client runs that measures it.
    pub quarantine_left_ms: Option<u64>,
    /// The largest fencing token that it knows of.
    pub largest_token: Option<u64>,
    /// Why it does not answer or vote.
    pub problem: Option<String>,
    /// How to resolve it.
    pub fix: Option<String>,
}

impl QuorumStatus {
    /// Returns whether locks can be acquired: enough nodes vote, and the set has no problem.
    pub fn works(&self) -> bool {
        self.problem.is_none() && self.votes >= self.majority
    }

    /// Returns one sentence about the votes, and how many servers more may fail.
    pub fn summary(&self) -> String {
        let QuorumStatus { votes, majority, may_lose, nodes, .. } = self;
        let outlook = match (self.works(), may_lose) {
            (true, 0) => "no more servers may fail".to_owned(),
            (true, more) => format!("{more} more may fail"),
            (false, _) => "no lock can be acquired".to_owned(),
        };
        format!("{votes} of {} vote, {majority} must agree: {outlook}", nodes.len())
    }
}

impl QuorumAdmin {
    pub(super) fn current_status(&self) -> QuorumStatus {
        let observed = self.set.observed();
        let (reports, plan) = self.set.assess(&observed, self.set.desired());
        let configuration = match &plan.status {
            SetStatus::Agreed(one) | SetStatus::Mislisted(one) => Some(one),
            _ => None,
        };
        let error = self.set.membership(&plan, &observed).err();
        let problem = error.map(|error| error.kind().to_string());
        let nodes: Vec<NodeStatus> = observed
            .iter()
            .zip(&reports)
            .enumerate()
            .map(|(at, (observed, report))| {
                let why = self.set.eligibility(&plan, configuration, at, observed).err();
                let silent = observed.current.is_none().then(|| no_answer(observed));
                let listed = report.as_ref().and_then(|report| wrong_list(&plan.status, report));
                let why = silent.or(listed).or(why);
                self.node_status(at, observed, report.as_ref(), why.as_ref())
            })
            .collect();
        let needed = majority(nodes.len());
        let votes = nodes.iter().filter(|node| node.state == NodeState::Votes).count();
        let votes = if problem.is_some() { 0 } else { votes };
        let silent = nodes.iter().filter(|node| node.state == NodeState::Down).count();
        let fix = problem.as_ref().map(|_| fix_of(&plan.status, silent).to_owned());
        QuorumStatus {
            set: configuration.map(|one| one.set().short()),
            epoch: configuration.map(Configuration::epoch),
            max_lease_ms: configuration.map(|one| whole_millis(one.max_lease())),
            majority: needed,
            votes,
            may_lose: votes.saturating_sub(needed),
            problem,
            fix,
            nodes,
        }
    }

    fn node_status(
        &self,
        at: usize,
        observed: &Observed,
        report: Option<&NodeReport>,
        why: Option<&NotVoting>,
    ) -> NodeStatus {
        let (now, median) = self.set.median_clock(&self.set.observed());
        let current = observed.current.as_ref();
        NodeStatus {
            address: self.set.members[at].address().to_owned(),
            state: why.map_or(NodeState::Votes, NotVoting::state),
            id: report.map(|report| report.id.short()),
            marker: current.map(|current| current.marker.chars().take(8).collect()),
            up_for_ms: current.and_then(|current| current.up).map(whole_millis),
            epoch: report.and_then(|report| Some(report.configuration.as_ref()?.epoch())),
            round_trip_us: current
                .and_then(|current| u64::try_from(current.round_trip.as_micros()).ok()),
            clock_offset_us: current.and_then(|current| current.clock_offset_us(now, median)),
            quarantine_left_ms: report.and_then(NodeReport::quarantine_left).map(whole_millis),
            largest_token: report.map(|report| report.largest).filter(|largest| *largest > 0),
            problem: why.map(NotVoting::problem),
            fix: why.and_then(NotVoting::fix).map(str::to_owned),
        }
    }
}

fn no_answer(observed: &Observed) -> NotVoting {
    let failure = observed.failure.as_ref().map(|failure| failure.kind().to_string());
    NotVoting::NoAnswer(failure.unwrap_or_else(|| "no answer".to_owned()))
}

/// Returns the problem of a server that is listed among those of another set: only a correct list
/// helps.
fn wrong_list(status: &SetStatus, report: &NodeReport) -> Option<NotVoting> {
    let is_wrong = matches!(
        status,
        SetStatus::Foreign { .. } | SetStatus::WrongSize { .. } | SetStatus::Duplicate { .. }
    );
    if !is_wrong {
        return None;
    }
    let belongs = match &report.configuration {
        Some(mine) => {
            let set = mine.set().short();
            let servers = mine.slots().len();
            format!("belongs to the set {set}, epoch {}, of {servers} servers", mine.epoch())
        }
        None => "belongs to no set".to_owned(),
    };
    Some(NotVoting::WrongList { belongs, fix: fix_of(status, 0) })
}

/// Returns how to resolve the problem of a set, of which so many servers are silent.
fn fix_of(status: &SetStatus, silent: usize) -> &'static str {
    match status {
        SetStatus::Uninitialised { .. } if silent > 0 => {
            "all servers must answer before they can become a set: start those that do not"
        }
        SetStatus::Uninitialised { .. } => "`holdline quorum init` makes them one",
        SetStatus::Foreign { .. } => "name the servers of one set",
        SetStatus::Mislisted(_) => {
            "see each server: `holdline quorum rejoin` takes in those that have lost their data, \
             and `holdline quorum replace OLD NEW` gives a slot to another server"
        }
        SetStatus::WrongSize { .. } => "name every server of the set, and no other",
        SetStatus::Duplicate { .. } | SetStatus::Agreed(_) => {
            "name each server once, by one address"
        }
    }
}
