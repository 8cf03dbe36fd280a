//! One attempt at a name: asks all nodes that vote at once, and decides as soon as a majority has
//! granted or no longer can. The [`Ballot`] decides; this module sends and receives its messages.
//!
//! ```text
//! acquire:
//!   take the current view of the set: its configuration, and which nodes vote
//!   propose a token: the nodes' clock, or one more than the largest known token
//!   ask every voting node at once, each with the run and the configuration that it must have
//!   a majority granted -> the token is the largest that they counted to; if they differ, it is
//!                         written back to a majority; granted if lease is left
//!   too few can grant  -> undo on every node that may have granted; busy, or no quorum
//!   a node has another configuration -> refresh the view; the caller asks once more
//! a release publishes on the nodes; the waiters of one process ask one after the other
//! ```
//!
//! - Invariant A1: a lost attempt is undone on every node that may have granted the name, behind
//!   the request. If the node had answered, the attempt ends only after the node has confirmed the
//!   undo. If not, a tombstone rejects the request when it arrives.
//! - Invariant A2: the caller undoes the requests of a dropped attempt.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{
    Ballot, BallotOutcome, NoVote, Vote, WriteBack, WriteBackReply, majority,
};
use holdline_core::{AcquireReply, AcquireRequest, Certainty, ErrorKind, LockError, Moment};

use super::busy::{BusyNode, busy_reply};
use super::in_progress::Undo;
use super::known::acquire_known;
use super::membership::{Eligibility, MembershipView};
use super::not_voting::NotVoting;
use super::outcome::{self, NodeOutcome, check_lease, ended_error};
use super::replies::{self, Admitted, EpochProof, VoteReply};
use super::requests::{self, AcquireKind};
use super::set::NodeSet;
use super::undo::{self, Progress};
use super::{foreign, not_applied};
use crate::in_flight::InFlight;
use crate::link::SentOn;

/// A node's answer.
enum Answer {
    Vote(Result<VoteReply, LockError>),
    Written(Result<Admitted<WriteBackReply>, LockError>),
}

/// One attempt.
struct Attempt<'a> {
    set: &'a Arc<NodeSet>,
    request: &'a AcquireRequest,
    view: Arc<MembershipView>,
    ballot: Ballot,
    began: Moment,
    /// What became of the request on each node.
    outcomes: Vec<NodeOutcome>,
    /// The connection of each node's request.
    sent_on: Vec<Arc<SentOn>>,
    /// The holders of the name, by node.
    busy: Vec<BusyNode>,
    /// Foreign data under the name.
    foreign: Option<LockError>,
    /// At least one node granted the name under this id before.
    held: bool,
    /// The id was undone, or revoked with the operator's reason.
    ended: Option<Option<String>>,
    /// A node has another state than in the view.
    outdated: bool,
}

/// Makes one attempt at a name.
pub(super) async fn acquire(
    set: &Arc<NodeSet>,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let began = set.clock.now();
    set.allow_initialisation();
    let view = set.view().await?;
    let lease = request.hold.duration().unwrap_or_default();
    check_lease(view.configuration.max_lease(), lease)?;
    let nodes = set.members.len();
    let attempt = Attempt {
        set,
        request,
        // The returned time counts from the start of the call; the caller subtracts the drift.
        ballot: Ballot::new(nodes, lease),
        view,
        began,
        outcomes: vec![NodeOutcome::Open; nodes],
        sent_on: (0..nodes).map(|_| Arc::default()).collect(),
        busy: Vec::new(),
        foreign: None,
        held: false,
        ended: None,
        outdated: false,
    };
    attempt.run(lease).await
}

