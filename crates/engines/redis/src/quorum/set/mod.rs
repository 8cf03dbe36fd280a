//! The nodes of a set, and what this client knows of them together.
//!
//! A task asks all nodes for their reports, computes the next steps with
//! [`plan`](holdline_core::quorum::plan), sends them, and repeats (`maintenance`). All clients do
//! the same side by side; a node rejects a step that comes too late. The result is a
//! [`MembershipView`]: which nodes vote, and under which configuration (`publish`). A request that
//! meets a node with another configuration wakes the task.

mod eligibility;
mod health;
mod maintenance;
mod publish;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdline_core::hints::Watches;
use holdline_core::quorum::{DesiredConfiguration, majority};
use holdline_core::{Clock, ErrorKind, HealthFeed, LockError, Moment};
use holdline_net::notify::wait_for;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::commands::Unfenced;
use super::in_progress::{BackgroundUndos, RenewalsInFlight, Tokens};
use super::member::{Member, Observed};
use super::membership::MembershipView;
use super::options::QuorumOptions;
use super::outcome::{self, NodeOutcome};
use super::{not_applied, refused};
use crate::native::RequestContext;

/// The smallest round trip that is assumed.
const MIN_ROUND_TRIP: Duration = Duration::from_micros(100);
/// The shortest deadline of a request to one node.
const MIN_NODE_DEADLINE: Duration = Duration::from_millis(50);
/// How long a command waits for the first view.
const FIRST_VIEW_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first handshake waits for the slower nodes, once a majority has answered.
pub(super) const FIRST_GRACE: Duration = Duration::from_millis(50);

/// The nodes, and what is known of them together.
#[derive(Debug)]
pub(super) struct NodeSet {
    pub(super) members: Vec<Member>,
    pub(super) context: RequestContext,
    pub(super) clock: Arc<dyn Clock>,
    /// Set if the quorum has no tokens. Its servers are no set then, and need no maintenance.
    pub(super) unfenced: Option<Unfenced>,
    desired: DesiredConfiguration,
    /// This client changes nothing of the set.
    read_only: bool,
    state: Mutex<SetState>,
    /// The largest token that was proposed or received.
    largest: AtomicU64,
    pub(super) renewals_in_flight: RenewalsInFlight,
    pub(super) tokens: Tokens,
    pub(super) background_undos: BackgroundUndos,
    /// The watches of leases.
    pub(super) watches: Arc<Watches>,
    /// Receives the state of the nodes after each round of maintenance.
    pub(super) health: HealthFeed,
    /// Wakes the tasks that wait for a view.
    changed: Notify,
    /// Wakes the maintenance task.
    wake: Arc<Notify>,
}

/// The current view, or why the set cannot be used; `None` before the first round.
type CurrentView = Option<Result<Arc<MembershipView>, LockError>>;

#[derive(Debug, Default)]
struct SetState {
    view: CurrentView,
    /// How many rounds have ended.
    rounds: u64,
    /// A round is running.
    in_round: bool,
    /// The maintenance task is running.
    maintained: bool,
    /// Servers that belong to no set may be initialised, since a lock was requested.
    may_initialise: bool,
}

impl NodeSet {
    pub(super) fn new(
        options: &QuorumOptions,
        context: RequestContext,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<NodeSet>, LockError> {
        let nodes = options.nodes().iter();
        let members: Vec<Member> =
            nodes.map(|node| Member::new(node, clock.clone())).collect::<Result<_, _>>()?;
        let desired = DesiredConfiguration {
            addresses: members.iter().map(|member| member.address().to_owned()).collect(),
            max_lease: options.max_lease(),
            vouched: Vec::new(),
            by_address: false,
            replace: Vec::new(),
        };
        let set = NodeSet {
            members,
            context,
            clock,
            unfenced: Unfenced::of(&options.nodes()[0]),
            desired,
            read_only: options.read_only(),
            state: Mutex::default(),
            largest: AtomicU64::new(0),
            renewals_in_flight: RenewalsInFlight::default(),
            tokens: Tokens::default(),
            background_undos: BackgroundUndos::default(),
            watches: Arc::default(),
            health: HealthFeed::default(),
            changed: Notify::new(),
            wake: Arc::default(),
        };
        Ok(Arc::new(set))
    }

    /// Allows the maintenance to initialise servers that belong to no set: an acquire was
    /// requested. A read-only client initialises none.
    pub(super) fn allow_initialisation(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.may_initialise, true) {
            return;
        }
        if is_not_initialised(&state.view) {
            state.view = None;
            state.rounds = 0;
            drop(state);
            self.wake_maintenance();
        }
    }

    /// Starts the next round of maintenance now: a node did not agree with the current view.
    pub(super) fn wake_maintenance(&self) {
        self.wake.notify_one();
    }

    /// Returns the current view. Waits for the first one, as long as a connection may take.
    ///
    /// # Errors
    /// The reason why the set cannot be used. No request was sent.
    pub(super) async fn view(self: &Arc<NodeSet>) -> Result<Arc<MembershipView>, LockError> {
        self.start_maintenance();
        let view = || self.state.lock().view.clone();
        if let Some(view) = view() {
            return view;
        }
        let end = self.clock.now().after(FIRST_VIEW_TIMEOUT);
        match self.round_that(view, end).await {
            Some(view) => view,
            None => Err(self.no_quorum(&[])),
        }
    }

