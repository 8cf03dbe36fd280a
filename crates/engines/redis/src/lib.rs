//! The Redis engine: locks on one Redis or Valkey server.
//!
//! Each verb is one script, so that the server runs a whole step of the lock table at once, and
//! whoever is next is told by a message to its process.
//!
//! # Guarantees
//! It keeps the promises of the lock table while the server remembers and its clock does not
//! step. A server that forgot (a restart without persistence, a flush) may grant a name again;
//! the fencing token grows even then, up to the error of the server's clock. A failover to a
//! replica may lose the newest grants.
//!
//! # Read next
//! `engine` for the verbs, `keys` for what is stored, `native` and `scripts/common.lua` for the
//! rules, `ears` and `messages` for wake-ups, `node` for how a command travels, `options` for what
//! can be set.

mod checkup;
mod ears;
mod engine;
mod error;
mod keys;
mod messages;
mod native;
mod node;
mod options;
mod surroundings;

pub use checkup::checkup;
pub use engine::RedisEngine;
pub use options::{Dialect, RedisOptions};
pub use surroundings::{Stream, Surroundings, Task};
