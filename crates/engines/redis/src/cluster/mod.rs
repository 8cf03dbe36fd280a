//! A Redis Cluster: each name hashes to a slot, and the slot's current master has its keys.
//!
//! ```text
//! engine ── router: who serves the slot? ── node: the supervised connection to one master
//!              │
//!            control connection: to any node; reports the slots and receives messages
//! ```
//!
//! - Invariant C1: a call is repeated or redirected only after a node has rejected it before
//!   execution. A call that may have been carried out is never repeated.
//! - Invariant C2: a script runs only where all keys of its name are. Each call also names one key
//!   that never exists, so a node whose slot migrates rejects it before execution (`TRYAGAIN`).
//!   Operations that need the lock key only are then sent with that key alone.
//! - Invariant C3: only what is between the braces determines a name's slot.
//!
//! Read next: `slots` for the table of masters, `router` for the route of a call, `engine` for the
//! verbs.

mod attempt;
mod engine;
mod nodes;
mod redirect;
mod refresh;
mod renewals;
mod replica_acks;
mod router;
mod slots;

pub(crate) use attempt::SlotRequest;
pub use engine::ClusterEngine;
pub(crate) use renewals::{Replies, ReplyTimeouts, by_name};
pub(crate) use router::ClusterRouter;
pub(crate) use slots::{SLOTS, SlotTable, key_slot};
