//! The conformance suite on the plain dialect: with tokens and without, with Sentinels, and on a
//! cluster.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_redis::{PlainEngine, RedisOptions};
use holdline_services::{
    ClusterConfig, Foreign, RedisCluster, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
};

/// Longer than a restart, which must end before a failover starts.
const LONG: Duration = Duration::from_secs(90);
/// The number of histories where only the servers differ.
const FEW: usize = 10;
/// A name for each node of a cluster.
const NAMES: [&str; 8] = ["nobody", "no-one", "none", "nil", "naught", "nothing", "never", "nix"];

enum Servers {
    One(RedisServer),
    Group(SentinelGroup),
    Cluster(RedisCluster),
}

struct PlainSetup {
    servers: Servers,
    parameters: &'static str,
    histories: usize,
}

fn durable() -> RedisConfig {
    RedisConfig::default().with_appendonly("always")
}

fn key(name: &LockName) -> String {
    format!("lock:{name}")
}

impl PlainSetup {
    fn one(parameters: &'static str) -> PlainSetup {
        let servers = Servers::One(RedisServer::start(durable()));
        PlainSetup { servers, parameters, histories: Scale::quick().histories }
    }

    fn group(parameters: &'static str) -> PlainSetup {
        let config = SentinelConfig::default().with_servers(durable()).with_down_after(LONG);
        let group = SentinelGroup::start(&config);
        group.settle(0);
        PlainSetup { servers: Servers::Group(group), parameters, histories: FEW }
    }

    fn cluster(parameters: &'static str) -> PlainSetup {
        let config = ClusterConfig::default().with_node_timeout(LONG).with_size(3, 0);
        let cluster = RedisCluster::start(&config.with_servers(durable()));
        PlainSetup { servers: Servers::Cluster(cluster), parameters, histories: FEW }
    }

    /// Returns the server that has the name's key.
    fn at(&self, name: &LockName) -> &RedisServer {
        match &self.servers {
            Servers::One(server) => server,
            Servers::Group(group) => &group.servers()[0],
            Servers::Cluster(cluster) => {
                let slot = cluster.slot_of(&key(name));
                &cluster.nodes()[cluster.owner(slot, 0).expect("an owner")]
            }
        }
    }

    async fn restart(&self, clients: &Opened) -> Disturbed {
        match &self.servers {
            Servers::One(server) => {
                server.restart_settled();
                clients.reconnect().await
            }
            Servers::Group(group) => {
                group.servers()[0].restart_settled();
                group.await_linked();
                clients.reconnect().await
            }
            Servers::Cluster(cluster) => {
                cluster.nodes().iter().for_each(RedisServer::restart);
                cluster.await_well();
                clients.reconnect_by(&NAMES).await
            }
        }
    }
}

impl RealStore for PlainSetup {
    type Client = PlainEngine;

    fn name(&self) -> String {
        format!("redis, plain dialect ({})", self.parameters)
    }

    async fn open(&self) -> Result<PlainEngine, LockError> {
        let url = match &self.servers {
            Servers::One(server) => server.url(),
            Servers::Group(group) => group.url(),
            Servers::Cluster(cluster) => cluster.url(),
        };
        let url = format!("{url}?dialect=plain&key_template=lock:{{name}}{}", self.parameters);
        let options = RedisOptions::from_url(&url)?.with_command_timeout(Duration::from_secs(10));
        PlainEngine::connect(&options, Arc::new(MachineClock)).await
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => {
                Foreign::Hash.plant(self.at(name), &key(name)).into()
            }
            Disturbance::CheckForeign(name) => {
                Foreign::Hash.check(self.at(name), &key(name)).into()
            }
            Disturbance::Restart => self.restart(clients).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tokens() {
    judge!(with_tokens, PlainSetup::one(""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens() {
    judge!(without_tokens, PlainSetup::one("&fencing=off"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sentinels() {
    judge!(with_sentinels, PlainSetup::group(""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_tokens_with_sentinels() {
    judge!(without_tokens_with_sentinels, PlainSetup::group("&fencing=off"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster() {
    judge!(on_a_cluster, PlainSetup::cluster("&fencing=off"));
}
