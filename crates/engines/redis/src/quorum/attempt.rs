//! One attempt at a name: asks all nodes that vote at once, and decides as soon as a majority has
//! granted or no longer can. The [`Ballot`] decides; here its messages are carried.
//!
//! - Invariant T1: an attempt that is lost is given up on every node that may have taken the name,
//!   behind the request that may have. Where a node has answered, it is heard to have forgotten it
//!   before the attempt ends; where it has not, a tombstone waits for the request.
//! - Invariant T2: what a dropped attempt has asked for, the caller gives up.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::ballot::Command;
use holdline_core::quorum::{
    Ballot, Barred, Gate, Refusal, SKEW, Verdict, Vote, Written, majority, proven,
};
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, HolderSummary, LockError, LostReason,
    Moment, ShortLeaseId,
};

use super::ENGINE;
use super::race::Race;
use super::release::{self, Parting};
use super::renewal::foreign;
use super::replies::{self, Admitted, Voted};
use super::requests::{self, Asked, Pass};
use super::roster::{Roster, Seat};
use super::set::Set;

/// What a node answered.
enum Answer {
    Vote(Result<Voted, LockError>),
    Written(Result<Admitted<Written>, LockError>),
}

/// Who has the name on a node, and for how long at most.
pub(super) struct Busy {
    pub(super) holder: Option<Box<HolderSummary>>,
    /// `None` where nothing ends it.
    pub(super) left: Option<Duration>,
}

/// One attempt.
struct Attempt<'a> {
    set: &'a Arc<Set>,
    request: &'a AcquireRequest,
    roster: Arc<Roster>,
    ballot: Ballot,
    began: Moment,
    /// Of each node, why it gave no vote.
    lines: Vec<Option<String>>,
    /// Who has the name, as the nodes say.
    busy: Vec<Busy>,
    /// What stands there that is not ours.
    foreign: Option<LockError>,
    /// The id has the name since before, on a node at least.
    held: bool,
    /// The id is dead; with the operator's words if it was revoked.
    dead: Option<Option<String>>,
    /// A node stands otherwise than we know.
    outdated: bool,
}

/// Asks for a name once.
pub(super) async fn acquire(
    set: &Arc<Set>,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let began = set.clock.now();
    set.may_found();
    let roster = set.roster().await?;
    let lease = request.hold.duration().unwrap_or_default();
    check_lease(roster.configuration.max_lease(), lease)?;
    let nodes = set.members.len();
    let attempt = Attempt {
        set,
        request,
        // What is told of the lease counts from when the call began; drift is taken off there.
        ballot: Ballot::new(nodes, lease, 0),
        roster,
        began,
        lines: vec![None; nodes],
        busy: Vec::new(),
        foreign: None,
        held: false,
        dead: None,
        outdated: false,
    };
    attempt.run(lease).await
}

/// Refuses a lease that the set was not made for.
pub(super) fn check_lease(longest: Duration, lease: Duration) -> Result<(), LockError> {
    if lease <= longest {
        return Ok(());
    }
    let message = format!("must be at most {longest:?}, which these nodes were set up for");
    Err(LockError::invalid(ENGINE, "lease_duration", message))
}

