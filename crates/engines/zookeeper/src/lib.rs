//! The ZooKeeper engine: locks on one ZooKeeper ensemble, of one member or several.
//!
//! A contender is a sequential ephemeral node, and its number the place in the queue. The
//! transaction that made the node is the fencing token. What a client holds hangs on sessions, one
//! for each client and duration. Apache Curator's `InterProcessMutex` and
//! `InterProcessReadWriteLock` share names with it.
//!
//! # Guarantees
//! It keeps the promises of the lock table, with leases that end by session and hand-offs that
//! nobody claims. Exclusion is soft: an answered heartbeat goes the way of writes, by a majority,
//! and neither a fifth of the session nor a pause of this process is counted on, yet a leader that
//! does not ask its members twice a tick may be told of us too late. Hand the fencing token to
//! what must not be written twice.
//! A new ensemble, and one restored from an old copy, may repeat tokens.
//!
//! # Read next
//! `engine` for the verbs, `keys` for what is stored, `queue` for who holds; `acquire`, `renew` and
//! `release` for what is asked; then `sessions` and `session` for leases and `stops` for what a
//! pause of this process costs them, `watcher` for wake-ups, `wire` for how a request travels,
//! `options` for what can be set.

mod acquire;
mod checkup;
mod engine;
mod error;
mod held;
mod inspect;
mod keys;
mod operate;
mod options;
mod probe;
mod queue;
mod release;
mod renew;
mod seen;
mod session;
mod sessions;
mod stops;
mod store;
mod tombstones;
mod watcher;
mod wire;

pub use checkup::checkup;
pub use engine::ZooKeeperEngine;
pub use options::{Family, ZooKeeperOptions};
