//! What the tests share: engines, and contenders that ask by hand.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
pub(crate) use holdline_conformance::contender::{LONG, contender, hint, until};
use holdline_core::LockError;
use holdline_services::ZooKeeper;
use holdline_zookeeper::{ZooKeeperEngine, ZooKeeperOptions};
use zookeeper_client::Client;

pub(crate) type Contender = holdline_conformance::contender::Contender<ZooKeeperEngine>;

/// An engine over this URL.
pub(crate) async fn engine(url: &str) -> ZooKeeperEngine {
    connect(url).await.expect("connected")
}

pub(crate) async fn connect(url: &str) -> Result<ZooKeeperEngine, LockError> {
    let mut options = ZooKeeperOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(LONG).with_connect_timeout(LONG);
    }
    ZooKeeperEngine::connect(&options, Arc::new(MachineClock)).await
}

/// All paths below a node, without the marks, which expire by themselves.
pub(crate) async fn nodes(servers: &ZooKeeper, below: &str) -> Vec<String> {
    let client = raw(servers).await;
    let (mut found, mut next) = (Vec::new(), vec![below.to_owned()]);
    while let Some(path) = next.pop() {
        for child in client.list_children(&path).await.unwrap_or_default() {
            if !child.starts_with('.') && child != "zookeeper" {
                next.push(format!("{}/{child}", path.trim_end_matches('/')));
            }
        }
        found.push(path);
    }
    found.retain(|path| path != below);
    found.sort_unstable();
    found
}

/// A client beside the engine.
pub(crate) async fn raw(servers: &ZooKeeper) -> Client {
    Client::connect(&servers.hosts()).await.expect("the servers serve")
}
