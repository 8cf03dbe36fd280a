//! The ZooKeeper engine on real servers: Debian's, alone and three of them.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Opened, Scale, Time, run};
use holdline_core::{Engine, LockError, LockName};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use holdline_zookeeper::{ZooKeeperEngine, ZooKeeperOptions};
use zookeeper_client::{Acls, Client, CreateMode};

/// How many histories suffice where only the servers are others.
const FEW: usize = 40;
const FOREIGN: &[u8] = b"another client's value";

struct Store {
    servers: ZooKeeper,
    test: &'static str,
    histories: usize,
    /// All clients that were opened: after a restart they have to find the servers again.
    engines: Opened,
}

impl Store {
    fn on(servers: ZooKeeper, test: &'static str, histories: usize) -> Store {
        Store { servers, test, histories, engines: Opened::default() }
    }

    /// Kills the servers and starts them again. A request that meets the end of its connection has
    /// an unknown outcome, which is not what a restart is to show: so every client finds the
    /// servers before anything is asked again.
    async fn restart(&self) -> Disturbed {
        self.servers.restart();
        self.engines.reconnect().await
    }

    async fn raw(&self) -> Client {
        Client::connect(&self.servers.hosts()).await.expect("the servers serve")
    }
}

/// A node where contenders queue, and that is none. The suite's names have no `%`.
fn node(name: &LockName) -> String {
    format!("/holdline/{}/config", name.as_str().replace('/', "%2F"))
}

impl Factory for Store {
    fn name(&self) -> String {
        format!("ZooKeeper, {}", self.test)
    }

    fn command(&self) -> String {
        format!("cargo test -p holdline-zookeeper --test conformance {} -- --nocapture", self.test)
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        Box::pin(async {
            // A queue short enough that the suite can fill it.
            let options = ZooKeeperOptions::from_url(&self.servers.url())?
                .with_max_waiters(50)
                .with_command_timeout(Duration::from_secs(10));
            let engine = ZooKeeperEngine::connect(&options, Arc::new(MachineClock)).await?;
            Ok(self.engines.add(engine))
        })
    }

    fn time(&self) -> Time {
        Time::Real(Arc::new(MachineClock))
    }

    /// A session is kept by signs of life three times in two fifths of its time: on a busy machine
    /// it takes a second and a half.
    fn scale(&self) -> Scale {
        let lease = Duration::from_millis(1_500);
        Scale { lease, histories: self.histories, ..Scale::quick() }
    }

    fn disturb<'a>(&'a self, disturbance: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async move {
            match disturbance {
                Disturbance::PlantForeign(name) => {
                    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
                    let path = node(name);
                    let queue = path.trim_end_matches("/config");
                    let raw = self.raw().await;
                    raw.mkdir(queue, &options).await.expect("made");
                    raw.create(&path, FOREIGN, &options).await.expect("made");
                    Disturbed::Done
                }
                Disturbance::CheckForeign(name) => {
                    let found = self.raw().await.get_data(&node(name)).await;
                    match found.as_ref().is_ok_and(|(data, _)| data == FOREIGN) {
                        true => Disturbed::Done,
                        false => Disturbed::Failed(format!("{found:?}")),
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
    let servers = ZooKeeper::start(&ZooKeeperConfig::default());
    run(Store::on(servers, "on_one_member", Scale::quick().histories)).await.conclude();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_members() {
    let _turn = TURN.lock().await;
    let servers = ZooKeeper::start_three(&ZooKeeperConfig::default());
    run(Store::on(servers, "on_three_members", FEW)).await.conclude();
}
