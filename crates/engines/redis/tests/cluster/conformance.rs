//! The conformance suite on a cluster, in real time. Its masters are restarted and stay masters.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_redis::ClusterEngine;
use holdline_services::{Flavour, Foreign, RedisCluster, RedisConfig, RedisServer};

use crate::support::{calm, options};

/// A name for each node.
const NAMES: [&str; 8] = ["nobody", "no-one", "none", "nil", "naught", "nothing", "never", "nix"];
/// The number of histories where only the server differs.
const FEW: usize = 20;

struct Cluster {
    cluster: RedisCluster,
    parameters: &'static str,
    histories: usize,
}

impl Cluster {
    fn start(flavour: Flavour, histories: usize) -> Cluster {
        // So a restart keeps the grants.
        let servers = RedisConfig::default().with_flavour(flavour).with_appendonly("always");
        let cluster = RedisCluster::start(&calm().with_size(3, 0).with_servers(servers));
        Cluster { cluster, parameters: "", histories }
    }

    /// Returns the name's key, and the server that has it.
    fn at(&self, name: &LockName) -> (&RedisServer, String) {
        let key = format!("holdline:{{{name}}}");
        let owner = self.cluster.owner(self.cluster.slot_of(&key), 0).expect("an owner");
        (&self.cluster.nodes()[owner], key)
    }
}

impl RealStore for Cluster {
    type Client = ClusterEngine;

    fn name(&self) -> String {
        "redis cluster".to_owned()
    }

    async fn open(&self) -> Result<ClusterEngine, LockError> {
        let options = options(&self.cluster, self.parameters)
            .with_max_waiters(100)
            .with_command_timeout(Duration::from_secs(10));
        ClusterEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => {
                let (server, key) = self.at(name);
                Foreign::Text.plant(server, &key).into()
            }
            Disturbance::CheckForeign(name) => {
                let (server, key) = self.at(name);
                Foreign::Text.check(server, &key).into()
            }
            Disturbance::Restart => {
                self.cluster.nodes().iter().for_each(RedisServer::restart);
                self.cluster.await_well();
                clients.reconnect_by(&NAMES).await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_real_time() {
    judge!(in_real_time, Cluster::start(Flavour::Debian, Scale::quick().histories / 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_old_protocol() {
    let start = || Cluster::start(Flavour::Debian, FEW);
    judge!(by_the_old_protocol, Cluster { parameters: "protocol=resp2", ..start() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_valkey() {
    judge!(on_valkey, Cluster::start(Flavour::Valkey, FEW));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_8() {
    judge!(on_redis_8, Cluster::start(Flavour::Redis8, FEW));
}
