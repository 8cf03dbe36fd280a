//! Redlock with fencing: the rules of exclusion over N independent nodes.
//!
//! Each node is a store of its own that knows nothing of the others. A contender asks all of them
//! for the name; a majority of grants is the lock. Plain Redlock lacks a fencing token: a number
//! that grows with each grant, whatever the clocks do (Kleppmann, 2016). Here the token is made of
//! the nodes' own counters, in one round trip where they agree and two where they do not.
//!
//! - Q1: a token is given only with *evidence* from a majority. A node's evidence is its answer
//!   that its counter of the name stood at exactly this number while the contender held the name
//!   there.
//! - Q2: a node's counter never falls, and each new grant there raises it.
//! - Q3: a lease is valid while the votes that gave evidence are a majority. Each vote counts from
//!   before its first request was sent, until it expires.
//! - Q4: an attempt that did not win releases its lease id on every node that may have taken it,
//!   and never asks again under that id.
//! - Q5: an answer that arrives after the decision changes neither the token nor the validity.
//! - Q6: a lease is *healed* (recorded again on a node that does not have it) only with the token
//!   that it was granted with. A healed record is never evidence when a lease id is asked for
//!   again.
//!
//! Why a healing process knows the token (Q6): the process that won has it. Another process has
//! only the lease id, and takes the token that a majority of the nodes has on record ([`proven`]).
//! A request that was delayed until after the decision may leave a larger token on record. But each
//! node outside the deciding majority has one vote, so only the winning token is on a majority.
//!
//! Why tokens are distinct and grow (Q1 and Q2): two majorities share a node. On that node one of
//! the two contenders came second, after the first one's evidence. Its grant raised the counter
//! above the first one's token, and its own evidence is of that time or later. No clock, expiry or
//! pause enters the argument, so it holds even where exclusion fails.
//!
//! Evidence needs both ownership and exactness. A node where the name has passed to another lease
//! proves nothing. Neither does a counter of *at least* this number: a later grant may have raised
//! it.
//!
//! Read next: [`ballot`] for the contender's side, [`register`] for the node's, [`membership`] for
//! which nodes belong to a set and how a node that lost its data is readmitted. The same rules with
//! the proof: `docs/contributing/redlock-protocol.md`.

use std::time::Duration;

use crate::token::FencingToken;

pub mod ballot;
pub mod configuration;
pub mod membership;
pub mod node;
pub mod register;
pub mod tally;
#[cfg(test)]
mod tests;

pub use ballot::{Ballot, BallotOutcome, NoVote, WriteBack};
pub use configuration::{Configuration, MemberSlot, NodeId, SetId, Stamp};
pub use membership::{
    DesiredConfiguration, MembershipPlan, SetStatus, plan, replacements, vouchable,
};
pub use node::{MemberState, NodeCommand, NodeReport, QuorumNode, VoteRefusal};
pub use register::{NameRegister, Vote, WriteBackReply};
pub use tally::{RenewalOutcome, Tally};

/// How far a token may be ahead of the clock of the node that grants it. A floor that is taken from
/// a clock is above that clock by the same amount.
pub const SKEW: Duration = Duration::from_secs(1);

/// Returns how many of `nodes` are a majority.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Returns the indices of the nodes whose entries fulfil a condition.
fn nodes_where<T>(entries: &[T], condition: impl Fn(&T) -> bool) -> impl Iterator<Item = usize> {
    let entries = entries.iter().enumerate();
    entries.filter(move |(_, entry)| condition(entry)).map(|(node, _)| node)
}

/// Returns when a majority of `nodes` ends, if each of these nodes ends then: the earliest end of
/// the majority with the latest ends. Returns `None` if these are no majority.
pub fn end_of_majority<T: Ord>(ends: impl IntoIterator<Item = T>, nodes: usize) -> Option<T> {
    let mut ends: Vec<T> = ends.into_iter().collect();
    ends.sort_unstable();
    ends.into_iter().nth_back(majority(nodes) - 1)
}

/// Returns the token that a majority of `nodes` has on record; each node reports at most one.
/// Returns `None` where no token has a majority, however few of the nodes were asked.
pub fn proven(tokens: &[FencingToken], nodes: usize) -> Option<FencingToken> {
    let count = |token: &FencingToken| tokens.iter().filter(|other| *other == token).count();
    tokens.iter().copied().find(|token| count(token) >= majority(nodes))
}
