//! Redlock with fencing tokens: one lock over several independent Redis servers.
//!
//! ```text
//! engine ── attempt, release, renewal, healing, inspect ── requests, replies: one script per verb
//!    │            │ Ballot, Tally (core)                │
//!    └── set: membership, maintenance ── member: one node ┘
//!         │ plan (core)
//! ```
//!
//! The rules are in [`holdline_core::quorum`]: what a vote is, when a token is proven, which nodes
//! belong to a set, and how a node that lost its data is readmitted. The modules here send and
//! receive the messages.
//!
//! - Invariant R1: every request for a vote names the run_id that the handshake returned, and goes
//!   over a connection to that run only. It also names the configuration: a node with another
//!   configuration does not vote.
//! - Invariant R2: once a majority has decided, no answer of a single node delays the caller.
//!
//! In the plain dialect (`?dialect=plain`) the lock keys are those of other Redlock libraries. With
//! `fencing=off` the servers keep nothing else (`unfenced`).
//!
//! Read next: `attempt` for an acquire, `set` for the maintenance of the nodes, `in_progress` for
//! what this process has yet to finish.

mod admin;
mod attempt;
mod busy;
mod commands;
mod engine;
mod healing;
mod hints;
mod in_progress;
mod inspect;
mod known;
mod listing;
mod member;
mod membership;
mod name_reports;
mod not_voting;
mod options;
mod outcome;
mod release;
mod renewal;
mod replies;
mod requests;
mod script;
mod set;
#[cfg(test)]
mod tests;
mod undo;
mod unfenced;

use holdline_core::{Certainty, ErrorKind, LockError};

pub use admin::{NodeStatus, QuorumAdmin, QuorumStatus, Replacement, VouchedServer};
pub use engine::QuorumEngine;
pub use not_voting::NodeState;
pub use options::QuorumOptions;

/// The engine's short name.
pub(crate) const ENGINE: &str = "redlock";

/// Makes the error of a request that was not applied.
fn not_applied(kind: ErrorKind) -> LockError {
    LockError::new(ENGINE, kind, Certainty::NotApplied)
}

/// Makes the error for servers, or a list of them, that cannot be used.
fn refused(message: impl Into<String>) -> LockError {
    not_applied(ErrorKind::Refused { message: message.into() })
}

/// Makes the error for foreign data, which was left as it is: nothing was applied.
fn foreign(error: &LockError) -> LockError {
    not_applied(error.kind().clone())
}
