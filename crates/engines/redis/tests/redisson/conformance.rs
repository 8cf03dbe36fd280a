//! The conformance suite in this dialect: on one server, with Sentinels, and on a cluster.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_redis::{RedisOptions, RedissonEngine};
use holdline_services::{
    ClusterConfig, Foreign, RedisCluster, RedisConfig, RedisServer, SentinelConfig, SentinelGroup,
};

use crate::one_kind::{Kind, OneKind};

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

struct Setup {
    servers: Servers,
    kind: Kind,
    parameters: &'static str,
    histories: usize,
}

fn durable() -> RedisConfig {
    RedisConfig::default().with_appendonly("always")
}

impl Setup {
    fn one(kind: Kind, parameters: &'static str) -> Setup {
        let servers = Servers::One(RedisServer::start(durable()));
        Setup { servers, kind, parameters, histories: Scale::quick().histories }
    }

    fn group(kind: Kind) -> Setup {
        let config = SentinelConfig::default().with_servers(durable()).with_down_after(LONG);
        let group = SentinelGroup::start(&config);
        group.settle(0);
        Setup { servers: Servers::Group(group), kind, parameters: "", histories: FEW }
    }

    fn cluster(kind: Kind) -> Setup {
        let config = ClusterConfig::default().with_node_timeout(LONG).with_size(3, 0);
        let cluster = RedisCluster::start(&config.with_servers(durable()));
        Setup { servers: Servers::Cluster(cluster), kind, parameters: "", histories: FEW }
    }

    /// Returns the server that has the name's key.
    fn at(&self, name: &LockName) -> &RedisServer {
        match &self.servers {
            Servers::One(server) => server,
            Servers::Group(group) => &group.servers()[0],
            Servers::Cluster(cluster) => {
                let slot = cluster.slot_of(name.as_str());
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

impl RealStore for Setup {
    type Client = OneKind;

    fn name(&self) -> String {
        format!("redis, Redisson's dialect ({:?} {})", self.kind, self.parameters)
    }

    async fn open(&self) -> Result<OneKind, LockError> {
        let url = match &self.servers {
            Servers::One(server) => server.url(),
            Servers::Group(group) => group.url(),
            Servers::Cluster(cluster) => cluster.url(),
        };
        let url = format!("{url}?dialect=redisson{}", self.parameters);
        let options = RedisOptions::from_url(&url)?.with_command_timeout(Duration::from_secs(10));
        let engine = RedissonEngine::connect(&options, Arc::new(MachineClock)).await?;
        Ok(OneKind::new(engine, self.kind))
    }

    fn scale(&self) -> Scale {
        Scale { histories: self.histories, kinds_stay: true, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => {
                Foreign::Text.plant(self.at(name), name.as_str()).into()
            }
            Disturbance::CheckForeign(name) => {
                Foreign::Text.check(self.at(name), name.as_str()).into()
            }
            Disturbance::Restart => self.restart(clients).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes() {
    judge!(mutexes, Setup::one(Kind::Mutex, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes_without_tokens() {
    let without = Setup { histories: FEW, ..Setup::one(Kind::Mutex, "&fencing=off") };
    judge!(mutexes_without_tokens, without);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_write_locks() {
    judge!(read_write_locks, Setup::one(Kind::ReadWrite, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores() {
    judge!(semaphores, Setup::one(Kind::Semaphore, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_sentinels() {
    judge!(with_sentinels, Setup::group(Kind::ReadWrite));
}

/// Fair locks are among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes_with_sentinels() {
    judge!(mutexes_with_sentinels, Setup::group(Kind::Mutex));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes_on_a_cluster() {
    judge!(mutexes_on_a_cluster, Setup::cluster(Kind::Mutex));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_write_locks_on_a_cluster() {
    judge!(read_write_locks_on_a_cluster, Setup::cluster(Kind::ReadWrite));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_on_a_cluster() {
    judge!(semaphores_on_a_cluster, Setup::cluster(Kind::Semaphore));
}
