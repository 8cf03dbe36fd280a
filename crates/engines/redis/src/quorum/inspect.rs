//! The state of a name by the nodes' reports, and an operator's commands.

use std::sync::Arc;

use holdline_core::quorum::majority;
use holdline_core::{
    Certainty, ErrorKind, FencingToken, LockError, LockName, OperationReply, Snapshot,
};

use super::foreign;
use super::membership::MembershipView;
use super::name_reports::NameReports;
use super::outcome::NodeOutcome;
use super::replies;
use super::requests;
use super::set::NodeSet;
use super::unfenced;
use crate::error::protocol;
use crate::in_flight::InFlight;
use crate::link::{Call, Value};
use crate::native::RequestContext;

/// Sends the same request to all nodes that vote, and returns the answers that arrive in time. The
/// data of other nodes does not count.
async fn ask_all(
    set: &NodeSet,
    view: &MembershipView,
    make: impl Fn(&RequestContext) -> Call + Sync,
) -> Vec<(usize, Result<Value, LockError>)> {
    let mut in_flight = InFlight::with_capacity(set.members.len());
    let make = &make;
    for (node, eligibility) in view.nodes.iter().enumerate() {
        let Ok(proof) = eligibility else { continue };
        let marker = Some(proof.marker());
        let member = &set.members[node];
        in_flight
            .push(node, async move { member.link().call_of(marker, || make(&set.context)).await });
    }
    in_flight.all().await
}

async fn inspect_nodes(set: &NodeSet, view: &MembershipView, name: &LockName) -> NameReports {
    let names = [name.clone()];
    let answers = ask_all(set, view, |context| requests::inspect(context, &names)).await;
    let mut reports = NameReports::new(set.members.len());
    reports.outcomes = view.outcomes(set.clock.now());
    for (node, answer) in answers {
        let missing = || Err(protocol("a name is missing in the reply"));
        let all = answer.and_then(|reply| replies::inspected(&reply, &names));
        reports.add(node, all.and_then(|mut all| all.pop().unwrap_or_else(missing)));
    }
    reports
}

/// Returns the state of a name.
pub(super) async fn inspect(set: &Arc<NodeSet>, name: &LockName) -> Result<Snapshot, LockError> {
    let reports = match &set.unfenced {
        Some(unfenced) => unfenced::inspect_nodes(set, unfenced, name).await,
        None => inspect_nodes(set, &*set.view().await?, name).await,
    };
    if reports.nodes.len() < majority(set.members.len()) {
        return Err(match reports.failure {
            Some(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => foreign(&error),
            _ => set.no_quorum(&reports.outcomes),
        });
    }
    let mut snapshot = Snapshot::free(name.clone());
    if let Some(holder) = reports.holder() {
        snapshot.holder_count = 1;
        snapshot.holders.push(holder);
    }
    snapshot.servers = Some(reports.holds());
    if !snapshot.is_used() {
        // The rest of a split vote, or of a request that is being undone: it ends by itself.
        snapshot.servers = None;
    }
    Ok(snapshot)
}

/// Revokes the grant with this token.
pub(super) async fn revoke(
    set: &Arc<NodeSet>,
    name: &LockName,
    token: FencingToken,
    reason: &str,
    now: bool,
) -> Result<OperationReply, LockError> {
    let view = set.view().await?;
    let reports = inspect_nodes(set, &view, name).await;
    let needed = majority(set.members.len());
    if reports.nodes.len() < needed {
        return Err(set.no_quorum(&reports.outcomes));
    }
    let Some(holder) = reports.holder().filter(|view| view.summary.token == Some(token)) else {
        return Ok(OperationReply::NothingThere);
    };
    let id = holder.summary.lease_id;
    let answers =
        ask_all(set, &view, |context| requests::revoke(context, name, id, reason, now)).await;
    decided(set, &view, answers)
}

/// Makes all later tokens larger than `to`.
pub(super) async fn raise(
    set: &Arc<NodeSet>,
    to: FencingToken,
) -> Result<OperationReply, LockError> {
    let view = set.view().await?;
    let answers = ask_all(set, &view, |context| requests::raise(context, to)).await;
    set.note_token(to.get());
    decided(set, &view, answers)
}

/// Decides an operation: it is done when a majority has done it.
fn decided(
    set: &NodeSet,
    view: &MembershipView,
    answers: Vec<(usize, Result<Value, LockError>)>,
) -> Result<OperationReply, LockError> {
    let mut outcomes = view.outcomes(set.clock.now());
    let mut done = 0;
    let mut nothing = 0;
    let mut reply = None;
    for (node, answer) in answers {
        match answer.and_then(|answer| replies::operated(&answer)) {
            Ok(OperationReply::NothingThere) => nothing += 1,
            Ok(other) => {
                done += 1;
                reply = Some(other);
            }
            Err(error) => outcomes[node] = NodeOutcome::Failed(error),
        }
    }
    let needed = majority(outcomes.len());
    match reply {
        Some(reply) if done >= needed => Ok(reply),
        _ if nothing > outcomes.len() - needed => Ok(OperationReply::NothingThere),
        _ => Err(set.no_quorum(&outcomes).with_certainty(Certainty::Unknown)),
    }
}
