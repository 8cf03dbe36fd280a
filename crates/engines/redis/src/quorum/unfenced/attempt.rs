//! One attempt at a name: sends the same command to all nodes at once, and decides as soon as a
//! majority has granted or no longer can. A lost attempt is undone as in a set.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{Ballot, BallotOutcome, NoVote, Vote, end_of_majority, majority};
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, FencingToken, LockError, Moment,
};

use super::ask_all;
use crate::in_flight::InFlight;
use crate::quorum::busy::{BusyNode, busy_reply};
use crate::quorum::commands::{Commands, Unfenced};
use crate::quorum::in_progress::Undo;
use crate::quorum::outcome::{self, NodeOutcome};
use crate::quorum::set::NodeSet;
use crate::quorum::undo::{self, Progress};
use crate::quorum::{foreign, not_applied};

/// Stands for no token: a resource that has ever seen a token rejects the smallest one.
const NO_TOKEN: FencingToken = FencingToken::MIN;

/// One attempt.
struct Attempt<'a> {
    set: &'a Arc<NodeSet>,
    unfenced: &'a Unfenced,
    request: &'a AcquireRequest,
    ballot: Ballot,
    began: Moment,
    lease: Duration,
    /// What became of the request on each node.
    outcomes: Vec<NodeOutcome>,
    /// The nodes where another client holds the name.
    busy: Vec<usize>,
    /// Why nodes reject us.
    refused: Vec<LockError>,
    /// What a node has under the name that is no lock.
    foreign: Option<LockError>,
}

/// Makes one attempt at a name.
pub(in crate::quorum) async fn acquire(
    set: &Arc<NodeSet>,
    unfenced: &Unfenced,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let began = set.clock.now();
    if unfenced.given_up.has(request.lease_id, || began) {
        return Err(not_applied(ErrorKind::Cancelled));
    }
    let lease = request.hold.duration().unwrap_or_default();
    let nodes = set.members.len();
    let attempt = Attempt {
        set,
        unfenced,
        request,
        // The returned time counts from the start of the call; the caller subtracts the drift.
        ballot: Ballot::new(nodes, lease),
        began,
        lease,
        outcomes: vec![NodeOutcome::Open; nodes],
        busy: Vec::new(),
        refused: Vec::new(),
        foreign: None,
    };
    attempt.run().await
}

