//! The ZooKeeper engine: locks on one ZooKeeper ensemble, of one member or several.
//!
//! A contender is a sequential ephemeral node. Its sequence number is the position in the queue,
//! and the transaction that created the node is the fencing token. The nodes of a client belong to
//! sessions, one for each client and duration. Apache Curator's `InterProcessMutex` and
//! `InterProcessReadWriteLock` share names with it.
//!
//! # Guarantees
//! It keeps the promises of the lock table. Leases expire with their session, and a hand-off is
//! a whole lease. Exclusion depends on session timing. A renewal is committed by a majority, and
//! neither a fifth of the session nor a pause of this process is counted on. But a leader that does
//! not ping its members twice a tick may learn of a heartbeat too late. Pass the fencing token to
//! the resource that must not be written twice. A new ensemble, and one restored from an old
//! snapshot, may repeat tokens.
//!
//! # Read next
//! `engine` for the capabilities, `keys` for the layout, `queue` for holders and waiters;
//! `acquire`, `renew` and `release` for the requests; then `sessions` and `session` for leases and
//! `pauses` for the effect of a pause of this process on them, `watcher` for notifications,
//! `connection` for the requests, `client` for the protocol, `options` for the settings.

mod acquire;
mod checkup;
mod client;
mod connection;
mod engine;
mod error;
mod inspect;
mod keys;
mod known_contenders;
mod name_cache;
mod operate;
mod options;
mod pauses;
mod probe;
mod queue;
mod release;
mod renew;
mod session;
mod sessions;
mod store;
mod tombstones;
mod watcher;

pub use checkup::checkup;
pub use engine::ZooKeeperEngine;
pub use options::{Family, ZooKeeperOptions};