impl Attempt<'_> {
    async fn run(mut self, lease: Duration) -> Result<AcquireReply, LockError> {
        let Attempt { set, request, .. } = self;
        let deadline = set.node_deadline(lease);
        let proposed = set.propose_token(&self.view, self.began);
        let view = self.view.clone();
        let mut in_flight = InFlight::with_capacity(set.members.len());
        for (node, node_state) in view.nodes.iter().enumerate() {
            let Some(proof) = self.proof_for(node, node_state) else { continue };
            self.ballot.asked(node, set.clock.now());
            let sent_on = self.sent_on[node].clone();
            in_flight.push(node, async move {
                let call = || {
                    requests::acquire(&set.context, proof, request, proposed, AcquireKind::First)
                        .within(deadline)
                };
                let link = set.members[node].link();
                let reply = link.call_recorded(proof.marker(), call, &sent_on).await;
                Answer::Vote(reply.and_then(|reply| replies::voted(&reply, proof)))
            });
        }
        loop {
            if self.held {
                // The caller repeats a request under its own id: nothing is undone.
                drop(in_flight);
                return acquire_known(set, request).await;
            }
            match self.ballot.decide(set.clock.now()) {
                BallotOutcome::Won { token, valid_until } => {
                    set.note_token(token.get());
                    let left = self.began.until(valid_until).min(lease);
                    return Ok(AcquireReply::Granted { token, left: Some(left), anchor: None });
                }
                BallotOutcome::Lost => break,
                BallotOutcome::Pending => {}
            }
            for WriteBack { node, token } in self.ballot.take_write_backs() {
                let Ok(proof) = &self.view.nodes[node] else { continue };
                let proof = proof.clone();
                in_flight.push(node, async move {
                    let name = &request.name;
                    let id = request.lease_id;
                    let call = || {
                        requests::write_back(&set.context, &proof, name, id, token).within(deadline)
                    };
                    let reply = set.members[node].link().call_of(Some(proof.marker()), call).await;
                    Answer::Written(reply.and_then(|reply| replies::written(&reply, &proof)))
                });
            }
            match in_flight.next().await {
                Some((node, answer)) => self.note(node, answer),
                // No answer is pending, and the outcome is open: no vote can arrive any more.
                None => break,
            }
        }
        // What has arrived by now needs no tombstone, and often no undo.
        while let Some((node, answer)) = in_flight.next_ready() {
            self.note(node, answer);
        }
        // So that no request of the attempt is sent behind its undo.
        drop(in_flight);
        if self.held { acquire_known(set, request).await } else { self.lost(lease).await }
    }

    /// Returns the proof for a node that is asked; otherwise records why it is not.
    fn proof_for<'v>(
        &mut self,
        node: usize,
        eligibility: &'v Eligibility,
    ) -> Option<&'v Arc<EpochProof>> {
        match self.set.proof_for(node, eligibility) {
            Ok(proof) => Some(proof),
            Err(why) => {
                self.outdated |= matches!(why, NodeOutcome::Refused(_));
                self.outcomes[node] = why;
                None
            }
        }
    }

    fn note(&mut self, node: usize, answer: Answer) {
        match answer {
            Answer::Vote(Ok(VoteReply::Granted { last })) => {
                self.set.note_token(last.get());
                self.outcomes[node] = NodeOutcome::Granted;
                self.ballot.voted(node, Vote::Granted { last });
            }
            Answer::Vote(Ok(VoteReply::Busy { holder, left })) => {
                self.outcomes[node] = NodeOutcome::Busy(holder.clone());
                self.busy.push(BusyNode { holder, left });
                self.ballot.voted(node, Vote::Busy);
            }
            Answer::Vote(Ok(VoteReply::Refused(why))) => {
                self.outcomes[node] = NodeOutcome::Refused(why);
                self.ballot.refused(node, NoVote::Abstained);
                self.note_outdated();
            }
            Answer::Vote(Ok(VoteReply::Cancelled { revoked })) => {
                let reason = self.ended.take().flatten().or(revoked);
                self.ended = Some(reason);
                self.ballot.refused(node, NoVote::Abstained);
            }
            Answer::Vote(Ok(VoteReply::Held { .. } | VoteReply::Healed { .. })) => {
                self.held = true;
                self.ballot.unanswered(node);
            }
            Answer::Vote(Ok(VoteReply::Unknown)) => {
                self.outcomes[node] = NodeOutcome::Unexpected;
                self.ballot.unanswered(node);
            }
            Answer::Vote(Err(error)) => {
                self.outcomes[node] = NodeOutcome::Failed(error.clone());
                match error.certainty() {
                    Certainty::NotApplied => self.ballot.refused(node, NoVote::Unreached),
                    Certainty::Applied | Certainty::Unknown => self.ballot.unanswered(node),
                }
                if matches!(error.kind(), ErrorKind::Foreign { .. }) {
                    self.foreign.get_or_insert(error);
                }
            }
            Answer::Written(Ok(Ok(written))) => self.ballot.written(node, written),
            Answer::Written(Ok(Err(_))) => {
                self.note_outdated();
                self.ballot.unanswered(node);
            }
            Answer::Written(Err(_)) => self.ballot.unanswered(node),
        }
    }

    /// Undoes the grants, and returns why the attempt failed.
    async fn lost(self, lease: Duration) -> Result<AcquireReply, LockError> {
        let undo = Undo::new(self.set, &self.request.name, self.request.lease_id, lease);
        let nodes: Vec<(usize, Progress)> =
            self.ballot.to_undo().map(|node| (node, self.progress(node))).collect();
        undo::undo_attempt(self.set, undo, nodes).await;
        // Nothing is applied: grants of a minority are no lock, and the undo removes what is left.
        if let Some(revoked) = self.ended {
            return Err(ended_error(revoked));
        }
        let needed = majority(self.outcomes.len());
        let granted = outcome::granted(&self.outcomes);
        let open = self.ballot.awaited().count();
        if !self.busy.is_empty() && self.busy.len() + granted + open >= needed {
            return Ok(busy_reply(self.set, self.busy, granted, open).await);
        }
        if let Some(error) = self.foreign {
            return Err(foreign(&error));
        }
        let quarantined = self.view.nodes.iter().filter_map(|node_state| match node_state {
            Err(NotVoting::Quarantined { until, .. }) => Some(*until),
            _ => None,
        });
        if let Some(end) = quarantine_end(quarantined, needed, self.busy.len() + granted) {
            let left = self.set.clock.now().until(end);
            return Err(not_applied(ErrorKind::Quarantined { left }));
        }
        let error = self.set.no_quorum(&self.outcomes);
        if self.outdated {
            // So the next attempt uses the current membership.
            self.set.refresh(&self.view, self.set.node_deadline(lease)).await;
        }
        Err(error)
    }

    /// Records that a node has another state than in the view.
    fn note_outdated(&mut self) {
        self.outdated = true;
        self.set.wake_maintenance();
    }

    fn progress(&self, node: usize) -> Progress {
        if self.outcomes[node].is_granted() {
            Progress::Answered
        } else {
            Progress::Sent(self.sent_on[node].clone())
        }
    }
}

/// Returns when a majority votes again, if only nodes in quarantine are missing: those with the
/// shortest rest are enough.
fn quarantine_end(
    quarantined: impl Iterator<Item = Option<Moment>>,
    needed: usize,
    votes: usize,
) -> Option<Moment> {
    let mut ends: Vec<Moment> = quarantined.flatten().collect();
    ends.sort_unstable();
    // If there are enough votes that came too late, none is missing.
    ends.get(needed.checked_sub(votes + 1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_late_votes_needs_no_quarantined_node() {
        let at = |nanos| Some(Moment::from_nanos(nanos));
        for (quarantined, votes, end) in [
            (vec![], 3, None),
            (vec![], 5, None),
            (vec![at(9)], 3, None),
            (vec![at(9), None, at(7)], 2, at(7)),
            (vec![at(9), None, at(7)], 1, at(9)),
            (vec![at(9), None, at(7)], 0, None),
        ] {
            assert_eq!(quarantine_end(quarantined.into_iter(), 3, votes), end, "{votes} votes");
        }
    }
}
