//! A set as operators see it: how it stands, how it is set up, how a node comes back.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{
    Configuration, Gate, Plan, SetId, Standing, Told, View, Wish, majority,
};
use holdline_core::{Certainty, Clock, ErrorKind, LockError};
use serde::Serialize;

use super::ENGINE;
use super::engine::asker;
use super::member::Said;
use super::options::QuorumOptions;
use super::roster::RELIST;
use super::set::Set;

/// How long a change of the set may take.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// The pause between two looks at a set that changes.
const PAUSE: Duration = Duration::from_millis(50);

/// How a set stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuorumStatus {
    /// What it is called, in short; `None` before it was set up.
    pub set: Option<String>,
    /// Which of its configurations it has.
    pub epoch: Option<u64>,
    /// The longest lease, in milliseconds.
    pub max_lease_ms: Option<u64>,
    /// How many nodes must agree.
    pub majority: usize,
    /// How many vote now.
    pub votes: usize,
    /// How many more may be lost before no lock can be had.
    pub may_lose: usize,
    /// Why it cannot be used as it is; `None` when it can, as far as enough nodes vote.
    pub problem: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
    /// The nodes, in the order in which they were named.
    pub nodes: Vec<NodeStatus>,
}

/// How a node stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Where it is.
    pub address: String,
    /// How it stands.
    pub state: NodeState,
    /// What it calls itself, in short.
    pub id: Option<String>,
    /// Which run of its server it is, in short.
    pub marker: Option<String>,
    /// How long this run has lasted, in milliseconds.
    pub up_for_ms: Option<u64>,
    /// Whether its settings are to keep all that it has answered over restarts too (`appendfsync
    /// always`). It waits after a restart all the same.
    pub durable: Option<bool>,
    /// Which configuration it has.
    pub epoch: Option<u64>,
    /// How long its answer took, in microseconds.
    pub round_trip_us: Option<u64>,
    /// How far its clock is ahead of the one in the middle, in microseconds.
    pub clock_offset_us: Option<i64>,
    /// How long it still waits, in milliseconds, while a client that measures it runs.
    pub quarantine_left_ms: Option<u64>,
    /// The largest fencing token that it knows of.
    pub largest_token: Option<u64>,
    /// Why it does not answer, or does not vote.
    pub problem: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
}

impl QuorumStatus {
    /// Tells whether a lock can be had: enough nodes vote, and nothing is wrong with the set.
    pub fn works(&self) -> bool {
        self.problem.is_none() && self.votes >= self.majority
    }
}

/// How a node stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It votes.
    Votes,
    /// It has lost its memory, or belongs to a set that was just founded, and waits.
    Quarantined,
    /// It has lost its memory, and the others have not agreed to it yet.
    Forgot,
    /// Its place was given to another server.
    Replaced,
    /// It belongs to no set.
    Blank,
    /// It has another configuration than the others.
    Behind,
    /// The servers that were named, or most of them, are not the set that it belongs to.
    Mislisted,
    /// It does not answer, or cannot be used.
    Down,
}

/// Looks after a set for an operator. It holds no locks.
#[derive(Debug)]
pub struct QuorumAdmin {
    pub(super) set: Arc<Set>,
    /// The longest lease that was asked for.
    max_lease: Option<Duration>,
}

impl QuorumAdmin {
    /// Makes one. It connects when it is asked something.
    ///
    /// # Errors
    /// `Invalid`: an option is wrong. `Unsupported`: without tokens the servers are no set.
    pub fn new(options: &QuorumOptions, clock: Arc<dyn Clock>) -> Result<QuorumAdmin, LockError> {
        options.validate()?;
        options.must_have_set()?;
        let set = Set::new(options, asker(options), clock)?;
        Ok(QuorumAdmin { set, max_lease: options.asked_max_lease() })
    }

    /// Looks how the set stands, and changes nothing.
    pub async fn status(&self) -> QuorumStatus {
        self.set.look().await;
        self.tell()
    }

