//! The ZooKeeper engine on real servers: Debian's, alone, alone by TLS, and three of them.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::clock::MachineClock;
use holdline_conformance::{Disturbance, Disturbed, Opened, RealStore, Scale, judge};
use holdline_core::{LockError, LockName};
use holdline_services::{ZooKeeper, ZooKeeperConfig};
use holdline_zookeeper::{ZooKeeperEngine, ZooKeeperOptions};
use zookeeper_client::{Acls, Client, CreateMode};

/// How many histories suffice where only the servers are others.
const FEW: usize = 40;
const FOREIGN: &[u8] = b"another client's value";

struct Store {
    servers: ZooKeeper,
    /// Whether the engine uses TLS. What tests do beside it does not.
    tls: bool,
    histories: usize,
}

impl Store {
    async fn raw(&self) -> Client {
        Client::connect(&self.servers.hosts()).await.expect("the servers serve")
    }
}

/// A node where contenders queue, and that is none. The suite's names have no `%`.
fn node(name: &LockName) -> String {
    format!("/holdline/{}/config", name.as_str().replace('/', "%2F"))
}

impl RealStore for Store {
    type Client = ZooKeeperEngine;

    fn name(&self) -> String {
        if self.tls { "ZooKeeper by TLS".to_owned() } else { "ZooKeeper".to_owned() }
    }

    async fn open(&self) -> Result<ZooKeeperEngine, LockError> {
        let url = if self.tls {
            let ca = self.servers.certificates().ca();
            format!("{}?ca={}", self.servers.secure_url(), ca.display())
        } else {
            self.servers.url()
        };
        let options = ZooKeeperOptions::from_url(&url)?
            .with_max_waiters(50)
            .with_connect_timeout(Duration::from_secs(60))
            .with_command_timeout(Duration::from_secs(10));
        ZooKeeperEngine::connect(&options, Arc::new(MachineClock)).await
    }

    /// A session is kept by signs of life three times in two fifths of its time: on a busy machine
    /// it takes a second and a half.
    fn scale(&self) -> Scale {
        let lease = Duration::from_millis(1_500);
        Scale { lease, histories: self.histories, ..Scale::quick() }
    }

    async fn disturb(&self, disturbance: &Disturbance, clients: &Opened) -> Disturbed {
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
            Disturbance::Restart => {
                self.servers.restart();
                clients.reconnect().await
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_member() {
    let start = || ZooKeeper::start(&ZooKeeperConfig::default());
    let histories = Scale::quick().histories;
    judge!(on_one_member, Store { servers: start(), tls: false, histories });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_one_member_by_tls() {
    let start = || ZooKeeper::start(&ZooKeeperConfig::default().with_tls());
    judge!(on_one_member_by_tls, Store { servers: start(), tls: true, histories: FEW });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_three_members() {
    let start = || ZooKeeper::start_three(&ZooKeeperConfig::default());
    judge!(on_three_members, Store { servers: start(), tls: false, histories: FEW });
}
