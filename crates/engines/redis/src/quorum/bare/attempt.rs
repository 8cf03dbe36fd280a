//! One attempt at a name: the same command to all nodes at once, decided as soon as a majority has
//! taken it or no longer can. What a lost attempt has taken is given up as in a set.

use std::sync::Arc;
use std::time::Duration;

use holdline_core::quorum::{Ballot, Refusal, Verdict, Vote, majority};
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, ErrorKind, FencingToken, LockError, Moment,
};

use super::Bare;
use crate::error::protocol;
use crate::node::Value;
use crate::quorum::ENGINE;
use crate::quorum::attempt::{Busy, crowded};
use crate::quorum::race::Race;
use crate::quorum::release::{self, Parting};
use crate::quorum::renewal::foreign;
use crate::quorum::set::Set;

/// No token is given; the smallest of all is refused by whoever has ever seen one.
const NO_TOKEN: FencingToken = FencingToken::MIN;

/// One attempt.
struct Attempt<'a> {
    set: &'a Arc<Set>,
    bare: &'a Bare,
    request: &'a AcquireRequest,
    ballot: Ballot,
    began: Moment,
    lease: Duration,
    /// Of each node, why it gave no vote.
    lines: Vec<Option<String>>,
    /// Where somebody has the name, and where it was taken for us.
    busy: Vec<usize>,
    granted: Vec<usize>,
    /// Why nodes do not let us in.
    refused: Vec<LockError>,
}

/// Asks for a name once.
pub(in crate::quorum) async fn acquire(
    set: &Arc<Set>,
    bare: &Bare,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    let began = set.clock.now();
    if bare.given_up.has(request.lease_id, || began) {
        return Err(cancelled());
    }
    let lease = request.hold.duration().unwrap_or_default();
    let nodes = set.members.len();
    let attempt = Attempt {
        set,
        bare,
        request,
        // What is told of the lease counts from when the call began; drift is taken off there.
        ballot: Ballot::new(nodes, lease, 0),
        began,
        lease,
        lines: vec![None; nodes],
        busy: Vec::new(),
        granted: Vec::new(),
        refused: Vec::new(),
    };
    attempt.run().await
}

