//! Redlock with fencing: the rules of exclusion over N independent nodes.
//!
//! Each node is a store of its own that knows nothing of the others. A contender asks all of them
//! for the name; a majority of grants is the lock. What plain Redlock lacks is a fencing token: a
//! number that grows with each grant, whatever the clocks do (Kleppmann, 2016). It is made here of
//! the nodes' own counters, in one round trip where they agree and two where they do not.
//!
//! - Q1: a token is given only with *evidence* from a majority: each of these nodes has answered
//!   that its counter of the name stood at exactly this number while the contender held the name
//!   there.
//! - Q2: a node's counter never falls, and each fresh grant there raises it.
//! - Q3: a lease is believed until so many of the votes that gave evidence are over that the rest
//!   is no majority, each counted from before its first request left.
//! - Q4: an attempt that did not win gives its lease id up on every node that may have taken it,
//!   and never asks again under that id.
//! - Q5: what arrives after the decision changes neither the token nor how long it is believed.
//! - Q6: a lease is healed only with the token that it was granted with, and a healed record is
//!   never evidence when a lease id is asked again. The process that won knows that token. Another
//!   process, which has only the lease id, takes the one that a majority of the nodes has on record
//!   ([`proven`]). A request that was delayed until after the decision may leave a larger token on
//!   record, but each node outside the deciding majority has one vote, so only the winning token is
//!   ever on a majority.
//!
//! Why tokens are distinct and grow (Q1 and Q2): two majorities share a node. There one of the two
//! contenders came second, after the first one's evidence; its grant raised the counter above the
//! first one's token, and its own evidence is of that time or later. No clock, expiry or pause
//! enters the argument, so it holds even where exclusion fails. Ownership and exactness are both
//! needed: a node where the name has passed on proves nothing, and neither does a counter that only
//! stands at *least* so high, since a later grant may have raised it.
//!
//! Read next: [`ballot`] for the contender's side, [`register`] for the node's, [`membership`] for
//! who is a node at all and what becomes of one that has lost its memory.

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

pub use ballot::{Ballot, Command, Refusal, Verdict};
pub use configuration::{Configuration, NodeId, SetId, Slot, Stamp};
pub use membership::{Plan, Standing, Wish, plan, replacements};
pub use node::{Barred, Gate, Node, Told, View};
pub use register::{Register, Vote, Written};
pub use tally::{Kept, Tally};

/// By how much a token may be ahead of the clock of the node that gives it. So a floor that is
/// taken from a clock is above that clock by as much.
pub const SKEW: Duration = Duration::from_secs(1);

/// Returns how many of `nodes` are a majority.
pub const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Returns the token that a majority of `nodes` carries, of which each gives at most one. Where no
/// token has a majority there is none, however few of the nodes were asked.
pub fn proven(tokens: &[FencingToken], nodes: usize) -> Option<FencingToken> {
    let carried = |token: &FencingToken| tokens.iter().filter(|other| *other == token).count();
    tokens.iter().copied().find(|token| carried(token) >= majority(nodes))
}
