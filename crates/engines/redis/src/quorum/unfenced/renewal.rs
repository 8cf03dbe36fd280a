//! Renewal of leases: a batch goes to all nodes that answer, and each renewal is counted
//! separately.
//!
//! A missing lease is not healed: without tombstones on the nodes, a late healing could restore a
//! lease that was undone.

use std::sync::Arc;

use holdline_core::lease::MAX_LEASE;
use holdline_core::{LockError, RenewReply, RenewRequest};

use super::Unfenced;
use crate::in_flight::InFlight;
use crate::quorum::outcome::NodeOutcome;
use crate::quorum::renewal::RenewalBatch;
use crate::quorum::replies::NodeRenewal;
use crate::quorum::set::NodeSet;

/// Renews the leases of one call.
pub(in crate::quorum) async fn renew(
    set: &Arc<NodeSet>,
    unfenced: &Unfenced,
    requests: &[&RenewRequest],
) -> Vec<Result<RenewReply, LockError>> {
    let mut batch = RenewalBatch::new(set, set.clock.now(), requests, MAX_LEASE);
    let sent = batch.sent();
    let deadline = batch.deadline();
    let mut in_flight = InFlight::with_capacity(set.members.len());
    for (node, member) in set.members.iter().enumerate() {
        if !set.answers(node) {
            batch.skipped(node, NodeOutcome::NotAsked(member.failure_text()));
            continue;
        }
        batch.asked(node);
        let sent = &sent;
        in_flight.push(node, async move {
            let replies = unfenced.commands.renew(member.link(), sent, deadline).await?;
            Ok(Ok(replies.into_iter().map(|reply| reply.map(|reply| of_node(&reply))).collect()))
        });
    }
    batch.collect(&mut in_flight).await;
    batch.replies()
}

/// Turns a node's reply into a vote.
fn of_node(reply: &RenewReply) -> NodeRenewal {
    match *reply {
        RenewReply::Renewed { left } | RenewReply::Held { left } => {
            NodeRenewal::Kept { left: left.unwrap_or_default() }
        }
        _ => NodeRenewal::Gone { free: false },
    }
}
