//! Locks in an etcd cluster: `etcd://host,host,host`, or `etcds://` with TLS.
//!
//! `docs/etcd.md` of the repository is the page for users.

pub use holdline_etcd::{EtcdEngine, EtcdOptions};