    /// Runs a round of maintenance, and waits until it ends or another configuration is known, at
    /// most for `limit`.
    pub(super) async fn refresh(&self, known: &MembershipView, limit: Duration) {
        let end = self.clock.now().after(limit);
        let rounds_needed = {
            let state = self.state.lock();
            // A round that is running now may have asked before this call.
            state.rounds + 1 + u64::from(state.in_round)
        };
        let is_done = || {
            let state = self.state.lock();
            let stamp = |view: &MembershipView| view.configuration.stamp();
            let agreed = state.view.as_ref().and_then(|view| view.as_ref().ok());
            state.rounds >= rounds_needed || agreed.is_some_and(|now| stamp(now) != stamp(known))
        };
        self.wake_maintenance();
        self.round_that(|| is_done().then_some(()), end).await;
    }

    /// Waits for a round with this result; `None` if there is none until `end`.
    async fn round_that<T>(&self, result: impl Fn() -> Option<T>, end: Moment) -> Option<T> {
        tokio::select! {
            biased;
            result = wait_for(&self.changed, result) => Some(result),
            () = self.clock.sleep_until(end) => None,
        }
    }

    /// Returns whether a node has a connection that answers in time.
    pub(super) fn answers(&self, node: usize) -> bool {
        self.members[node].link().healthy_facts().is_some()
    }

    /// Returns the deadline of a request to one node, for a lease of this length: a quarter of it,
    /// so that a lock from a slow majority has most of its lease left, and a renewal ends before
    /// the next one is due.
    pub(super) fn node_deadline(&self, lease: Duration) -> Duration {
        (lease / 4).max(MIN_NODE_DEADLINE).min(self.context.deadline)
    }

    /// Records a token that a node returned.
    pub(super) fn note_token(&self, token: u64) {
        self.largest.fetch_max(token, Ordering::Relaxed);
    }

    /// Proposes a token: the nodes' clock, or one more than the largest known token.
    pub(super) fn propose_token(&self, view: &MembershipView, now: Moment) -> u64 {
        let mut last = self.largest.load(Ordering::Relaxed);
        loop {
            let proposed = view.time_us(now).max(last + 1);
            // No two attempts of one process propose the same token.
            match self.largest.compare_exchange_weak(
                last,
                proposed,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return proposed,
                Err(seen) => last = seen,
            }
        }
    }

    /// Draws a pause between one round trip and this many.
    pub(super) fn random_pause(&self, round_trips: u32) -> Duration {
        let round_trip = self.round_trip().max(MIN_ROUND_TRIP);
        let random = f64::from(self.members[0].link().random()) / f64::from(u32::MAX);
        round_trip + round_trip.mul_f64(random * f64::from(round_trips - 1))
    }

    /// Returns the time within which a majority answered last.
    fn round_trip(&self) -> Duration {
        let trip = |member: &Member| match &self.unfenced {
            Some(_) => member.link().healthy_facts().map(|facts| facts.round_trip),
            None => member.observed().current.map(|current| current.round_trip),
        };
        let mut trips: Vec<Duration> = self.members.iter().filter_map(trip).collect();
        trips.sort_unstable();
        trips.get(majority(self.members.len()) - 1).copied().unwrap_or(self.context.deadline)
    }

    /// Returns whether the round trip to a node is too long for the time that it has to answer.
    fn is_too_slow(&self, member: &Member) -> bool {
        let round_trip = member.link().round_trip();
        round_trip.is_some_and(|took| took >= self.context.deadline / 2)
    }

    pub(super) fn desired(&self) -> &DesiredConfiguration {
        &self.desired
    }

    /// Makes the error that too few nodes answered, with the outcome of each.
    pub(super) fn no_quorum(&self, outcomes: &[NodeOutcome]) -> LockError {
        let late = outcome::is_late(outcomes);
        let describe = |(at, member): (usize, &Member)| {
            let reason = outcomes.get(at).and_then(|outcome| outcome.describe(late));
            let observed = || match member.observed() {
                Observed { current: Some(_), .. } => "answers".to_owned(),
                Observed { failure: Some(failure), .. } => failure.kind().to_string(),
                Observed { .. } => "no answer yet".to_owned(),
            };
            let reason = reason.unwrap_or_else(observed);
            let may_be_slow = outcomes.get(at).is_none_or(NodeOutcome::may_be_slow);
            let advice = if may_be_slow && self.is_too_slow(member) {
                ": raise command_timeout_ms in the URL"
            } else {
                ""
            };
            format!("{}: {reason}{advice}", member.address())
        };
        let nodes: Vec<String> = self.members.iter().enumerate().map(describe).collect();
        let refuses = |member: &&Member| {
            let failure = member.observed().failure;
            failure.is_some_and(|failure| matches!(failure.kind(), ErrorKind::Refused { .. }))
        };
        // Waiting does not help if so many refuse that no majority is left.
        let refusing = self.members.iter().filter(refuses).count();
        if refusing > nodes.len() - majority(nodes.len()) {
            return refused(format!("no majority lets us in: {}", nodes.join("; ")));
        }
        not_applied(ErrorKind::NoQuorum { nodes })
    }
}

fn is_not_initialised(view: &CurrentView) -> bool {
    let Some(Err(error)) = view else { return false };
    matches!(error.kind(), ErrorKind::NotInitialised)
}

impl Drop for NodeSet {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use holdline_conformance::clock::MachineClock;

    use super::*;
    use crate::quorum::engine::context;

    #[test]
    fn grants_that_came_too_late_are_reported_as_late() {
        let options = QuorumOptions::from_url("redlock://one,two,three").expect("a good URL");
        let clock = Arc::new(MachineClock);
        let set = NodeSet::new(&options, context(&options), clock).expect("a set");
        let late = |granted: usize| {
            let outcome =
                |node| if node < granted { NodeOutcome::Granted } else { NodeOutcome::Open };
            let outcomes: Vec<_> = (0..3).map(outcome).collect();
            set.no_quorum(&outcomes).to_string().matches("granted, but the lease had").count()
        };
        assert_eq!([0, 1, 2, 3].map(late), [0, 0, 2, 3]);
    }
}