    /// Makes servers one set that belong to none. They give no votes at first: a server that knows
    /// nothing cannot be told from one that has lost everything, so they wait for the longest lease
    /// that any set may have (10 min), unless an operator [vouches](QuorumAdmin::vouch). A set that
    /// is there already is left as it is, so this may be called again at any time.
    ///
    /// # Errors
    /// `Refused`: these servers cannot be one set; or they are one, or another client makes them
    /// one, with another longest lease than was asked for: then nothing has changed. `NoQuorum`:
    /// not all nodes answered; what was begun is gone on with when this is called again, or by the
    /// first client that finds all of them.
    pub async fn init(&self) -> Result<QuorumStatus, LockError> {
        self.settle(self.set.wish(), self.max_lease).await
    }

    /// Ends a wait that is there only because no majority remembers: the operator vouches for it
    /// that nothing is held on these servers from before. If that is wrong, two holders at once are
    /// the consequence. Servers that belong to no set are made one first, as by
    /// [`QuorumAdmin::init`].
    ///
    /// # Errors
    /// As for [`QuorumAdmin::init`].
    pub async fn vouch(&self) -> Result<QuorumStatus, LockError> {
        self.settle(&Wish { vouched: true, ..self.set.wish().clone() }, None).await
    }

    /// Takes nodes in again that were replaced, and does what is to be done for those that have
    /// lost their memory. Clients do the second by themselves. A node that was replaced gets its
    /// slot back from the server that has it now: [`QuorumAdmin::plan_rejoin`] returns which. Where
    /// that is none, it stays as it is.
    ///
    /// # Errors
    /// As for [`QuorumAdmin::init`].
    pub async fn rejoin(&self) -> Result<QuorumStatus, LockError> {
        self.set.greet().await;
        let said = self.set.said();
        let places: Vec<usize> = self.rejoins(&said).into_iter().map(|(_, at)| at).collect();
        self.readmit(&said, &places).await?;
        self.set.greet().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let said = self.set.said();
            let (_, plan) = self.set.judge(&said, self.set.wish());
            self.check(&plan, &said)?;
            if only_waits(&plan) || self.set.clock.now() >= end {
                return Ok(self.tell());
            }
            self.carry_out(&plan).await;
            self.set.greet().await;
        }
    }

    /// Does what is to be done until the servers are a set. `asked`: with this longest lease.
    async fn settle(
        &self,
        wish: &Wish,
        asked: Option<Duration>,
    ) -> Result<QuorumStatus, LockError> {
        self.set.greet().await;
        let end = self.set.clock.now().after(LIMIT);
        loop {
            let said = self.set.said();
            let (_, plan) = self.set.judge(&said, wish);
            self.check(&plan, &said)?;
            self.check_max_lease(&plan, &said, asked)?;
            // What waits for what it has granted is waited for by nobody: nothing is left to do.
            let is_agreed = matches!(plan.standing, Standing::Agreed(_));
            if only_waits(&plan) && (is_open(&said) || is_agreed) {
                return Ok(self.tell());
            }
            if self.set.clock.now() >= end {
                return Err(self.set.no_quorum(&[]));
            }
            self.carry_out(&plan).await;
            self.set.greet().await;
        }
    }

    /// The longest lease of a set never changes: whoever waits relies on it. And none is founded
    /// with another than was asked for.
    fn check_max_lease(
        &self,
        plan: &Plan,
        said: &[Said],
        asked: Option<Duration>,
    ) -> Result<(), LockError> {
        let Some(asked) = asked else { return Ok(()) };
        let key = self.set.asker.layout.node();
        let key = String::from_utf8_lossy(&key);
        let message = match &plan.standing {
            Standing::Agreed(configuration) if configuration.max_lease() != asked => format!(
                "these servers are a set already, whose longest lease is {:?} and not {asked:?}, \
                 and it never changes: leave it at that, or use servers that belong to no set",
                configuration.max_lease(),
            ),
            Standing::Unfounded { .. } => match proposed(plan, said) {
                Some(other) if other != asked => format!(
                    "another client makes these servers a set whose longest lease is {other:?} \
                     and not {asked:?}: ask for that, or stop the clients that use these servers, \
                     delete the key `{key}` on each server, and begin again"
                ),
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        Err(refused(message))
    }

    pub(super) fn check(&self, plan: &Plan, said: &[Said]) -> Result<(), LockError> {
        match self.set.find(plan, said) {
            Err(error) if matches!(error.kind(), ErrorKind::NotInitialised) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    pub(super) async fn carry_out(&self, plan: &Plan) {
        if !self.set.carry_out(plan).await {
            self.set.clock.sleep_until(self.set.clock.now().after(PAUSE)).await;
        }
    }

    pub(super) fn tell(&self) -> QuorumStatus {
        let said = self.set.said();
        let (views, plan) = self.set.judge(&said, self.set.wish());
        let configuration = match &plan.standing {
            Standing::Agreed(one) | Standing::Mislisted(one) => Some(one),
            _ => None,
        };
        let lists = configuration.map(|one| self.set.both_lists(one)).unwrap_or_default();
        let problem = match self.set.find(&plan, &said) {
            Ok(_) => None,
            Err(_) if matches!(plan.standing, Standing::Mislisted(_)) => {
                Some(format!("this is not the list of the set: {lists}"))
            }
            Err(error) => Some(error.kind().to_string()),
        };
        let (now, middle) = self.set.clock_of(&said);
        let mut nodes: Vec<NodeStatus> = said
            .iter()
            .zip(&views)
            .enumerate()
            .map(|(at, (said, view))| {
                let address = self.set.members[at].address().to_owned();
                let mut node = node_status(address, said, view.as_ref(), configuration);
                if let Some(heard) = &said.heard {
                    let theirs = i128::from(heard.time_us_at(now)) - i128::from(middle);
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
        let fix = what_to_do(&plan.standing, silent, problem.is_some());
        let standing = &plan.standing;
        let each = matches!(standing, Standing::Unfounded { .. } | Standing::Mislisted(_));
        if problem.is_some() && !each {
            nodes.iter_mut().zip(&views).for_each(|(node, view)| mislist(node, view, &fix));
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

/// Says what to do about a set that cannot be used.
fn what_to_do(standing: &Standing, silent: usize, is_ill: bool) -> Option<String> {
    let fix = match standing {
        _ if !is_ill => return None,
        Standing::Unfounded { .. } if silent > 0 => {
            "all servers must answer before they can become a set: see to those that do not"
        }
        Standing::Unfounded { .. } => "`holdline quorum init` makes them one",
        Standing::Foreign { .. } => {
            "name the servers of one set; on one that is to leave its set, delete the key \
             `holdline:node:1` (with `prefix`, if you set one)"
        }
        Standing::Mislisted(_) => RELIST,
        Standing::Miscounted { .. } => "name every server of the set, and no other",
        Standing::Twice { .. } | Standing::Agreed(_) => "name each server once, by one address",
    };
    Some(fix.to_owned())
}

/// No client sees to a server that was named among those of another set: what it lacks is a right
/// list.
fn mislist(node: &mut NodeStatus, view: &Option<View>, fix: &Option<String>) {
    let Some(view) = view else { return };
    let belongs = match &view.configuration {
        Some(mine) => {
            let (set, epoch) = (SetId::short(mine.set()), mine.epoch());
            format!("belongs to the set {set}, epoch {epoch}, of {} servers", mine.slots().len())
        }
        None => "belongs to no set".to_owned(),
    };
    (node.state, node.problem) = (NodeState::Mislisted, Some(belongs));
    node.fix.clone_from(fix);
}

fn is_open(said: &[Said]) -> bool {
    let open = |said: &Said| said.heard.as_ref().is_some_and(|one| one.view.gate == Gate::Open);
    said.iter().all(open)
}

fn node_status(
    address: String,
    said: &Said,
    view: Option<&View>,
    configuration: Option<&Configuration>,
) -> NodeStatus {
    let (Some(heard), Some(view)) = (&said.heard, view) else {
        let why = said.failure.as_ref().map(|failure| failure.kind().to_string());
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
    let mine = view.configuration.as_ref();
    let same = mine.map(Configuration::stamp) == configuration.map(Configuration::stamp);
    let foreign = mine.zip(configuration).is_some_and(|(mine, own)| mine.set() != own.set());
    let (state, problem, fix) = match foreign {
        true => (NodeState::Mislisted, Some("belongs to another set than the others"), Some(EMPTY)),
        false => state_of(view, same, configuration.is_some()),
    };
    let short = |text: String| text.chars().take(8).collect::<String>();
    NodeStatus {
        address,
        state,
        id: Some(short(view.id.to_string())),
        marker: Some(short(heard.marker.to_string())),
        up_for_ms: heard.up.map(millis),
        durable: Some(heard.durable),
        epoch: mine.map(Configuration::epoch),
        round_trip_us: u64::try_from(heard.round_trip.as_micros()).ok(),
        clock_offset_us: None,
        quarantine_left_ms: view
            .quarantine
            .map(|(left, _)| millis(left.saturating_sub(view.measured))),
        largest_token: Some(view.largest).filter(|largest| *largest > 0),
        problem: problem.map(str::to_owned),
        fix: fix.map(str::to_owned),
    }
}

/// Says how a node stands, why it does not vote, and what to do. `same`: it has the configuration
/// of the others.
fn state_of(
    view: &View,
    same: bool,
    is_founded: bool,
) -> (NodeState, Option<&'static str>, Option<&'static str>) {
    let by_time = view.quarantine.is_some_and(|(_, by_time)| by_time);
    match view.gate {
        Gate::Open if same => (NodeState::Votes, None, None),
        Gate::Open => {
            let problem = "has another configuration than the others";
            (NodeState::Behind, Some(problem), Some(BY_ITSELF))
        }
        Gate::Forgot if by_time => {
            let problem = "gives no vote until its wait is over, since nobody remembers";
            (NodeState::Quarantined, Some(problem), Some(VOUCH))
        }
        Gate::Forgot if view.quarantine.is_some() => {
            let problem = "has lost its memory, and gives no vote until its wait is over";
            (NodeState::Quarantined, Some(problem), Some(BY_ITSELF))
        }
        Gate::Forgot => {
            let problem = "has lost its memory; the others have not agreed to it yet";
            (NodeState::Forgot, Some(problem), Some(BY_ITSELF))
        }
        Gate::Out => {
            let problem = "was replaced by another server";
            (NodeState::Replaced, Some(problem), Some(REJOIN))
        }
        Gate::Blank if is_founded => {
            (NodeState::Blank, Some("knows nothing of the set"), Some(BY_ITSELF))
        }
        Gate::Blank => (NodeState::Blank, Some("was never set up"), None),
        Gate::Proposed => {
            let fix = "`holdline quorum init` goes on with it";
            (NodeState::Behind, Some("was set up in part"), Some(fix))
        }
    }
}

/// What an operator does with a server of another set.
const EMPTY: &str = "name the right server; or, if this one is to leave its set, delete its key \
                     `holdline:node:1` (with `prefix`, if you set one): it is taken in then";
/// What becomes well without an operator.
const BY_ITSELF: &str = "any client sees to it as soon as enough others answer; so does `holdline \
                         quorum rejoin`";
/// What an operator may know.
const VOUCH: &str = "wait; or, if you know that nothing is held on these servers from before, \
                     `holdline quorum vouch` ends the wait";
/// What an operator does with a server that was replaced.
const REJOIN: &str = "leave it out of the list; or `holdline quorum rejoin` gives it back the slot \
                      of its address, and `holdline quorum replace OLD NEW` another one";

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Tells whether nothing is left to do but to measure waits, which clients do.
pub(super) fn only_waits(plan: &Plan) -> bool {
    plan.steps.iter().all(|(_, told)| matches!(told, Told::Waited { .. }))
}

/// Returns the longest lease of the set that is founded by the next steps.
fn proposed(plan: &Plan, said: &[Said]) -> Option<Duration> {
    let steps = plan.steps.iter();
    let mut wanted = steps.filter_map(|(_, told)| match told {
        Told::Propose { configuration, .. } => Some(configuration.max_lease()),
        _ => None,
    });
    let heard = said.iter().filter_map(|said| said.heard.as_ref());
    let mut accepted = heard.filter_map(|heard| heard.view.configuration.as_ref());
    wanted.next().or_else(|| accepted.next().map(Configuration::max_lease))
}

pub(super) fn refused(message: String) -> LockError {
    LockError::new(ENGINE, ErrorKind::Refused { message }, Certainty::NotApplied)
}
