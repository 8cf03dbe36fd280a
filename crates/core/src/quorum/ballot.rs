//! One attempt at a name: counts votes until a majority is won or can no longer be won.
//!
//! The caller sends the messages. It asks all nodes at once, passes each answer to the ballot,
//! sends the requests that [`Ballot::take_write_backs`] returns, and reads the [`BallotOutcome`]. A
//! ballot decides as soon as a majority has granted or no longer can, so a slow or dead node costs
//! nothing. Later answers are passed in as well: they show where the lease id must be undone.

use std::time::Duration;

use crate::moment::Moment;
use crate::quorum::register::{Vote, WriteBackReply};
use crate::quorum::{end_of_majority, majority, nodes_where};
use crate::token::FencingToken;
use crate::validity;

/// Why a node gave no vote. Nothing is held there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NoVote {
    /// Another lease id holds the name.
    Busy,
    /// The node was not asked, because it is suspect.
    Skipped,
    /// The node was not reached: the request was not sent.
    Unreached,
    /// The node does not vote at present.
    Abstained,
}

/// A request to send: raise the name's counter on a node, behind the request that took the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteBack {
    /// The node's index in the configuration.
    pub node: usize,
    /// The token to raise the counter to.
    pub token: FencingToken,
}

/// The outcome of an attempt so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BallotOutcome {
    /// More answers are needed.
    Pending,
    /// The name is held.
    Won {
        /// The fencing token.
        token: FencingToken,
        /// Until when the lease is valid.
        valid_until: Moment,
    },
    /// Too few nodes can still grant the name.
    Lost,
}

/// What is known of one node's vote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum VoteEntry {
    /// Asked, without an answer yet.
    Pending { sent: Moment },
    /// The node may have granted the name, and will not answer in time.
    Unknown,
    /// The node granted the name.
    Granted(HeldVote),
    /// The node certainly granted nothing.
    Denied(NoVote),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HeldVote {
    /// Until when this vote is valid.
    until: Moment,
    /// The node's counter in its last answer, while it held the name for this attempt.
    last: FencingToken,
    /// A write-back was sent and not answered yet.
    writing: bool,
    /// A write-back was not answered in time: the counter in the last answer is final.
    unconfirmed: bool,
}

/// One attempt. Its lease id is used in no other attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ballot {
    entries: Vec<VoteEntry>,
    lease: Duration,
    write_backs: Vec<WriteBack>,
    /// The token that is written back, once there was a majority of votes.
    pub(super) target: Option<FencingToken>,
    pub(super) outcome: BallotOutcome,
}

impl Ballot {
    /// Creates an attempt for a lease over `nodes` nodes. None of them has been asked yet. The
    /// caller subtracts the drift of the clocks.
    pub fn new(nodes: usize, lease: Duration) -> Ballot {
        Ballot {
            entries: vec![VoteEntry::Denied(NoVote::Skipped); nodes],
            lease,
            write_backs: Vec::new(),
            target: None,
            outcome: BallotOutcome::Pending,
        }
    }

    /// Records that a node is asked. `sent` is the clock as read before the request is sent.
    pub fn asked(&mut self, node: usize, sent: Moment) {
        if let Some(entry @ VoteEntry::Denied(_)) = self.entries.get_mut(node) {
            *entry = VoteEntry::Pending { sent };
        }
    }

    /// Records a node's vote. Call [`Ballot::decide`] when all answers that arrived are recorded.
    pub fn voted(&mut self, node: usize, vote: Vote) {
        let lease = validity::validity_time(self.lease, 0);
        let Some(entry) = self.entries.get_mut(node) else { return };
        let VoteEntry::Pending { sent } = *entry else { return };
        *entry = match vote {
            Vote::Granted { last } => VoteEntry::Granted(HeldVote {
                until: sent.after(lease),
                last,
                writing: false,
                unconfirmed: false,
            }),
            Vote::Busy => VoteEntry::Denied(NoVote::Busy),
            // The node holds the name for this lease id, which proves no token.
            Vote::Healed => VoteEntry::Unknown,
        };
    }

    /// Records that a node certainly granted nothing.
    pub fn refused(&mut self, node: usize, why: NoVote) {
        if let Some(entry @ VoteEntry::Pending { .. }) = self.entries.get_mut(node) {
            *entry = VoteEntry::Denied(why);
        }
    }

    /// Records that a node will not answer in time, whatever it did.
    pub fn unanswered(&mut self, node: usize) {
        match self.entries.get_mut(node) {
            Some(entry @ VoteEntry::Pending { .. }) => *entry = VoteEntry::Unknown,
            Some(VoteEntry::Granted(held)) if held.writing => {
                held.writing = false;
                held.unconfirmed = true;
            }
            _ => {}
        }
    }

