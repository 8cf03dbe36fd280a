//! One attempt at a name: votes come in, and at some point it is won or cannot be.
//!
//! Whoever carries the messages asks all nodes at once, tells the ballot what came of it, sends
//! what [`Ballot::take_commands`] names, and looks at the [`Verdict`]. A ballot decides as soon as
//! a majority stands or no longer can: a slow or dead node costs nothing. What comes later is told
//! as well; it tells who has to be given up.

use std::time::Duration;

use crate::moment::Moment;
use crate::quorum::majority;
use crate::quorum::register::{Vote, Written};
use crate::token::FencingToken;
use crate::validity;

/// Why a node gave no vote. Nothing is held there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// Another lease id has the name.
    Busy,
    /// It was not asked, because it is suspect.
    Spared,
    /// It was not reached: the request has not left.
    Unreached,
    /// It does not vote, for reasons of its own.
    Abstained,
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Raise the name's counter on a node, behind the request that took it.
    WriteBack {
        /// The node's place in the configuration.
        node: usize,
        /// What to raise it to.
        token: FencingToken,
    },
}

/// How an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// More answers are needed.
    Open,
    /// The name is held.
    Won {
        /// The fencing token.
        token: FencingToken,
        /// Until when the lease may be believed.
        valid_until: Moment,
    },
    /// Too few nodes can still give it.
    Lost,
}

/// What is known of one node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Seat {
    /// Asked, and not heard of yet.
    Asked { sent: Moment },
    /// It may have taken the name for us, and nothing more will be heard of it in time.
    Unknown,
    /// It has the name for us.
    Voted(Held),
    /// It has certainly nothing for us.
    Without(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Held {
    /// Until when this vote may be believed.
    until: Moment,
    /// Where the node's counter stood when it was last heard of, while the name was ours there.
    last: FencingToken,
    writing: bool,
    /// It has not answered a write-back: what it says of the counter is all that it will say.
    mute: bool,
}

/// One attempt. Its lease id is used in no other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballot {
    seats: Vec<Seat>,
    lease: Duration,
    drift_ppm: u32,
    commands: Vec<Command>,
    /// What is written back, once there was a majority of votes.
    target: Option<FencingToken>,
    verdict: Verdict,
}

impl Ballot {
    /// Begins an attempt for a lease over `nodes` nodes. None of them is asked yet.
    pub fn new(nodes: usize, lease: Duration, drift_ppm: u32) -> Ballot {
        Ballot {
            seats: vec![Seat::Without(Refusal::Spared); nodes],
            lease,
            drift_ppm,
            commands: Vec::new(),
            target: None,
            verdict: Verdict::Open,
        }
    }

    /// Notes that a node is asked. `sent` is the clock read before the request leaves.
    pub fn asked(&mut self, node: usize, sent: Moment) {
        if let Some(seat @ Seat::Without(_)) = self.seats.get_mut(node) {
            *seat = Seat::Asked { sent };
        }
    }

    /// Notes how a node voted. Call [`Ballot::decide`] when all that has come was noted.
    pub fn voted(&mut self, node: usize, vote: Vote) {
        let lease = validity::believed(self.lease, self.drift_ppm);
        let Some(seat) = self.seats.get_mut(node) else { return };
        let Seat::Asked { sent } = *seat else { return };
        *seat = match vote {
            Vote::Granted { last } => {
                Seat::Voted(Held { until: sent.after(lease), last, writing: false, mute: false })
            }
            Vote::Busy => Seat::Without(Refusal::Busy),
            // It has the name for us, and proves nothing.
            Vote::Healed => Seat::Unknown,
        };
    }

    /// Notes that a node certainly took nothing.
    pub fn refused(&mut self, node: usize, why: Refusal) {
        if let Some(seat @ Seat::Asked { .. }) = self.seats.get_mut(node) {
            *seat = Seat::Without(why);
        }
    }

    /// Notes that a node will not be heard of in time, whatever it did.
    pub fn unanswered(&mut self, node: usize) {
        match self.seats.get_mut(node) {
            Some(seat @ Seat::Asked { .. }) => *seat = Seat::Unknown,
            Some(Seat::Voted(held)) if held.writing => {
                (held.writing, held.mute) = (false, true);
            }
            _ => {}
        }
    }

    /// Notes how a node answered a write-back.
    pub fn written(&mut self, node: usize, answer: Written) {
        let Some(seat) = self.seats.get_mut(node) else { return };
        let Seat::Voted(held) = seat else { return };
        match answer {
            Written::Stands(last) => {
                held.writing = false;
                held.last = held.last.max(last);
            }
            Written::NotYours => *seat = Seat::Without(Refusal::Busy),
        }
    }