impl Attempt<'_> {
    async fn run(mut self, lease: Duration) -> Result<AcquireReply, LockError> {
        let Attempt { set, request, .. } = self;
        let deadline = set.node_deadline(lease);
        let proposed = set.propose(&self.roster, self.began);
        let roster = self.roster.clone();
        let mut race = Race::with_room(set.members.len());
        for (node, seat) in roster.seats.iter().enumerate() {
            let Some(pass) = self.voter(node, seat) else { continue };
            self.ballot.asked(node, set.clock.now());
            race.add(node, async move {
                let call = || {
                    requests::acquire(&set.asker, pass, request, proposed, SKEW, Asked::Anew)
                        .within(deadline)
                };
                let reply = set.members[node].node().call_of(Some(pass.marker()), call).await;
                Answer::Vote(reply.and_then(|reply| replies::voted(&reply, pass)))
            });
        }
        loop {
            if self.held {
                // The caller asks again under an id of its own: nothing is given up.
                drop(race);
                return again(set, request).await;
            }
            match self.ballot.decide(set.clock.now()) {
                Verdict::Won { token, valid_until } => {
                    set.saw(token.get());
                    let left = self.began.until(valid_until).min(lease);
                    return Ok(AcquireReply::Granted { token, left: Some(left), anchor: None });
                }
                Verdict::Lost => return self.lost(lease).await,
                Verdict::Open => {}
            }
            for Command::WriteBack { node, token } in self.ballot.take_commands() {
                let Seat::Votes(pass) = &self.roster.seats[node] else { continue };
                let pass = pass.clone();
                race.add(node, async move {
                    let (name, id) = (&request.name, request.lease_id);
                    let call = || {
                        requests::write_back(&set.asker, &pass, name, id, token).within(deadline)
                    };
                    let reply = set.members[node].node().call_of(Some(pass.marker()), call).await;
                    Answer::Written(reply.and_then(|reply| replies::written(&reply, &pass)))
                });
            }
            match race.next().await {
                Some((node, answer)) => self.note(node, answer),
                // Nothing is awaited any more, and it is still open: no vote is left to come.
                None => return self.lost(lease).await,
            }
        }
    }

    /// Returns what a node that is asked is shown.
    fn voter<'s>(&mut self, node: usize, seat: &'s Seat) -> Option<&'s Arc<Pass>> {
        let line = match seat {
            Seat::Votes(pass) => match self.set.members[node].is_well(pass.marker()) {
                Ok(true) => return Some(pass),
                Ok(false) => self.set.members[node].excuse(),
                Err(_) => {
                    self.is_outdated();
                    "was started anew".to_owned()
                }
            },
            Seat::Waits(until) => waits(*until, self.began),
            Seat::Out(why) => why.to_string(),
        };
        self.lines[node] = Some(line);
        None
    }

    fn note(&mut self, node: usize, answer: Answer) {
        match answer {
            Answer::Vote(Ok(Voted::Granted { last })) => {
                self.set.saw(last.get());
                self.lines[node] = Some("granted".to_owned());
                self.ballot.voted(node, Vote::Granted { last });
            }
            Answer::Vote(Ok(Voted::Busy { holder, left })) => {
                self.lines[node] = Some(match &holder {
                    Some(holder) => format!("held by {holder}"),
                    None => "held by somebody".to_owned(),
                });
                self.busy.push(Busy { holder, left });
                self.ballot.voted(node, Vote::Busy);
            }
            Answer::Vote(Ok(Voted::Barred(why))) => {
                self.lines[node] = Some(barred(why));
                self.ballot.refused(node, Refusal::Abstained);
                self.is_outdated();
            }
            Answer::Vote(Ok(Voted::Cancelled { revoked })) => {
                let words = self.dead.take().flatten().or(revoked);
                self.dead = Some(words);
                self.ballot.refused(node, Refusal::Abstained);
            }
            Answer::Vote(Ok(Voted::Held { .. } | Voted::Healed { .. })) => {
                self.held = true;
                self.ballot.unanswered(node);
            }
            Answer::Vote(Ok(Voted::Unknown)) => {
                self.lines[node] = Some("answered what it was not asked".to_owned());
                self.ballot.unanswered(node);
            }
            Answer::Vote(Err(error)) => {
                self.lines[node] = Some(error.kind().to_string());
                match error.certainty() {
                    Certainty::NotApplied => self.ballot.refused(node, Refusal::Unreached),
                    Certainty::Applied | Certainty::Unknown => self.ballot.unanswered(node),
                }
                if matches!(error.kind(), ErrorKind::Foreign { .. }) {
                    self.foreign.get_or_insert(error);
                }
            }
            Answer::Written(Ok(Ok(written))) => self.ballot.written(node, written),
            Answer::Written(Ok(Err(_))) => {
                self.is_outdated();
                self.ballot.unanswered(node);
            }
            Answer::Written(Err(_)) => self.ballot.unanswered(node),
        }
    }

    /// Gives up what was taken, and says why the name was not had.
    async fn lost(self, lease: Duration) -> Result<AcquireReply, LockError> {
        let parting = Arc::new(Parting {
            name: self.request.name.clone(),
            lease_id: self.request.lease_id,
            lease,
            deadline: self.set.node_deadline(lease),
        });
        let nodes: Vec<(usize, bool)> =
            self.ballot.to_give_up().map(|node| (node, self.has_voted(node))).collect();
        release::give_up(self.set, parting, nodes).await;
        // A part of a name is none: it was not had, and what may be left of it is given up by us.
        let certainty = Certainty::NotApplied;
        if let Some(revoked) = self.dead {
            return Err(dead(revoked));
        }
        let (needed, granted) = (majority(self.lines.len()), self.granted());
        let open = self.ballot.awaited().count();
        if !self.busy.is_empty() && self.busy.len() + granted + open >= needed {
            return Ok(crowded(self.set, self.busy, granted, open).await);
        }
        if let Some(error) = self.foreign {
            return Err(foreign(&error));
        }
        let waiting = self.roster.seats.iter().filter_map(|seat| match seat {
            Seat::Waits(until) => Some(*until),
            _ => None,
        });
        if let Some(end) = waited_out(waiting, needed, self.busy.len() + granted) {
            let kind = ErrorKind::Quarantined { left: self.set.clock.now().until(end) };
            return Err(LockError::new(ENGINE, kind, certainty));
        }
        let error = self.set.no_quorum(&self.lines).with_certainty(certainty);
        if self.outdated {
            // So that the next attempt is made by what is so now.
            self.set.look_anew(&self.roster, self.set.node_deadline(lease)).await;
        }
        Err(error)
    }

    /// A node stands otherwise than we know.
    fn is_outdated(&mut self) {
        self.outdated = true;
        self.set.ring();
    }

    fn has_voted(&self, node: usize) -> bool {
        self.lines[node].as_deref() == Some("granted")
    }

    fn granted(&self) -> usize {
        (0..self.lines.len()).filter(|node| self.has_voted(*node)).count()
    }
}

