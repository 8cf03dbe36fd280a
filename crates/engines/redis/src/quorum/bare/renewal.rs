//! Renewal of leases: a batch goes to all nodes that answer, and each line is counted for itself.
//!
//! Nothing is taken again where a node has lost it: without a mark on the node, what comes late
//! could not be told from what was given up.

use std::sync::Arc;

use holdline_core::lease::MAX_LEASE;
use holdline_core::{LockError, RenewReply, RenewRequest};

use super::Bare;
use crate::native;
use crate::quorum::race::Race;
use crate::quorum::renewal::Batch;
use crate::quorum::replies::Renewed;
use crate::quorum::set::Set;

/// Renews the lines of one call.
pub(in crate::quorum) async fn renew(
    set: &Arc<Set>,
    bare: &Bare,
    lines: &[&RenewRequest],
) -> Vec<Result<RenewReply, LockError>> {
    let mut batch = Batch::new(set, set.clock.now(), lines, MAX_LEASE);
    let (sent, deadline) = (batch.sent(), batch.deadline());
    let mut race = Race::with_room(set.members.len());
    for (node, member) in set.members.iter().enumerate() {
        if !set.answers(node) {
            batch.spared(node, member.excuse());
            continue;
        }
        batch.asked(node);
        let sent = &sent;
        race.add(node, async move {
            let reply = member.node().call(|| bare.asker.renew(sent).within(deadline)).await?;
            let replies = native::renewed(&reply, sent.len())?;
            Ok(Ok(replies.into_iter().map(|line| line.map(|reply| of_node(&reply))).collect()))
        });
    }
    batch.hear(&mut race).await;
    batch.replies()
}

/// What one node says, as a vote.
fn of_node(reply: &RenewReply) -> Renewed {
    match *reply {
        RenewReply::Renewed { left } | RenewReply::Handed { claim_within: left } => {
            Renewed::Kept { left: left.unwrap_or_default() }
        }
        _ => Renewed::Gone { free: false },
    }
}
