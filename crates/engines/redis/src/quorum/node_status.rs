//! The state of a set and of its nodes, for operators.

use std::fmt;
use std::time::Duration;

use holdline_core::quorum::{Configuration, MemberState, NodeReport, SetId, SetStatus, majority};
use serde::Serialize;

use super::admin::QuorumAdmin;
use super::member::Observed;
use super::membership::RELIST;

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
    /// Whether its settings keep every acknowledged write across restarts (`appendfsync always`).
    /// Its quarantine after a restart does not depend on it.
    pub durable: Option<bool>,
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

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It votes.
    Votes,
    /// It lost its data, or belongs to a set that was just initialised, and is in quarantine.
    Quarantined,
    /// It lost its data, and the others have not agreed to it yet.
    Forgot,
    /// Its slot was given to another server.
    Replaced,
    /// It belongs to no set.
    Blank,
    /// It has another configuration than the others.
    Behind,
    /// The listed servers, or most of them, are not the set that it belongs to.
    Mislisted,
    /// It does not answer, or cannot be used.
    Down,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeState::Votes => "votes",
            NodeState::Quarantined => "quarantined",
            NodeState::Forgot => "forgot",
            NodeState::Replaced => "replaced",
            NodeState::Blank => "blank",
            NodeState::Behind => "behind",
            NodeState::Mislisted => "mislisted",
            NodeState::Down => "down",
        })
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
        let lists = configuration.map(|one| self.set.both_lists(one)).unwrap_or_default();
        let problem = match self.set.membership(&plan, &observed) {
            Ok(_) => None,
            Err(_) if matches!(plan.status, SetStatus::Mislisted(_)) => {
                Some(format!("this is not the list of the set: {lists}"))
            }
            Err(error) => Some(error.kind().to_string()),
        };
        let (now, median) = self.set.median_clock(&observed);
        let mut nodes: Vec<NodeStatus> = observed
            .iter()
            .zip(&reports)
            .enumerate()
            .map(|(at, (observed, report))| {
                let address = self.set.members[at].address().to_owned();
                let mut node = node_status(address, observed, report.as_ref(), configuration);
                if let Some(current) = &observed.current {
                    let theirs = i128::from(current.time_us_at(now)) - i128::from(median);
                    node.clock_offset_us = i64::try_from(theirs).ok();
                }
                if plan.mislisted.contains(&at) {
                    node.state = NodeState::Mislisted;
                    node.problem = Some(format!("has no slot in the set: {lists}"));
                    node.fix = Some(RELIST.to_owned());
                }
                node
            })
            .collect();
        let needed = majority(nodes.len());
        let votes = nodes.iter().filter(|node| node.state == NodeState::Votes).count();
        let votes = if problem.is_some() { 0 } else { votes };
        let silent = nodes.iter().filter(|node| node.state == NodeState::Down).count();
        let fix = what_to_do(&plan.status, silent, problem.is_some());
        let status = &plan.status;
        let each = matches!(status, SetStatus::Uninitialised { .. } | SetStatus::Mislisted(_));
        if problem.is_some() && !each {
            nodes
                .iter_mut()
                .zip(&reports)
                .for_each(|(node, report)| mark_mislisted(node, report, &fix));
        }
        QuorumStatus {
            set: configuration.map(|one| SetId::short(one.set())),
            epoch: configuration.map(Configuration::epoch),
            max_lease_ms: configuration.map(|one| millis(one.max_lease())),
            majority: needed,
            votes,
            may_lose: votes.saturating_sub(needed),
            problem,
            fix,
            nodes,
        }
    }
}

/// Returns how to resolve the problem of a set.
fn what_to_do(status: &SetStatus, silent: usize, has_problem: bool) -> Option<String> {
    let fix = match status {
        _ if !has_problem => return None,
        SetStatus::Uninitialised { .. } if silent > 0 => {
            "all servers must answer before they can become a set: start those that do not"
        }
        SetStatus::Uninitialised { .. } => "`holdline quorum init` makes them one",
        SetStatus::Foreign { .. } => {
            "name the servers of one set; on one that is to leave its set, delete the key \
             `holdline:node:1` (with `prefix`, if you set one)"
        }
        SetStatus::Mislisted(_) => RELIST,
        SetStatus::WrongSize { .. } => "name every server of the set, and no other",
        SetStatus::Duplicate { .. } | SetStatus::Agreed(_) => {
            "name each server once, by one address"
        }
    };
    Some(fix.to_owned())
}

