//! Helpers of the cluster tests.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_redis::{ClusterEngine, RedisOptions};
use holdline_services::{ClusterConfig, RedisCluster};

/// Longer than any fault that must not cause a failover.
pub(crate) const LONG: Duration = Duration::from_secs(90);

/// A cluster without automatic failovers.
pub(crate) fn calm() -> ClusterConfig {
    ClusterConfig::default().with_node_timeout(LONG)
}

pub(crate) fn options(cluster: &RedisCluster, parameters: &str) -> RedisOptions {
    let url = format!("{}?{parameters}", cluster.url());
    RedisOptions::from_url(&url).expect("a good URL")
}

pub(crate) async fn engine(cluster: &RedisCluster) -> ClusterEngine {
    let options = options(cluster, "command_timeout_ms=10000");
    ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("the cluster is there")
}