    /// Records a node's answer to a write-back.
    pub fn written(&mut self, node: usize, answer: WriteBackReply) {
        let Some(entry) = self.entries.get_mut(node) else { return };
        let VoteEntry::Granted(held) = entry else { return };
        match answer {
            WriteBackReply::Counter(last) => {
                held.writing = false;
                held.last = held.last.max(last);
            }
            WriteBackReply::NotHeld => *entry = VoteEntry::Denied(NoVote::Busy),
        }
    }

    /// Decides, if the answers so far allow it. A decision is final.
    pub fn decide(&mut self, now: Moment) -> BallotOutcome {
        if self.outcome == BallotOutcome::Pending {
            self.outcome = self.evaluate(now);
        }
        self.outcome
    }

    /// Takes the requests to send since the last call.
    pub fn take_write_backs(&mut self) -> Vec<WriteBack> {
        std::mem::take(&mut self.write_backs)
    }

    /// Returns the nodes where the lease id must be undone if the attempt is lost: all that may
    /// have granted the name.
    pub fn to_undo(&self) -> impl Iterator<Item = usize> {
        nodes_where(&self.entries, |entry| !matches!(entry, VoteEntry::Denied(_)))
    }

    /// Returns the nodes whose answer is pending.
    pub fn awaited(&self) -> impl Iterator<Item = usize> {
        nodes_where(&self.entries, |entry| match entry {
            VoteEntry::Pending { .. } => true,
            VoteEntry::Granted(held) => held.writing,
            VoteEntry::Unknown | VoteEntry::Denied(_) => false,
        })
    }

    /// Returns the largest token in the answers.
    pub fn largest_token(&self) -> Option<FencingToken> {
        self.grants().map(|held| held.last).max()
    }

    /// Reorders the nodes: the first becomes the one at `order[0]`.
    #[cfg(test)]
    pub(super) fn reorder(&mut self, order: &[usize]) {
        self.entries = order.iter().map(|old| self.entries[*old].clone()).collect();
    }

    #[cfg(test)]
    pub(super) fn entry(&self, node: usize) -> VoteEntry {
        self.entries[node].clone()
    }

    fn evaluate(&mut self, now: Moment) -> BallotOutcome {
        let needed = majority(self.entries.len());
        let votes = self.grants().filter(|held| held.until > now).count();
        let waiting =
            self.entries.iter().filter(|entry| matches!(entry, VoteEntry::Pending { .. })).count();
        if votes + waiting < needed {
            return BallotOutcome::Lost;
        }
        if votes < needed {
            return BallotOutcome::Pending;
        }
        let target = self.choose_target(waiting, needed);
        if let Some(valid_until) = self.proven(target).filter(|until| *until > now) {
            return BallotOutcome::Won { token: target, valid_until };
        }
        self.write_back(target);
        if self.can_prove(target, waiting, needed) {
            BallotOutcome::Pending
        } else {
            BallotOutcome::Lost
        }
    }

    fn grants(&self) -> impl Iterator<Item = &HeldVote> {
        self.entries.iter().filter_map(|entry| match entry {
            VoteEntry::Granted(held) => Some(held),
            _ => None,
        })
    }

    /// Returns the token to prove: the largest known when there was a majority, and a larger one
    /// only if that can no longer be proven.
    fn choose_target(&mut self, waiting: usize, needed: usize) -> FencingToken {
        let largest = self.largest_token().unwrap_or(FencingToken::MIN);
        let target = match self.target {
            Some(target) if self.can_prove(target, waiting, needed) => target,
            _ => largest,
        };
        self.target = Some(target);
        target
    }

    /// Returns whether a majority may still report exactly this number.
    fn can_prove(&self, target: FencingToken, waiting: usize, needed: usize) -> bool {
        let may =
            |held: &&HeldVote| held.last == target || (held.last < target && !held.unconfirmed);
        self.grants().filter(may).count() + waiting >= needed
    }

    /// Returns until when the lease is valid, if a majority has reported exactly this number.
    fn proven(&self, target: FencingToken) -> Option<Moment> {
        let exact = self.grants().filter(|held| held.last == target);
        end_of_majority(exact.map(|held| held.until), self.entries.len())
    }

    fn write_back(&mut self, token: FencingToken) {
        for (node, entry) in self.entries.iter_mut().enumerate() {
            if let VoteEntry::Granted(held) = entry
                && held.last < token
                && !held.writing
                && !held.unconfirmed
            {
                held.writing = true;
                self.write_backs.push(WriteBack { node, token });
            }
        }
    }
}
