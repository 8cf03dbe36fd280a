//! The etcd engine: locks on one etcd cluster, of one member or several.
//!
//! A contender is a key. The create revision of the key is its position in the queue, and its
//! fencing token. The keys of a client belong to etcd leases, one for each client and duration.
//! Go's `concurrency.Mutex` and `etcdctl lock` share names with it.
//!
//! # Guarantees
//! It keeps the promises of the lock table. Leases expire with their session, and a hand-off is
//! a whole lease. If the leader's process is paused for longer than a lease and resumes, it may
//! revoke leases that the new leader renews (`docs/guarantees/etcd.md`): pass the fencing token to
//! the resource that must not be written twice. A restore from an old snapshot may repeat tokens,
//! unless it raises the revision.
//!
//! # Read next
//! `engine` for the capabilities, `keys` for the layout, `queue` for holders and waiters;
//! `acquire`, `renew` and `release` for the transactions; then `sessions` for etcd leases,
//! `watcher` for notifications, `client` for requests and failover, `options` for the settings.

mod acquire;
mod checkup;
mod client;
mod engine;
mod error;
mod inspect;
mod keys;
mod known_contenders;
mod operate;
mod ops;
mod options;
mod proto;
mod queue;
mod release;
mod renew;
mod sessions;
mod store;
mod transport;
mod watcher;

pub use checkup::checkup;
pub use engine::EtcdEngine;
pub use options::EtcdOptions;
