//! Renewal of leases: a batch goes to all nodes that vote, and each renewal is counted separately.
//! A renewal of a waiter only checks whether a majority holds the lease.
//!
//! A majority decides. The answers of slower nodes are awaited in the background, since a lease
//! that is missing there is healed.
//!
//! Read next: `healing` for that.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{RenewalOutcome, Tally, end_of_majority};
use holdline_core::{Certainty, ErrorKind, LockError, Moment, Purpose, RenewReply, RenewRequest};

use super::foreign;
use super::healing::{self, Healing, RenewalInFlight};
use super::membership::MembershipView;
use super::outcome::{NodeOutcome, check_lease};
use super::replies::{self, BatchReply, NodeRenewal};
use super::requests;
use super::set::NodeSet;
use crate::in_flight::InFlight;

/// The renewals of one call.
pub(super) struct RenewalBatch<'a> {
    set: &'a NodeSet,
    began: Moment,
    renewals: Vec<LeaseRenewal<'a>>,
    /// What became of the batch on each node.
    outcomes: Vec<NodeOutcome>,
}

/// One renewal, and the nodes' answers.
struct LeaseRenewal<'a> {
    request: &'a RenewRequest,
    lease: Duration,
    tally: Tally,
    /// The operator's reason, and how long each node still keeps the grant.
    revoked: Option<String>,
    left: Vec<Duration>,
    /// How long each node keeps a grant that was not revoked.
    kept: Vec<Duration>,
    error: Option<LockError>,
    /// Foreign data under the name.
    foreign: Option<LockError>,
    keeps: Vec<usize>,
}

/// Renews the leases of one call.
pub(super) async fn renew(
    set: &Arc<NodeSet>,
    renewals: &[&RenewRequest],
) -> Vec<Result<RenewReply, LockError>> {
    let began = set.clock.now();
    let view = match set.view().await {
        Ok(view) => view,
        Err(error) => return renewals.iter().map(|_| Err(error.clone())).collect(),
    };
    let longest = view.configuration.max_lease();
    let mut batch = RenewalBatch::new(set, began, renewals, longest);
    let deadline = batch.deadline();
    let sent: Arc<[RenewRequest]> = batch.sent().into_iter().cloned().collect();
    // Registered before the first request is sent, for a release that comes in between.
    let in_progress: Vec<Option<RenewalInFlight>> =
        sent.iter().map(|request| RenewalInFlight::of(set, request)).collect();
    let mut in_flight = InFlight::with_capacity(set.members.len());
    for (node, eligibility) in view.nodes.iter().enumerate() {
        let proof = match set.proof_for(node, eligibility) {
            Ok(proof) => proof,
            Err(why) => {
                batch.skipped(node, why);
                continue;
            }
        };
        batch.asked(node);
        let set = set.clone();
        let proof = proof.clone();
        let sent = sent.clone();
        in_flight.push(node, async move {
            let call = || requests::renew(&set.context, &proof, &sent).within(deadline);
            let reply = set.members[node].link().call_of(Some(proof.marker()), call).await;
            reply.and_then(|reply| replies::renewed(&reply, &proof, sent.len()))
        });
    }
    batch.collect(&mut in_flight).await;
    let renewed = batch.renewals.iter().filter(|renewal| renewal.error.is_none());
    let healings = renewed
        .zip(in_progress)
        .map(|(renewal, in_progress)| renewal.healing(&view, in_progress?))
        .collect();
    healing::begin(set, view, in_flight, healings);
    batch.replies()
}

impl<'a> RenewalBatch<'a> {
    /// Starts counting. Rejects leases that are longer than `longest`.
    pub(super) fn new(
        set: &'a NodeSet,
        began: Moment,
        renewals: &[&'a RenewRequest],
        longest: Duration,
    ) -> RenewalBatch<'a> {
        let nodes = set.members.len();
        let renewal = |request: &&'a RenewRequest| LeaseRenewal::new(request, nodes, longest);
        RenewalBatch {
            set,
            began,
            renewals: renewals.iter().map(renewal).collect(),
            outcomes: vec![NodeOutcome::Open; nodes],
        }
    }