impl Attempt<'_> {
    async fn run(mut self) -> Result<AcquireReply, LockError> {
        let Attempt { set, unfenced, request, lease, .. } = self;
        let deadline = set.node_deadline(lease);
        let mut in_flight = InFlight::with_capacity(set.members.len());
        for (node, member) in set.members.iter().enumerate() {
            if !set.answers(node) {
                self.outcomes[node] = NodeOutcome::NotAsked(member.failure_text());
                continue;
            }
            self.ballot.asked(node, set.clock.now());
            in_flight.push(node, unfenced.commands.acquire(member.link(), request, deadline));
        }
        loop {
            match self.ballot.decide(set.clock.now()) {
                BallotOutcome::Won { valid_until, .. } => {
                    let left = Some(self.began.until(valid_until).min(lease));
                    return Ok(AcquireReply::Granted { token: NO_TOKEN, left, anchor: None });
                }
                BallotOutcome::Lost => break,
                BallotOutcome::Pending => {}
            }
            let Some((node, answer)) = in_flight.next().await else { break };
            self.note(node, answer);
        }
        drop(in_flight);
        self.lost().await
    }

    fn note(&mut self, node: usize, answer: Result<bool, LockError>) {
        match answer {
            Ok(false) => {
                self.outcomes[node] = NodeOutcome::Busy(None);
                self.busy.push(node);
                self.ballot.voted(node, Vote::Busy);
            }
            Ok(true) => {
                self.outcomes[node] = NodeOutcome::Granted;
                self.ballot.voted(node, Vote::Granted { last: NO_TOKEN });
            }
            Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => {
                self.outcomes[node] = NodeOutcome::Failed(error.clone());
                self.foreign.get_or_insert(error);
                self.ballot.voted(node, Vote::Busy);
            }
            Err(error) => {
                self.outcomes[node] = NodeOutcome::Failed(error.clone());
                match error.certainty() {
                    Certainty::NotApplied => self.ballot.refused(node, NoVote::Unreached),
                    Certainty::Applied | Certainty::Unknown => self.ballot.unanswered(node),
                }
                if matches!(error.kind(), ErrorKind::Refused { .. }) {
                    self.refused.push(error);
                }
            }
        }
    }

    /// Undoes the grants, and returns why the attempt failed.
    async fn lost(mut self) -> Result<AcquireReply, LockError> {
        let Attempt { set, unfenced, request, lease, .. } = self;
        let undo = Undo::new(set, &request.name, request.lease_id, lease);
        let progress = |node: usize| {
            if self.outcomes[node].is_granted() { Progress::Answered } else { Progress::MayArrive }
        };
        let nodes: Vec<(usize, Progress)> =
            self.ballot.to_undo().map(|node| (node, progress(node))).collect();
        if !nodes.is_empty() {
            unfenced.give_up(&undo, set.clock.now());
        }
        let total = self.outcomes.len();
        let granted = outcome::granted(&self.outcomes);
        let needed = majority(total);
        let awaited = self.ballot.awaited().count();
        let undoing = undo::undo_attempt(set, undo, nodes);
        // If several clients hold minorities, it does not matter who they are.
        let inspecting = self.inspect_busy(granted == 0 || self.busy.len() >= needed);
        let ((), (busy, foreign_data)) = tokio::join!(undoing, inspecting);
        if !busy.is_empty() && busy.len() + granted + awaited >= needed {
            return Ok(busy_reply(set, busy, granted, awaited).await);
        }
        if let Some(error) = foreign_data.or(self.foreign) {
            return Err(foreign(&error));
        }
        // `Refused` where waiting does not help.
        if self.refused.len() > total - needed
            && let Some(error) = self.refused.pop()
        {
            return Err(error);
        }
        Err(set.no_quorum(&self.outcomes))
    }

    /// Asks the busy nodes for the holder; also returns foreign data that is no lock.
    async fn inspect_busy(&self, needed: bool) -> (Vec<BusyNode>, Option<LockError>) {
        if !needed {
            return (self.busy.iter().map(|_| BusyNode::default()).collect(), None);
        }
        let unfenced = self.unfenced;
        let name = &self.request.name;
        let lease_id = self.request.lease_id;
        let nodes = self.busy.iter().copied();
        let ask = |commands, node| Commands::holder(commands, node, name, lease_id);
        let answers = ask_all(self.set, unfenced, nodes, ask).await;
        // Nodes that do not answer any more reported the name as held.
        let unanswered = self.busy.len() - answers.len();
        let mut busy: Vec<BusyNode> = (0..unanswered).map(|_| BusyNode::default()).collect();
        let mut foreign = None;
        for (_, answer) in answers {
            match answer {
                Ok(Some(held)) => {
                    let left = held.summary.left;
                    busy.push(BusyNode { holder: Some(Box::new(held.summary)), left });
                }
                // The name was freed in between.
                Ok(None) => busy.push(BusyNode { holder: None, left: Some(Duration::ZERO) }),
                Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => {
                    foreign = Some(error);
                }
                // Another client held it a moment ago.
                Err(_) => busy.push(BusyNode::default()),
            }
        }
        (busy, foreign)
    }
}

/// Repeats a request under an id that was granted before: returns the time left.
pub(in crate::quorum) async fn acquire_known(
    set: &Arc<NodeSet>,
    unfenced: &Unfenced,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    if unfenced.given_up.has(request.lease_id, || set.clock.now()) {
        return Err(not_applied(ErrorKind::Cancelled));
    }
    let nodes = set.members.len();
    let name = &request.name;
    let lease_id = request.lease_id;
    let ask = |commands, node| Commands::holder(commands, node, name, lease_id);
    let answers = ask_all(set, unfenced, 0..nodes, ask).await;
    let mut outcomes = vec![NodeOutcome::Open; nodes];
    let mut lefts = Vec::new();
    let mut others = 0;
    for (node, answer) in answers {
        match answer {
            Ok(Some(held)) if held.is_ours => {
                outcomes[node] = NodeOutcome::Granted;
                lefts.push(held.summary.left.unwrap_or_default());
            }
            Ok(_) => {
                outcomes[node] = NodeOutcome::NotHeld;
                others += 1;
            }
            Err(error) => outcomes[node] = NodeOutcome::Failed(error),
        }
    }
    match end_of_majority(lefts, nodes) {
        Some(left) => {
            let left = Some(left.min(request.hold.duration().unwrap_or(left)));
            Ok(AcquireReply::Granted { token: NO_TOKEN, left, anchor: None })
        }
        None if others > nodes - majority(nodes) => Ok(AcquireReply::Unknown),
        None => Err(set.no_quorum(&outcomes).with_certainty(Certainty::Unknown)),
    }
}
