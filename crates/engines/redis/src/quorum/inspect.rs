//! The state of a name by the nodes' reports, and an operator's commands.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{majority, proven};
use holdline_core::{
    Certainty, ErrorKind, FencingToken, GrantState, HolderView, LockError, LockName,
    OperationReply, ShortLeaseId, Snapshot,
};

use super::foreign;
use super::membership::MembershipView;
use super::outcome::NodeOutcome;
use super::replies;
use super::requests;
use super::set::NodeSet;
use super::unfenced;
use crate::error::protocol;
use crate::in_flight::InFlight;
use crate::link::{Call, Value};
use crate::native::RequestContext;

/// The nodes' reports of a name.
pub(super) struct NameReports {
    /// Each node that answered, with the holder there.
    nodes: Vec<(usize, Option<HolderView>)>,
    outcomes: Vec<NodeOutcome>,
    failure: Option<LockError>,
}

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

impl NameReports {
    /// Starts without an answer of any node.
    pub(super) fn new(nodes: usize) -> NameReports {
        NameReports { nodes: Vec::new(), outcomes: vec![NodeOutcome::Open; nodes], failure: None }
    }

    /// Adds a node's report.
    pub(super) fn add(&mut self, node: usize, snapshot: Result<Snapshot, LockError>) {
        match snapshot {
            Ok(snapshot) => self.nodes.push((node, snapshot.holders.into_iter().next())),
            Err(error) => {
                self.outcomes[node] = NodeOutcome::Failed(error.clone());
                self.failure = Some(error);
            }
        }
    }

    /// Returns the holder of the name on a majority.
    fn holder(&self) -> Option<HolderView> {
        let holders = || self.nodes.iter().filter_map(|(_, holder)| holder.as_ref());
        let of = |id: ShortLeaseId| holders().filter(move |one| one.summary.lease_id == id);
        // A node without an answer may have the same holder: missing answers free no name.
        let unanswered = self.outcomes.len() - self.nodes.len();
        let needed = majority(self.outcomes.len());
        let id = holders()
            .map(|one| one.summary.lease_id)
            .find(|id| of(*id).count() + unanswered >= needed)?;
        // Not all nodes need have its token.
        let mut views: Vec<&HolderView> = of(id).collect();
        // Leases without an end come last.
        views.sort_by_key(|view| view.summary.left.unwrap_or(Duration::MAX));
        let mut view = (*views.get(views.len().saturating_sub(needed))?).clone();
        let tokens: Vec<FencingToken> =
            views.iter().filter_map(|view| view.summary.token).collect();
        // A node that voted late may have another one on record.
        let proven = proven(&tokens, self.outcomes.len());
        view.summary.token = proven.or_else(|| tokens.iter().copied().max());
        view.summary.held_for = views.iter().filter_map(|view| view.summary.held_for).max();
        if let Some(revoked) = views.iter().find(|view| view.state != GrantState::Held) {
            view.state = revoked.state.clone();
        }
        Some(view)
    }
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
    let (mut done, mut nothing, mut reply) = (0, 0, None);
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