impl Attempt<'_> {
    async fn run(mut self) -> Result<AcquireReply, LockError> {
        let Attempt { set, bare, request, lease, .. } = self;
        let (affinity, deadline) = (*request.lease_id.as_bytes(), set.node_deadline(lease));
        let command = bare.asker.take(request);
        let mut race = Race::with_room(set.members.len());
        for (node, member) in set.members.iter().enumerate() {
            if !set.answers(node) {
                self.lines[node] = Some(member.excuse());
                continue;
            }
            self.ballot.asked(node, set.clock.now());
            race.add(node, member.node().send(&command, Some(affinity), deadline));
        }
        loop {
            match self.ballot.decide(set.clock.now()) {
                Verdict::Won { valid_until, .. } => {
                    let left = Some(self.began.until(valid_until).min(lease));
                    return Ok(AcquireReply::Granted { token: NO_TOKEN, left, anchor: None });
                }
                Verdict::Lost => break,
                Verdict::Open => {}
            }
            let Some((node, answer)) = race.next().await else { break };
            self.note(node, answer);
        }
        drop(race);
        self.lost().await
    }

    fn note(&mut self, node: usize, answer: Result<Value, LockError>) {
        match answer {
            Ok(Value::Nil) => {
                self.lines[node] = Some("held by somebody".to_owned());
                self.busy.push(node);
                self.ballot.voted(node, Vote::Busy);
            }
            Ok(reply) if reply.as_text() == Some("OK") => {
                self.lines[node] = Some("granted".to_owned());
                self.granted.push(node);
                self.ballot.voted(node, Vote::Granted { last: NO_TOKEN });
            }
            Ok(_) => {
                let error = protocol("a taken lock was answered neither OK nor nothing");
                self.lines[node] = Some(error.kind().to_string());
                self.ballot.unanswered(node);
            }
            Err(error) => {
                self.lines[node] = Some(error.kind().to_string());
                match error.certainty() {
                    Certainty::NotApplied => self.ballot.refused(node, Refusal::Unreached),
                    Certainty::Applied | Certainty::Unknown => self.ballot.unanswered(node),
                }
                if matches!(error.kind(), ErrorKind::Refused { .. }) {
                    self.refused.push(error);
                }
            }
        }
    }

    /// Gives up what was taken, and says why the name was not had.
    async fn lost(mut self) -> Result<AcquireReply, LockError> {
        let Attempt { set, bare, request, lease, .. } = self;
        let parting = Arc::new(Parting {
            name: request.name.clone(),
            lease_id: request.lease_id,
            lease,
            deadline: set.node_deadline(lease),
        });
        let nodes: Vec<(usize, bool)> =
            self.ballot.to_give_up().map(|node| (node, self.granted.contains(&node))).collect();
        if !nodes.is_empty() {
            bare.give_up(set, &parting);
        }
        let (total, granted) = (self.lines.len(), self.granted.len());
        let (needed, awaited) = (majority(total), self.ballot.awaited().count());
        let giving_up = release::give_up(set, parting, nodes);
        // Where several have a part of the name and nobody all, it does not matter who they are.
        let looking = self.look(granted == 0 || self.busy.len() >= needed);
        let ((), (busy, found)) = tokio::join!(giving_up, looking);
        if !busy.is_empty() && busy.len() + granted + awaited >= needed {
            return Ok(crowded(set, busy, granted, awaited).await);
        }
        if let Some(error) = found {
            return Err(foreign(&error));
        }
        // What waiting does not mend is told as that.
        if self.refused.len() > total - needed
            && let Some(error) = self.refused.pop()
        {
            return Err(error);
        }
        Err(set.no_quorum(&self.lines).with_certainty(Certainty::NotApplied))
    }

    /// Looks who has the name where somebody has; and what stands there that is no lock.
    async fn look(&self, really: bool) -> (Vec<Busy>, Option<LockError>) {
        let nobody = || Busy { holder: None, left: None };
        if !really {
            return (self.busy.iter().map(|_| nobody()).collect(), None);
        }
        let (bare, name) = (self.bare, &self.request.name);
        let nodes = self.busy.iter().copied();
        let answers = bare.ask_all(self.set, nodes, |asker| asker.inspect(name)).await;
        // Those that do not answer any more said that somebody has it.
        let silent = self.busy.len() - answers.len();
        let (mut busy, mut found): (Vec<Busy>, _) = ((0..silent).map(|_| nobody()).collect(), None);
        for (_, answer) in answers {
            match answer.and_then(|reply| bare.reading.looked(&reply)) {
                Ok(Some(held)) => {
                    busy.push(Busy { holder: Some(Box::new(held.summary())), left: held.left });
                }
                // It was freed in between.
                Ok(None) => busy.push(Busy { holder: None, left: Some(Duration::ZERO) }),
                Err(error) if matches!(error.kind(), ErrorKind::Foreign { .. }) => {
                    found = Some(error);
                }
                // Somebody had it a moment ago.
                Err(_) => busy.push(nobody()),
            }
        }
        (busy, found)
    }
}

fn cancelled() -> LockError {
    LockError::new(ENGINE, ErrorKind::Cancelled, Certainty::NotApplied)
}

/// Asks under an id that was granted before: what is left.
pub(in crate::quorum) async fn again(
    set: &Arc<Set>,
    bare: &Bare,
    request: &AcquireRequest,
) -> Result<AcquireReply, LockError> {
    if bare.given_up.has(request.lease_id, || set.clock.now()) {
        return Err(cancelled());
    }
    let nodes = set.members.len();
    let answers = bare.ask_all(set, 0..nodes, |asker| asker.inspect(&request.name)).await;
    let lease = bare.asker.format.write(request.lease_id);
    let (mut lines, mut lefts, mut others) = (vec![None; nodes], Vec::new(), 0);
    for (node, answer) in answers {
        match answer.and_then(|reply| bare.reading.looked(&reply)) {
            Ok(Some(held)) if held.is(&lease) => {
                lines[node] = Some("granted".to_owned());
                lefts.push(held.left.unwrap_or_default());
            }
            Ok(_) => {
                lines[node] = Some("holds nothing of it".to_owned());
                others += 1;
            }
            Err(error) => lines[node] = Some(error.kind().to_string()),
        }
    }
    let needed = majority(nodes);
    lefts.sort_unstable_by(|one, other| other.cmp(one));
    match lefts.get(needed - 1) {
        Some(left) => {
            let left = Some((*left).min(request.hold.duration().unwrap_or(*left)));
            Ok(AcquireReply::Granted { token: NO_TOKEN, left, anchor: None })
        }
        None if others > nodes - needed => Ok(AcquireReply::Unknown),
        None => Err(set.no_quorum(&lines).with_certainty(Certainty::Unknown)),
    }
}
