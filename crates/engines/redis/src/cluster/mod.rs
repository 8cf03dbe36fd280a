//! A Redis Cluster: each name lives in the slot that it makes, and the slot with the master that
//! serves it now.
//!
//! ```text
//! engine ── router: whose slot? ── node: the supervised connection to one master
//!              │
//!            scout: a connection to any node, which tells the slots and hears the messages
//! ```
//!
//! - Invariant C1: what a node redirects or refuses at the door it has not carried out, so it is
//!   asked elsewhere or again. What a node may have carried out is never asked again.
//! - Invariant C2: a script is let in only where all keys of its name are: each call names one key
//!   that is never there, so that a node whose slot moves refuses it at the door (`TRYAGAIN`).
//!   What can be done by the lock key alone is then asked of that one.
//! - Invariant C3: a name's keys make its slot by what stands between the braces, and nothing else.
//!
//! Read next: `slots` for who serves what, `router` for the way of a call, `engine` for the verbs.

mod engine;
mod redirect;
mod roster;
mod router;
mod slots;

pub use engine::ClusterEngine;
pub(crate) use roster::Roster;
pub(crate) use router::Router;
pub(crate) use slots::{SLOTS, Table};

/// Host and port of a node.
pub(crate) type Place = (String, u16);
