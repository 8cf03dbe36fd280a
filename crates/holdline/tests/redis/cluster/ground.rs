//! A cluster of three masters with a replica each, and clients of it.

use std::time::Duration;

use holdline::{Client, Guard, Keep, LockOptions, LostReason};
use holdline_services::{ClusterConfig, RedisCluster, RedisConfig, RedisServer};

use crate::support::{LONG, client, lease, soon};

/// The longest lease in ms: longer than a failover takes on a slow machine.
pub(super) const LONGEST: u64 = 12_000;

pub(super) struct Cluster(pub(super) RedisCluster);

impl Cluster {
    /// Starts one in which a silent node is found dead within a second or two.
    pub(super) fn start() -> Cluster {
        Cluster(RedisCluster::start(&ClusterConfig::default()))
    }

    /// Starts one in which nobody is ever found dead.
    pub(super) fn calm() -> Cluster {
        Cluster::calm_with(RedisConfig::default())
    }

    /// The same of such servers.
    pub(super) fn calm_with(servers: RedisConfig) -> Cluster {
        let config = ClusterConfig::default().with_node_timeout(LONG).with_size(3, 0);
        Cluster(RedisCluster::start(&config.with_servers(servers)))
    }

    pub(super) async fn client(&self) -> Client {
        let parameters = "command_timeout_ms=4000&connect_timeout_ms=10000";
        client(&format!("{}?{parameters}", self.0.url())).await
    }

    pub(super) fn node(&self, number: usize) -> &RedisServer {
        &self.0.nodes()[number]
    }

    /// The slot of a name, and the master that serves it at the beginning.
    pub(super) fn place(&self, name: &str) -> (u16, usize) {
        let slot = self.0.slot_of(&format!("holdline:{{{name}}}"));
        (slot, self.0.owner(slot, 0).expect("somebody serves it"))
    }

    /// Waits until the replica of a master that is gone serves the slot in the eyes of the other
    /// masters; returns its number.
    pub(super) fn await_takeover(&self, slot: u16, gone: usize) -> usize {
        let replica = self.0.replica_of(gone);
        let others: Vec<usize> = (0..3).filter(|node| *node != gone).collect();
        self.0.await_owner(slot, replica, &others);
        replica
    }
}

/// The lease of those who are renewed often.
pub(super) fn patient() -> LockOptions {
    lease(LONGEST).with_renew_interval(Duration::from_millis(300)).with_wait(LONG)
}

/// A lease that nobody renews: its holder learns nothing before its end.
pub(super) fn fixed() -> LockOptions {
    lease(LONGEST).with_keep(Keep::Fixed)
}

pub(super) async fn lost(guard: &Guard) -> LostReason {
    let reason = soon("the loss", guard.lost()).await;
    assert!(!guard.is_valid());
    reason
}
