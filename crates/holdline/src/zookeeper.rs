//! Locks in a ZooKeeper ensemble: `zk://host,host,host`, or `zks://` with TLS.
//!
//! `docs/zookeeper.md` of the repository is the page for users.

pub use holdline_zookeeper::{Family, ZooKeeperEngine, ZooKeeperOptions};