    /// Returns the renewals to send.
    pub(super) fn sent(&self) -> Vec<&'a RenewRequest> {
        let sent = self.renewals.iter().filter(|renewal| renewal.error.is_none());
        sent.map(|renewal| renewal.request).collect()
    }

    /// Returns the deadline of a request to a node.
    pub(super) fn deadline(&self) -> Duration {
        let shortest = self.renewals.iter().map(|renewal| renewal.lease).min();
        self.set.node_deadline(shortest.unwrap_or_default())
    }

    /// Records that a node is asked now.
    pub(super) fn asked(&mut self, node: usize) {
        let now = self.set.clock.now();
        self.renewals.iter_mut().for_each(|renewal| renewal.tally.asked(node, now));
    }

    /// Records why a node is not asked.
    pub(super) fn skipped(&mut self, node: usize, why: NodeOutcome) {
        self.outcomes[node] = why;
    }

    /// Collects answers until every renewal is decided.
    pub(super) async fn collect(&mut self, in_flight: &mut InFlight<'_, BatchReply>) {
        while self.is_open()
            && let Some((node, answer)) = in_flight.next().await
        {
            self.note(node, answer);
        }
    }

    fn is_open(&mut self) -> bool {
        let now = self.set.clock.now();
        let mut is_open = false;
        // Evaluates all of them, so that each decision is made now.
        for renewal in self.renewals.iter_mut().filter(|renewal| renewal.error.is_none()) {
            is_open |= renewal.tally.decide(now) == RenewalOutcome::Pending;
        }
        is_open
    }

    fn note(&mut self, node: usize, answer: BatchReply) {
        let sent = self.renewals.iter_mut().filter(|renewal| renewal.error.is_none());
        self.outcomes[node] = match answer {
            Ok(Ok(replies)) => {
                sent.zip(replies).for_each(|(renewal, reply)| renewal.note(node, reply));
                return;
            }
            Ok(Err(why)) => {
                self.set.wake_maintenance();
                NodeOutcome::Refused(why)
            }
            Err(error) => NodeOutcome::Failed(error),
        };
        sent.for_each(|renewal| renewal.tally.unanswered(node));
    }

    pub(super) fn replies(self) -> Vec<Result<RenewReply, LockError>> {
        let RenewalBatch { set, began, renewals, outcomes } = self;
        renewals.into_iter().map(|renewal| renewal.reply(set, began, &outcomes)).collect()
    }
}

impl<'a> LeaseRenewal<'a> {
    fn new(request: &'a RenewRequest, nodes: usize, longest: Duration) -> LeaseRenewal<'a> {
        let lease = match request.purpose {
            Purpose::Keep(hold) => hold.duration().unwrap_or_default(),
            // Only checks whether a majority holds it, for any time.
            Purpose::Wait => longest,
        };
        LeaseRenewal {
            request,
            lease,
            tally: Tally::new(nodes, lease),
            revoked: None,
            left: Vec::new(),
            kept: Vec::new(),
            error: check_lease(longest, lease).err(),
            foreign: None,
            keeps: Vec::new(),
        }
    }

    fn note(&mut self, node: usize, reply: Result<NodeRenewal, LockError>) {
        match reply {
            Ok(NodeRenewal::Kept { left }) => {
                self.tally.kept(node);
                self.keeps.push(node);
                self.kept.push(left);
            }
            Ok(NodeRenewal::Gone { free }) => self.tally.gone(node, free),
            Ok(NodeRenewal::Revoked { reason, left }) => {
                self.revoked.get_or_insert(reason);
                self.left.push(left);
                self.tally.gone(node, false);
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Foreign { .. }) {
                    self.foreign.get_or_insert(error);
                }
                self.tally.unanswered(node);
            }
        }
    }

    /// Returns the healing that follows, if the renewal succeeded.
    fn healing(&self, view: &MembershipView, in_progress: RenewalInFlight) -> Option<Healing> {
        if !self.tally.is_good() {
            return None;
        }
        let mut healing = Healing::new(self.request, self.lease, in_progress);
        self.keeps.iter().for_each(|node| healing.add_holder(view, *node));
        self.tally.to_heal().for_each(|node| healing.add_missing(view, node));
        Some(healing)
    }

    fn reply(
        mut self,
        set: &NodeSet,
        began: Moment,
        outcomes: &[NodeOutcome],
    ) -> Result<RenewReply, LockError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        match self.tally.decide(set.clock.now()) {
            RenewalOutcome::Renewed { .. } if self.request.purpose == Purpose::Wait => {
                let left = end_of_majority(self.kept, outcomes.len());
                Ok(RenewReply::Held { left })
            }
            RenewalOutcome::Renewed { valid_until } => {
                let left = began.until(valid_until).min(self.lease);
                Ok(RenewReply::Renewed { left: Some(left) })
            }
            RenewalOutcome::Lost => Ok(match self.revoked {
                Some(reason) => {
                    // A majority keeps it until the first of its nodes ends it.
                    let left = end_of_majority(self.left, outcomes.len());
                    RenewReply::Revoked { reason, left: Some(left.unwrap_or_default()) }
                }
                None => RenewReply::Unknown,
            }),
            RenewalOutcome::Pending | RenewalOutcome::Unknown => {
                if let Some(error) = self.foreign {
                    return Err(foreign(&error));
                }
                Err(set.no_quorum(outcomes).with_certainty(Certainty::Unknown))
            }
        }
    }
}
