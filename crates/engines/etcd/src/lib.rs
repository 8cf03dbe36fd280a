//! The etcd engine: locks on one etcd cluster, of one member or several.
//!
//! A contender is a key, and its place in the queue the revision at which the key was made. That
//! revision is the fencing token too. What a client holds hangs on leases of etcd, one for each
//! client and duration. Go's `concurrency.Mutex` and `etcdctl lock` share names with it.
//!
//! # Guarantees
//! It keeps the promises of the lock table, with leases that end by session and hand-offs that
//! nobody claims. Before etcd 3.5.13 an answered keepalive is no proof that the lease stands, after
//! a leader was stopped and woke again: hand the fencing token to what must not be written twice.
//! A restore from an old copy may repeat tokens, unless it raises the revision.
//!
//! # Read next
//! `engine` for the verbs, `keys` for what is stored, `queue` for who holds; `acquire`, `renew` and
//! `release` for the transactions; then `sessions` for leases, `watcher` for wake-ups, `client` for
//! how a request travels, `options` for what can be set.

mod acquire;
mod checkup;
mod client;
mod engine;
mod error;
mod held;
mod inspect;
mod keys;
mod operate;
mod ops;
mod options;
mod proto;
mod queue;
mod release;
mod renew;
mod sessions;
mod store;
mod watcher;

pub use checkup::checkup;
pub use engine::EtcdEngine;
pub use options::EtcdOptions;
