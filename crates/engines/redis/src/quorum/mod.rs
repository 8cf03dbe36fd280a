//! Redlock with fencing tokens: one lock over several independent Redis servers.
//!
//! ```text
//! engine ── attempt, release, renewal, healing, look ── requests, replies: one script a verb
//!    │            │ Ballot, Tally (core)              │
//!    └── set: who votes ── member: one node ──────────┘
//!         │ plan (core)
//! ```
//!
//! The rules are in [`holdline_core::quorum`]: what a vote is, when a token is proven, who belongs
//! to a set and what becomes of a node that has lost its memory. Here their messages are carried.
//! - Invariant R1: every request that asks for a vote names the run of the server that was greeted,
//!   and goes over a connection to that run only; it names the configuration, and a node that has
//!   another gives none.
//! - Invariant R2: no answer of one node is waited for while a majority has decided.
//!
//! In the plain dialect (`?dialect=plain`) the lock keys are those of other Redlock libraries; with
//! `fencing=off` nothing else is kept (`bare`).
//!
//! Read next: `attempt` for how a name is had, `set` for who looks after the nodes.

mod admin;
mod attempt;
mod bare;
mod engine;
mod healing;
mod look;
mod member;
mod options;
pub(crate) mod race;
mod release;
mod renewal;
mod replace;
mod replies;
mod requests;
mod roster;
mod script;
mod set;
#[cfg(test)]
mod tests;
mod wake;

pub use admin::{NodeState, NodeStatus, QuorumAdmin, QuorumStatus};
pub use engine::QuorumEngine;
pub use options::QuorumOptions;
pub use replace::Replacement;

/// The engine's short name.
pub(crate) const ENGINE: &str = "redlock";
