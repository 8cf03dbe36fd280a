//! A repeated request under a lease id that was granted before.

use std::sync::Arc;

use holdline_core::quorum::{end_of_majority, majority, proven};
use holdline_core::{AcquireReply, AcquireRequest, Certainty, LockError};

use super::outcome::{NodeOutcome, ended_error};
use super::replies::{self, VoteReply};
use super::requests::{self, AcquireKind};
use super::set::NodeSet;
use crate::in_flight::InFlight;

/// Repeats a request under an id that was granted before: returns the same token, and the time
/// left. A node where the lease was healed proves nothing (Q6).
pub(super) async fn acquire_known(
    set: &Arc<NodeSet>,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let view = set.view().await?;
    let deadline = set.node_deadline(request.hold.duration().unwrap_or_default());
    let mut in_flight = InFlight::with_capacity(set.members.len());
    for (node, node_state) in view.nodes.iter().enumerate() {
        let Ok(proof) = node_state else { continue };
        in_flight.push(node, async move {
            let call = || {
                requests::acquire(&set.context, proof, request, 0, AcquireKind::Known)
                    .within(deadline)
            };
            let reply = set.members[node].link().call_of(Some(proof.marker()), call).await;
            reply.and_then(|reply| replies::voted(&reply, proof))
        });
    }
    let mut outcomes = view.outcomes(set.clock.now());
    let mut tokens = Vec::new();
    let mut lefts = Vec::new();
    let mut unknown = 0;
    let mut reason = None;
    let nodes = outcomes.len();
    let needed = majority(outcomes.len());
    while let Some((node, answer)) = in_flight.next().await {
        match answer {
            Ok(VoteReply::Held { last, left }) => {
                tokens.push(last);
                lefts.push((last, left));
            }
            Ok(VoteReply::Healed { .. }) => {
                outcomes[node] = NodeOutcome::Healed;
            }
            Ok(VoteReply::Cancelled { revoked }) => {
                reason = Some(reason.take().flatten().or(revoked));
            }
            Ok(VoteReply::Refused(why)) => outcomes[node] = NodeOutcome::Refused(why),
            Ok(_) => unknown += 1,
            Err(error) => outcomes[node] = NodeOutcome::Failed(error),
        }
        if let Some(token) = proven(&tokens, nodes) {
            let same = lefts.into_iter().filter(|(last, _)| *last == token);
            let left = end_of_majority(same.map(|(_, left)| left), nodes);
            return Ok(AcquireReply::Granted { token, left, anchor: None });
        }
    }
    match reason {
        Some(revoked) => Err(ended_error(revoked)),
        None if unknown >= needed => Ok(AcquireReply::Unknown),
        None => Err(set.no_quorum(&outcomes).with_certainty(Certainty::Unknown)),
    }
}