    /// Decides, if what is known allows it. A decision stays.
    pub fn decide(&mut self, now: Moment) -> Verdict {
        if self.verdict == Verdict::Open {
            self.verdict = self.judge(now);
        }
        self.verdict
    }

    /// Takes what is to be sent since the last call.
    pub fn take_commands(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.commands)
    }

    /// Returns the nodes where the lease id must be given up when the attempt is lost: all that may
    /// have taken the name.
    pub fn to_give_up(&self) -> impl Iterator<Item = usize> {
        let may_have = |seat: &Seat| !matches!(seat, Seat::Without(_));
        let seats = self.seats.iter().enumerate();
        seats.filter(move |(_, seat)| may_have(seat)).map(|(node, _)| node)
    }

    /// Returns how the attempt stands, as it was decided last.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Returns the nodes whose answer is awaited.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        let waits = |seat: &Seat| match seat {
            Seat::Asked { .. } => true,
            Seat::Voted(held) => held.writing,
            Seat::Unknown | Seat::Without(_) => false,
        };
        let seats = self.seats.iter().enumerate();
        seats.filter(move |(_, seat)| waits(seat)).map(|(node, _)| node)
    }

    /// Returns the token that is to be proven, once there was a majority of votes.
    pub fn target(&self) -> Option<FencingToken> {
        self.target
    }

    /// Returns the largest token that a node has answered with.
    pub fn heard(&self) -> Option<FencingToken> {
        self.votes().map(|held| held.last).max()
    }

    /// Gives the nodes another order: the first is the one at `order[0]` now.
    #[cfg(test)]
    pub(super) fn reorder(&mut self, order: &[usize]) {
        self.seats = order.iter().map(|old| self.seats[*old].clone()).collect();
    }

    #[cfg(test)]
    pub(super) fn seat(&self, node: usize) -> Seat {
        self.seats[node].clone()
    }

    fn judge(&mut self, now: Moment) -> Verdict {
        let needed = majority(self.seats.len());
        let votes = self.votes().filter(|held| held.until > now).count();
        let waiting = self.seats.iter().filter(|seat| matches!(seat, Seat::Asked { .. })).count();
        if votes + waiting < needed {
            return Verdict::Lost;
        }
        if votes < needed {
            return Verdict::Open;
        }
        let target = self.aim(waiting, needed);
        if let Some(valid_until) = self.proven(target, needed).filter(|until| *until > now) {
            return Verdict::Won { token: target, valid_until };
        }
        self.write_back(target);
        if self.can_prove(target, waiting, needed) { Verdict::Open } else { Verdict::Lost }
    }

    fn votes(&self) -> impl Iterator<Item = &Held> {
        self.seats.iter().filter_map(|seat| match seat {
            Seat::Voted(held) => Some(held),
            _ => None,
        })
    }

    /// Returns the token to prove: the largest that was heard of when there was a majority, and a
    /// larger one only when that cannot be proven any more.
    fn aim(&mut self, waiting: usize, needed: usize) -> FencingToken {
        let largest = self.heard().unwrap_or(FencingToken::MIN);
        let target = match self.target {
            Some(target) if self.can_prove(target, waiting, needed) => target,
            _ => largest,
        };
        self.target = Some(target);
        target
    }

    /// Tells whether a majority may yet say exactly this number.
    fn can_prove(&self, target: FencingToken, waiting: usize, needed: usize) -> bool {
        let may = |held: &&Held| held.last == target || (held.last < target && !held.mute);
        self.votes().filter(may).count() + waiting >= needed
    }

    /// Returns until when the lease may be believed, if a majority has said exactly this number.
    fn proven(&self, target: FencingToken, needed: usize) -> Option<Moment> {
        let said = self.votes().filter(|held| held.last == target);
        let mut ends: Vec<Moment> = said.map(|held| held.until).collect();
        ends.sort_unstable_by(|one, other| other.cmp(one));
        ends.get(needed - 1).copied()
    }

    fn write_back(&mut self, token: FencingToken) {
        for (node, seat) in self.seats.iter_mut().enumerate() {
            if let Seat::Voted(held) = seat
                && held.last < token
                && !held.writing
                && !held.mute
            {
                held.writing = true;
                self.commands.push(Command::WriteBack { node, token });
            }
        }
    }
}
