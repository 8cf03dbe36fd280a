//! How a lease is released: on all nodes at once, decided by a majority.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::contract::MIN_TOMBSTONE;
use holdline_core::quorum::majority;
use holdline_core::{Certainty, ErrorKind, LockError, ReleaseReply, ReleaseRequest};

use super::foreign;
use super::in_progress::Undo;
use super::outcome::NodeOutcome;
use super::set::NodeSet;
use super::undo::{finish_in_background, queue_undo};
use crate::in_flight::InFlight;

/// Releases a lease. Nodes that do not answer in time receive the undo in the background.
pub(super) async fn release(
    set: &Arc<NodeSet>,
    request: &ReleaseRequest,
) -> Result<ReleaseReply, LockError> {
    let lease = request.ending.hold.duration().unwrap_or(MIN_TOMBSTONE);
    let undo = Undo::new(set, &request.name, request.lease_id, lease);
    // A request that heals the lease may still arrive: then the id needs a tombstone.
    let for_good = request.ending.for_good || set.renewals_in_flight.contains(request.lease_id);
    let nodes = set.members.len();
    if let (true, Some(unfenced)) = (for_good, &set.unfenced) {
        unfenced.give_up(&undo, set.clock.now());
    }
    let mut in_flight = InFlight::with_capacity(nodes);
    for node in 0..nodes {
        let set = set.clone();
        let undo = undo.clone();
        in_flight.push(node, async move { undo.release(&set, node, for_good).await });
    }
    let outcomes = vec![NodeOutcome::Open; nodes];
    let mut count = ReleaseTally { outcomes, ..ReleaseTally::default() };
    while let Some((node, answer)) = in_flight.next().await {
        if answer.is_err() {
            queue_undo(set, &undo, [node]);
        }
        count.note(node, answer);
        if let Some(reply) = count.decided() {
            finish_in_background(set, &undo, in_flight);
            return Ok(reply);
        }
    }
    if let Some(error) = count.foreign {
        return Err(foreign(&error));
    }
    Err(set.no_quorum(&count.outcomes).with_certainty(Certainty::Unknown))
}

/// The nodes' answers.
#[derive(Default)]
struct ReleaseTally {
    released: usize,
    nothing: usize,
    held_for: Option<Duration>,
    revoked: Option<String>,
    foreign: Option<LockError>,
    outcomes: Vec<NodeOutcome>,
}

impl ReleaseTally {
    fn note(&mut self, node: usize, answer: Result<ReleaseReply, LockError>) {
        let outcome = match answer {
            Ok(ReleaseReply::Released { held_for }) => {
                self.released += 1;
                self.held_for = self.held_for.max(held_for);
                NodeOutcome::Released
            }
            Ok(ReleaseReply::Withdrawn) => NodeOutcome::NothingToRelease,
            Ok(ReleaseReply::NotHeld { revoked }) => {
                self.nothing += 1;
                self.revoked = self.revoked.take().or(revoked);
                NodeOutcome::NothingToRelease
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Foreign { .. }) {
                    self.foreign.get_or_insert(error.clone());
                }
                NodeOutcome::Failed(error)
            }
        };
        self.outcomes[node] = outcome;
    }

    /// Returns the decision of a majority. If too few nodes still held the lease, it was lost
    /// before.
    fn decided(&mut self) -> Option<ReleaseReply> {
        let nodes = self.outcomes.len();
        let needed = majority(nodes);
        if self.released >= needed {
            return Some(ReleaseReply::Released { held_for: self.held_for });
        }
        let lost = self.nothing > nodes - needed;
        lost.then(|| ReleaseReply::NotHeld { revoked: self.revoked.take() })
    }
}