/// Returns when a majority votes again, if those that wait are what is lacking: the ones that wait
/// the least are enough.
fn waited_out(
    waiting: impl Iterator<Item = Option<Moment>>,
    needed: usize,
    votes: usize,
) -> Option<Moment> {
    let mut ends: Vec<Moment> = waiting.flatten().collect();
    ends.sort_unstable();
    // Where votes came too late to be of use, none is lacking.
    ends.get(needed.checked_sub(votes + 1)?).copied()
}

/// Somebody has the name, or several have a part of it and nobody all. So many nodes have granted
/// it, and so many have not answered yet.
///
/// Where nobody has it all, a pause by chance comes before the answer: those who only try, again
/// and again, would meet each other for ever without it.
pub(super) async fn crowded(
    set: &Set,
    busy: Vec<Busy>,
    granted: usize,
    open: usize,
) -> AcquireReply {
    let needed = majority(set.members.len());
    let id = |holder: &HolderSummary| holder.lease_id;
    let ids: Vec<_> = busy.iter().filter_map(|busy| busy.holder.as_deref().map(id)).collect();
    let times = |one| ids.iter().filter(|id| **id == one).count();
    let most = ids.iter().copied().max_by_key(|one| times(*one));
    // Beside a node that is lost, fewer than a majority are heard to name the holder.
    let alone = granted == 0 && ids.len() == busy.len();
    let is_held = |one| times(one) >= needed || (alone && times(one) == ids.len());
    let held = most.is_some_and(is_held);
    // A name is free when a majority is: the last of the smallest that leave one, of the nodes that
    // answer. What has no end comes last.
    let mut ends: Vec<Duration> = busy.iter().filter_map(|busy| busy.left).collect();
    ends.sort_unstable();
    let free = granted + open;
    let at_most = needed.checked_sub(free + 1).and_then(|at| ends.get(at)).copied();
    let holder = most.filter(|_| held).and_then(|most| named(busy, most));
    let next_look = match held {
        true => at_most.unwrap_or(LOOK).min(LOOK),
        // Chance parts those who meet: the first to come again has all to itself.
        false => {
            set.clock.sleep_until(set.clock.now().after(set.part(ROUNDS))).await;
            Duration::ZERO
        }
    };
    AcquireReply::Busy { holder, at_most, next_look }
}

/// Tells of a holder what all say who name it: a node that voted late may have another token.
fn named(busy: Vec<Busy>, id: ShortLeaseId) -> Option<Box<HolderSummary>> {
    let holders = busy.into_iter().filter_map(|busy| busy.holder);
    let mut all = holders.filter(|holder| holder.lease_id == id);
    let mut holder = all.next()?;
    if all.any(|other| other.token != holder.token) {
        holder.token = None;
    }
    Some(holder)
}

