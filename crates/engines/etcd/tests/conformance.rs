//! The etcd engine on real servers: Debian's alone, three of them, and newer ones.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
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
    test: &'static str,
    histories: usize,
    /// As 3.5.0 to 3.5.2 do.
    forgets_when_killed: bool,
    /// All clients that were opened: after a restart they have to find the servers again.
    engines: Opened,
}

impl Etcd {
    fn on(servers: Servers, test: &'static str, histories: usize) -> Etcd {
        let forgets_when_killed = false;
        Etcd { servers, test, histories, forgets_when_killed, engines: Opened::default() }
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
    /// acknowledged when it is killed (etcd issue 13766) is ended in good order. A request that
    /// meets the end of its connection has an unknown outcome, which is not what a restart is to
    /// show: so every client finds the servers before anything is asked again.
    async fn restart(&self) -> Disturbed {
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
        self.engines.reconnect().await
    }
}

/// A key where Go's mutexes would queue, and that is none. The suite's names have no `%`.
fn key(name: &LockName) -> String {
    format!("holdline/{}/config", name.as_str().replace('/', "%2F"))
}

impl Factory for Etcd {
    fn name(&self) -> String {
        format!("etcd, {}", self.test)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-etcd --test conformance {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            // A queue short enough that the suite can fill it.
            let options = EtcdOptions::from_url(&self.url())?
                .with_max_waiters(50)
                .with_command_timeout(Duration::from_secs(10));
            let engine = EtcdEngine::connect(&options, Arc::new(MachineClock)).await?;
            Ok(self.engines.add(engine))
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    /// A lease is whole seconds. A leader keeps an expired lease for a second more at most.
    fn scale(&self) -> Scale {
        let lease = Duration::from_secs(1);
        Scale { lease, histories: self.histories, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
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
                Disturbance::Restart => self.restart().await,
            }
        })
    }
}

/// One at a time: the suite uses a real clock.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_member() {
    let _turn = TURN.lock().await;
    let servers = Servers::One(EtcdServer::start(EtcdConfig::default()));
    run(Etcd::on(servers, "on_one_member", Scale::quick().histories)).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_members() {
    let _turn = TURN.lock().await;
    let servers = Servers::Three(EtcdCluster::start(EtcdConfig::default()));
    run(Etcd::on(servers, "on_three_members", FEW)).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_newer_version() {
    let _turn = TURN.lock().await;
    let config = EtcdConfig::default().with_flavour(EtcdFlavour::V35);
    let servers = Servers::One(EtcdServer::start(config));
    let etcd = Etcd::on(servers, "on_a_newer_version", FEW);
    run(Etcd { forgets_when_killed: true, ..etcd }).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_the_newest_version() {
    let _turn = TURN.lock().await;
    let config = EtcdConfig::default().with_flavour(EtcdFlavour::V37);
    let servers = Servers::One(EtcdServer::start(config));
    run(Etcd::on(servers, "on_the_newest_version", FEW)).await.conclude();
}
