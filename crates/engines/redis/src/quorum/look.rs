//! How a name stands, by what the nodes say, and an operator's commands.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::majority;
use holdline_core::{
    Certainty, ErrorKind, FencingToken, HolderView, LockError, LockName, OperationReply,
    ShortLeaseId, Snapshot,
};

use super::bare;
use super::race::Race;
use super::renewal::foreign;
use super::replies;
use super::requests;
use super::roster::{Roster, Seat};
use super::set::Set;
use crate::native::Asker;
use crate::node::{Call, Value};

/// What the nodes say of a name.
pub(super) struct Seen {
    /// Each node that answered, and who has the name there.
    nodes: Vec<(usize, Option<HolderView>)>,
    lines: Vec<Option<String>>,
    failure: Option<LockError>,
}

/// Asks all nodes that vote the same, and hears all who answer in time. What the others keep
/// counts for nothing.
async fn ask_all(
    set: &Set,
    roster: &Roster,
    make: impl Fn(&Asker) -> Call + Sync,
) -> Vec<(usize, Result<Value, LockError>)> {
    let mut race = Race::with_room(set.members.len());
    let make = &make;
    for (node, seat) in roster.seats.iter().enumerate() {
        let Seat::Votes(pass) = seat else { continue };
        let marker = Some(pass.marker());
        let member = &set.members[node];
        race.add(node, async move { member.node().call_of(marker, || make(&set.asker)).await });
    }
    let mut answers = Vec::with_capacity(set.members.len());
    while let Some(answer) = race.next().await {
        answers.push(answer);
    }
    answers
}

async fn see(set: &Set, roster: &Roster, name: &LockName) -> Seen {
    let names = [name.clone()];
    let answers = ask_all(set, roster, |asker| requests::inspect(asker, &names)).await;
    let mut seen = Seen::of_nobody(set.members.len());
    seen.lines = roster.excuses(set.clock.now());
    for (node, answer) in answers {
        let shown =
            answer.and_then(|reply| replies::inspected(&reply, &names)).and_then(|mut all| {
                all.pop().unwrap_or_else(|| Err(crate::error::protocol("a name was not shown")))
            });
        seen.note(node, shown);
    }
    seen
}

impl Seen {
    /// Begins: none of so many nodes has answered.
    pub(super) fn of_nobody(nodes: usize) -> Seen {
        Seen { nodes: Vec::new(), lines: vec![None; nodes], failure: None }
    }

    /// Notes what a node shows.
    pub(super) fn note(&mut self, node: usize, shown: Result<Snapshot, LockError>) {
        match shown {
            Ok(shown) => self.nodes.push((node, shown.holders.into_iter().next())),
            Err(error) => {
                self.lines[node] = Some(error.kind().to_string());
                self.failure = Some(error);
            }
        }
    }

    /// Returns who has the name on a majority.
    fn holder(&self) -> Option<HolderView> {
        let holders = || self.nodes.iter().filter_map(|(_, holder)| holder.as_ref());
        let of = |id: ShortLeaseId| holders().filter(move |one| one.summary.lease_id == id);
        // Who was not heard may have it too: a name is not free for want of answers.
        let unheard = self.lines.len() - self.nodes.len();
        let id = holders()
            .map(|one| one.summary.lease_id)
            .find(|id| of(*id).count() + unheard >= majority(self.lines.len()))?;
        // Its token is the largest that was written down: not all nodes need have that.
        let mut views: Vec<&HolderView> = of(id).collect();
        // What has no end comes last.
        views.sort_by_key(|view| view.summary.left.unwrap_or(Duration::MAX));
        let needed = majority(self.lines.len());
        let mut view = (*views.get(views.len().saturating_sub(needed))?).clone();
        view.summary.token = proven(&views, needed);
        view.summary.held_for = views.iter().filter_map(|view| view.summary.held_for).max();
        if let Some(revoked) = views.iter().find(|view| view.state != view_held()) {
            view.state = revoked.state.clone();
        }
        Some(view)
    }
}

/// The token is the one that a majority has; a node that voted late may have another.
fn proven(views: &[&HolderView], needed: usize) -> Option<FencingToken> {
    let tokens = || views.iter().filter_map(|view| view.summary.token);
    let times = |one: FencingToken| tokens().filter(move |token| *token == one).count();
    tokens().find(|token| times(*token) >= needed).or_else(|| tokens().max())
}

fn view_held() -> holdline_core::GrantState {
    holdline_core::GrantState::Held
}

/// Shows how a name stands.
pub(super) async fn inspect(set: &Arc<Set>, name: &LockName) -> Result<Snapshot, LockError> {
    let seen = match &set.bare {
        Some(bare) => bare::see(set, bare, name).await,
        None => see(set, &*set.roster().await?, name).await,
    };
    if seen.nodes.len() < majority(set.members.len()) {
        return Err(match seen.failure {
            Some(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => foreign(&error),
            _ => set.no_quorum(&seen.lines),
        });
    }
    let mut snapshot = Snapshot::free(name.clone());
    if let Some(holder) = seen.holder() {
        snapshot.holder_count = 1;
        snapshot.holders.push(holder);
    }
    Ok(snapshot)
}

/// Takes the grant with this token away.
pub(super) async fn revoke(
    set: &Arc<Set>,
    name: &LockName,
    token: FencingToken,
    reason: &str,
    now: bool,
) -> Result<OperationReply, LockError> {
    let roster = set.roster().await?;
    let seen = see(set, &roster, name).await;
    let needed = majority(set.members.len());
    if seen.nodes.len() < needed {
        return Err(set.no_quorum(&seen.lines));
    }
    let Some(holder) = seen.holder().filter(|view| view.summary.token == Some(token)) else {
        return Ok(OperationReply::NothingThere);
    };
    let id = holder.summary.lease_id;
    let answers =
        ask_all(set, &roster, |asker| requests::revoke(asker, name, id, reason, now)).await;
    decided(set, &roster, answers)
}

/// Makes all later tokens larger than `to`.
pub(super) async fn raise(set: &Arc<Set>, to: FencingToken) -> Result<OperationReply, LockError> {
    let roster = set.roster().await?;
    let answers = ask_all(set, &roster, |asker| requests::raise(asker, to)).await;
    set.saw(to.get());
    decided(set, &roster, answers)
}

/// An operation is done when a majority has done it.
fn decided(
    set: &Set,
    roster: &Roster,
    answers: Vec<(usize, Result<Value, LockError>)>,
) -> Result<OperationReply, LockError> {
    let mut lines = roster.excuses(set.clock.now());
    let (mut done, mut nothing, mut reply) = (0, 0, None);
    for (node, answer) in answers {
        match answer.and_then(|answer| replies::operated(&answer)) {
            Ok(OperationReply::NothingThere) => nothing += 1,
            Ok(other) => {
                done += 1;
                reply = Some(other);
            }
            Err(error) => lines[node] = Some(error.kind().to_string()),
        }
    }
    let needed = majority(lines.len());
    match reply {
        Some(reply) if done >= needed => Ok(reply),
        _ if nothing > lines.len() - needed => Ok(OperationReply::NothingThere),
        _ => Err(set.no_quorum(&lines).with_certainty(Certainty::Unknown)),
    }
}