/// What is said of a lease id that was given up or revoked.
fn dead(revoked: Option<String>) -> LockError {
    let kind = match revoked {
        Some(words) => ErrorKind::Lost { reason: LostReason::Revoked(words) },
        None => ErrorKind::Cancelled,
    };
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// Asks under an id that was granted before: the same token, and what is left. A node where the
/// lease was healed keeps the name for it and proves nothing (Q6).
pub(super) async fn again(
    set: &Arc<Set>,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let roster = set.roster().await?;
    let deadline = set.node_deadline(request.hold.duration().unwrap_or_default());
    let mut race = Race::with_room(set.members.len());
    for (node, seat) in roster.seats.iter().enumerate() {
        let Seat::Votes(pass) = seat else { continue };
        race.add(node, async move {
            let call = || {
                requests::acquire(&set.asker, pass, request, 0, SKEW, Asked::Again).within(deadline)
            };
            let reply = set.members[node].node().call_of(Some(pass.marker()), call).await;
            reply.and_then(|reply| replies::voted(&reply, pass))
        });
    }
    let mut lines = roster.excuses(set.clock.now());
    let (mut tokens, mut lefts, mut unknown, mut words) = (Vec::new(), Vec::new(), 0, None);
    let (nodes, needed) = (lines.len(), majority(lines.len()));
    while let Some((node, answer)) = race.next().await {
        match answer {
            Ok(Voted::Held { last, left }) => {
                tokens.push(last);
                lefts.push((last, left));
            }
            Ok(Voted::Healed { .. }) => {
                lines[node] = Some("was given the lease back, which proves no token".to_owned());
            }
            Ok(Voted::Cancelled { revoked }) => {
                words = Some(words.take().flatten().or(revoked));
            }
            Ok(Voted::Barred(why)) => lines[node] = Some(barred(why)),
            Ok(_) => unknown += 1,
            Err(error) => lines[node] = Some(error.kind().to_string()),
        }
        if let Some(token) = proven(&tokens, nodes) {
            let same = lefts.into_iter().filter(|(last, _)| *last == token);
            let mut lefts: Vec<Duration> = same.map(|(_, left)| left).collect();
            lefts.sort_unstable_by(|one, other| other.cmp(one));
            let left = Some(lefts[needed - 1]);
            return Ok(AcquireReply::Granted { token, left, anchor: None });
        }
    }
    match words {
        Some(revoked) => Err(dead(revoked)),
        None if unknown >= needed => Ok(AcquireReply::Unknown),
        None => Err(set.no_quorum(&lines).with_certainty(Certainty::Unknown)),
    }
}

/// Over how many rounds those who meet are spread.
const ROUNDS: u32 = 12;
/// When to look again at a name that is held, at the latest.
const LOOK: Duration = Duration::from_secs(1);

/// Says why a node does not vote.
pub(super) fn barred(why: Barred) -> String {
    match why {
        Barred::Marker => "was started anew",
        Barred::Gate(Gate::Forgot) => "has lost its memory, and waits",
        Barred::Gate(Gate::Out) => "was replaced by another server",
        Barred::Gate(_) => "was not set up",
        Barred::Configuration => "has another configuration",
    }
    .to_owned()
}

/// Says how long a node keeps still.
pub(super) fn waits(until: Option<Moment>, now: Moment) -> String {
    match until {
        Some(until) => {
            let left = holdline_core::snapshot::coarse(now.until(until));
            format!("has lost its memory, and waits for {left} more")
        }
        None => "has lost its memory, and the others have not agreed yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use holdline_core::{FencingToken, LeaseId, Metadata, Mode};

    use super::*;

    #[test]
    fn a_holder_of_whom_nodes_tell_two_tokens_is_named_without() {
        let busy = |id: u8, token: u64| {
            let holder = HolderSummary {
                lease_id: LeaseId::from_bytes([id; 16]).short(),
                token: FencingToken::new(token).ok(),
                mode: Mode::Exclusive,
                held_for: None,
                left: None,
                metadata: Metadata::default(),
            };
            Busy { holder: Some(Box::new(holder)), left: None }
        };
        let token = |all: Vec<Busy>| {
            let holder = named(all, LeaseId::from_bytes([1; 16]).short()).expect("it is named");
            holder.token.map(FencingToken::get)
        };
        assert_eq!(token(vec![busy(1, 7), busy(2, 9), busy(1, 7)]), Some(7));
        assert_eq!(token(vec![busy(1, 7), busy(1, 8), busy(1, 7)]), None);
        assert!(named(vec![busy(2, 9)], LeaseId::from_bytes([1; 16]).short()).is_none());
    }

    #[test]
    fn a_majority_of_votes_that_came_too_late_lacks_nobody_who_waits() {
        let at = |nanos| Some(Moment::from_nanos(nanos));
        for (waiting, votes, end) in [
            (vec![], 3, None),
            (vec![], 5, None),
            (vec![at(9)], 3, None),
            (vec![at(9), None, at(7)], 2, at(7)),
            (vec![at(9), None, at(7)], 1, at(9)),
            (vec![at(9), None, at(7)], 0, None),
        ] {
            assert_eq!(waited_out(waiting.into_iter(), 3, votes), end, "{votes} votes");
        }
    }
}
