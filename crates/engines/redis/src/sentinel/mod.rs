//! A master that Sentinels monitor: which server it is, and which replicas have its grants.
//!
//! ```text
//! watcher ── queries all sentinels: at each connect, at `+switch-master`, every few seconds
//!    │           answers: combines their views, as a pure rule
//!    └── notifies the node, which closes every connection to another server
//! replica_acks ── WAIT: how many replicas have what was just written
//! ```
//!
//! When a promoted server may grant is decided in `node::master_term`.

mod answers;
mod replica_acks;
mod watcher;

pub(crate) use answers::MasterView;
pub(crate) use replica_acks::ReplicaAcks;
pub(crate) use watcher::Watcher;
