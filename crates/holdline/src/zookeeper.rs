//! Locks in a ZooKeeper ensemble: `zk://host,host,host`.
//!
//! `docs/zookeeper.md` of the repository is the page for users.

pub use holdline_zookeeper::{Family, ZooKeeperEngine, ZooKeeperOptions};
