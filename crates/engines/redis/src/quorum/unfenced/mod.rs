//! A quorum without tokens: each node executes the commands of other Redlock libraries, and a
//! majority decides.
//!
//! Usually `SET key value NX PX …` acquires a name, a compare-and-delete frees it, and a
//! compare-and-expire renews it; in the dialect of Redisson each node has an `RLock`. A node keeps
//! nothing else, so the servers need no initialisation. But a loss of data is not detected either:
//! such a node votes again at once.
//!
//! - Invariant B1: a foreign value is never overwritten, extended or deleted: each command compares
//!   and acts in one step.
//! - Invariant B2: after an undo of a lease id may have been sent, this process does not request
//!   that id again on any node, until no grant under it can exist.
//!
//! Read next: `attempt` for an acquire, and `commands` for what the nodes are sent.

mod attempt;
mod renewal;

use std::sync::Arc;

use holdline_core::quorum::majority;
use holdline_core::{Certainty, ErrorKind, LockError, LockName, Moment, OperationReply};

pub(super) use attempt::{acquire, acquire_known};
pub(super) use renewal::renew;

use super::commands::{Commands, Unfenced};
use super::member::FIRST_CONNECTION_TIMEOUT;
use super::name_reports::NameReports;
use super::outcome::NodeOutcome;
use super::set::{FIRST_GRACE, NodeSet};
use crate::in_flight::InFlight;
use crate::link::Link;

/// Sends a request to those of the nodes that answer, and waits for all of them.
async fn ask_all<'a, T, F>(
    set: &'a NodeSet,
    unfenced: &'a Unfenced,
    nodes: impl IntoIterator<Item = usize>,
    ask: impl Fn(&'a Commands, &'a Link) -> F,
) -> Vec<(usize, Result<T, LockError>)>
where
    F: Future<Output = Result<T, LockError>> + Send + 'a,
{
    let mut in_flight = InFlight::with_capacity(set.members.len());
    for node in nodes {
        if set.answers(node) {
            in_flight.push(node, ask(&unfenced.commands, set.members[node].link()));
        }
    }
    in_flight.all().await
}

/// Asks all nodes that answer for the holder of the name.
pub(super) async fn inspect_nodes(
    set: &NodeSet,
    unfenced: &Unfenced,
    name: &LockName,
) -> NameReports {
    let nodes = set.members.len();
    let mut reports = NameReports::new(nodes);
    let ask = |commands, node| Commands::inspect(commands, node, name);
    for (node, answer) in ask_all(set, unfenced, 0..nodes, ask).await {
        reports.add(node, answer);
    }
    reports
}

/// Ends the hold of the holder with this id on each node that shows it, also on a minority.
pub(super) async fn revoke_holder(
    set: &NodeSet,
    unfenced: &Unfenced,
    name: &LockName,
    holder: &str,
) -> Result<OperationReply, LockError> {
    let nodes = set.members.len();
    let mut outcomes = vec![NodeOutcome::Open; nodes];
    let mut answered = 0;
    let mut done = 0;
    let ask = |commands, node| Commands::force(commands, node, name, holder);
    for (node, answer) in ask_all(set, unfenced, 0..nodes, ask).await {
        match answer {
            Ok(OperationReply::NothingThere) => answered += 1,
            Ok(_) => {
                answered += 1;
                done += 1;
            }
            Err(error) => outcomes[node] = NodeOutcome::Failed(error),
        }
    }
    if answered < majority(nodes) {
        return Err(set.no_quorum(&outcomes).with_certainty(Certainty::Unknown));
    }
    Ok(if done == 0 { OperationReply::NothingThere } else { OperationReply::Done })
}

/// Waits a limited time until enough nodes are connected, or their connections have failed.
///
/// # Errors
/// `Refused`: so many nodes reject us that there is no majority.
pub(super) async fn connect(set: &Arc<NodeSet>) -> Result<(), LockError> {
    let nodes = set.members.len();
    let needed = majority(set.members.len());
    let mut in_flight = InFlight::with_capacity(nodes);
    for (at, member) in set.members.iter().enumerate() {
        in_flight.push(at, member.link().ready_within(FIRST_CONNECTION_TIMEOUT));
    }
    let mut ready = 0;
    let mut refused = Vec::new();
    let mut end = Moment::NEVER;
    loop {
        match in_flight.next_before(end, &*set.clock).await {
            None => break,
            Some((_, Ok(_))) => ready += 1,
            Some((_, Err(error))) if matches!(error.kind(), ErrorKind::Refused { .. }) => {
                refused.push(error);
            }
            Some((_, Err(error))) => tracing::debug!(%error, "a node is not connected yet"),
        }
        // The slower nodes get a moment, so that the first requests do not leave them out.
        if ready >= needed && end == Moment::NEVER {
            end = set.clock.now().after(FIRST_GRACE);
        }
    }
    match refused.pop() {
        Some(error) if refused.len() >= nodes - needed => Err(error),
        _ => Ok(()),
    }
}