/// Marks a server that is listed among those of another set: only a correct list helps.
fn mark_mislisted(node: &mut NodeStatus, report: &Option<NodeReport>, fix: &Option<String>) {
    let Some(report) = report else { return };
    let belongs = match &report.configuration {
        Some(mine) => {
            let (set, epoch) = (SetId::short(mine.set()), mine.epoch());
            format!("belongs to the set {set}, epoch {epoch}, of {} servers", mine.slots().len())
        }
        None => "belongs to no set".to_owned(),
    };
    (node.state, node.problem) = (NodeState::Mislisted, Some(belongs));
    node.fix.clone_from(fix);
}

fn node_status(
    address: String,
    observed: &Observed,
    report: Option<&NodeReport>,
    configuration: Option<&Configuration>,
) -> NodeStatus {
    let (Some(current), Some(report)) = (&observed.current, report) else {
        let why = observed.failure.as_ref().map(|failure| failure.kind().to_string());
        return NodeStatus {
            address,
            state: NodeState::Down,
            id: None,
            marker: None,
            up_for_ms: None,
            durable: None,
            epoch: None,
            round_trip_us: None,
            clock_offset_us: None,
            quarantine_left_ms: None,
            largest_token: None,
            problem: Some(why.unwrap_or_else(|| "no answer".to_owned())),
            fix: None,
        };
    };
    let mine = report.configuration.as_ref();
    let same = mine.map(Configuration::stamp) == configuration.map(Configuration::stamp);
    let foreign = mine.zip(configuration).is_some_and(|(mine, own)| mine.set() != own.set());
    let (state, problem, fix) = match foreign {
        true => (NodeState::Mislisted, Some("belongs to another set than the others"), Some(EMPTY)),
        false => state_of(report, same, configuration.is_some()),
    };
    let short = |text: String| text.chars().take(8).collect::<String>();
    NodeStatus {
        address,
        state,
        id: Some(short(report.id.to_string())),
        marker: Some(short(current.marker.to_string())),
        up_for_ms: current.up.map(millis),
        durable: Some(current.durable),
        epoch: mine.map(Configuration::epoch),
        round_trip_us: u64::try_from(current.round_trip.as_micros()).ok(),
        clock_offset_us: None,
        quarantine_left_ms: report
            .quarantine
            .map(|(left, _)| millis(left.saturating_sub(report.measured))),
        largest_token: Some(report.largest).filter(|largest| *largest > 0),
        problem: problem.map(str::to_owned),
        fix: fix.map(str::to_owned),
    }
}

/// Returns the state of a node, why it does not vote, and how to resolve that. `same`: it has the
/// configuration of the others.
fn state_of(
    report: &NodeReport,
    same: bool,
    is_initialised: bool,
) -> (NodeState, Option<&'static str>, Option<&'static str>) {
    let by_time = report.quarantine.is_some_and(|(_, by_time)| by_time);
    match report.state {
        MemberState::Voting if same => (NodeState::Votes, None, None),
        MemberState::Voting => {
            let problem = "has another configuration than the others";
            (NodeState::Behind, Some(problem), Some(BY_ITSELF))
        }
        MemberState::Recovering if by_time => {
            let problem =
                "gives no vote until its quarantine is over, since no majority has kept its data";
            (NodeState::Quarantined, Some(problem), Some(VOUCH))
        }
        MemberState::Recovering if report.quarantine.is_some() => {
            let problem = "has lost its data, and gives no vote until its quarantine is over";
            (NodeState::Quarantined, Some(problem), Some(BY_ITSELF))
        }
        MemberState::Recovering => {
            let problem = "has lost its data; the others have not agreed to it yet";
            (NodeState::Forgot, Some(problem), Some(BY_ITSELF))
        }
        MemberState::Replaced => {
            let problem = "was replaced by another server";
            (NodeState::Replaced, Some(problem), Some(REJOIN))
        }
        MemberState::Blank if is_initialised => {
            (NodeState::Blank, Some("knows nothing of the set"), Some(BY_ITSELF))
        }
        MemberState::Blank => (NodeState::Blank, Some("was never initialised"), None),
        MemberState::Proposed => {
            let fix = "`holdline quorum init` continues the initialisation";
            (NodeState::Behind, Some("was initialised in part"), Some(fix))
        }
    }
}

/// How to resolve a server of another set.
const EMPTY: &str = "name the right server; or, to make this one leave its set, delete its key \
                     `holdline:node:1` (with `prefix`, if you set one): it can join this set then";
/// A problem that needs no operator.
const BY_ITSELF: &str = "any client resolves it as soon as enough other servers answer; so does \
                         `holdline quorum rejoin`";
/// A quarantine that an operator may end.
const VOUCH: &str = "wait; or, if you know that no lock is held on these servers, \
                     `holdline quorum vouch` ends the quarantine";
/// How to resolve a server that was replaced.
const REJOIN: &str = "leave it out of the list; or `holdline quorum rejoin` gives it back the slot \
                      of its address, if the set has one, and `holdline quorum replace OLD NEW` \
                      another one";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
