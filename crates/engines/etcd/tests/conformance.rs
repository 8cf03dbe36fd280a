//! The etcd engine on real servers: Debian's alone, three of them, and newer ones.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_etcd::{EtcdEngine, EtcdOptions};
use holdline_services::{EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer};

/// How many histories suffice where only the servers are others.
const FEW: usize = 40;
const FOREIGN: &str = "another client's value";

enum Servers {
    One(EtcdServer),
    Three(EtcdCluster),
}

struct Etcd {
    servers: Servers,
    histories: usize,
    /// As 3.5.0 to 3.5.2 do.
    forgets_when_killed: bool,
}

impl Etcd {
    fn one(flavour: EtcdFlavour, histories: usize) -> Etcd {
        let config = EtcdConfig::default().with_flavour(flavour);
        let servers = Servers::One(EtcdServer::start(config));
        Etcd { servers, histories, forgets_when_killed: flavour == EtcdFlavour::V35 }
    }

    fn ctl(&self, words: &[&str]) -> String {
        match &self.servers {
            Servers::One(server) => server.ctl(words),
            Servers::Three(cluster) => cluster.ctl_until(0, words),
        }
    }

    fn url(&self) -> String {
        match &self.servers {
            Servers::One(server) => server.url(),
            Servers::Three(cluster) => cluster.url(),
        }
    }

    /// Kills the servers and starts them again; one of a version that forgets what it has
    /// acknowledged when it is killed (etcd issue 13766) is ended in good order.
    fn restart(&self) {
        match &self.servers {
            Servers::One(server) => {
                if self.forgets_when_killed {
                    server.end();
                }
                server.restart();
            }
            Servers::Three(cluster) => {
                (0..3).for_each(|member| cluster.kill(member));
                (0..3).for_each(|member| cluster.relaunch(member));
                (0..3).for_each(|member| cluster.await_ready(member));
            }
        }
    }
}

/// A key where Go's mutexes would queue, and that is none. The suite's names have no `%`.
fn key(name: &LockName) -> String {
    format!("holdline/{}/config", name.as_str().replace('/', "%2F"))
}

impl RealStore for Etcd {
    type Client = EtcdEngine;

    fn name(&self) -> String {
        "etcd".to_owned()
    }

    async fn open(&self) -> Result<EtcdEngine, LockError> {
        let options = EtcdOptions::from_url(&self.url())?
            .with_max_waiters(50)
            .with_command_timeout(Duration::from_secs(10));
        EtcdEngine::connect(&options, Arc::new(MachineClock)).await
    }

    /// A lease is whole seconds. A leader keeps an expired lease for a second more at most.
    fn scale(&self) -> Scale {
        let lease = Duration::from_secs(1);
        Scale { lease, histories: self.histories, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
        match disturbance {
            Disturbance::PlantForeign(name) => {
                self.ctl(&["put", &key(name), FOREIGN]);
                Disturbed::Done
            }
            Disturbance::CheckForeign(name) => {
                let found = self.ctl(&["get", &key(name), "--print-value-only"]);
                match found.trim_end() == FOREIGN {
                    true => Disturbed::Done,
                    false => Disturbed::Failed(found),
                }
            }
            Disturbance::Restart => {
                self.restart();
                clients.reconnect().await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_member() {
    judge!(on_one_member, Etcd::one(EtcdFlavour::default(), Scale::quick().histories));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_members() {
    let start = || Servers::Three(EtcdCluster::start(EtcdConfig::default()));
    judge!(on_three_members, Etcd { servers: start(), histories: FEW, forgets_when_killed: false });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_newer_version() {
    judge!(on_a_newer_version, Etcd::one(EtcdFlavour::V35, FEW));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_newest_version() {
    judge!(on_the_newest_version, Etcd::one(EtcdFlavour::V37, FEW));
}
