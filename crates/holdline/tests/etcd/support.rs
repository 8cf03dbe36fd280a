//! What the tests share: clients, and those whom nobody answers.

use holdline::{Client, ErrorKind, LockError};
use holdline_services::EtcdCluster;

pub(crate) use crate::contenders::{
    LONG, lease, let_go, patient, queued, renewed, soon, take, taking, until,
};

/// A client with short deadlines, so that a member that stands still is soon left.
pub(crate) async fn client(url: &str) -> Client {
    try_client(url).await.expect("connected")
}

pub(crate) async fn try_client(url: &str) -> Result<Client, LockError> {
    Client::connect(&format!("{url}?command_timeout_ms=3000&connect_timeout_ms=3000")).await
}

/// A client that asks this member first, and then the others.
pub(crate) async fn first_at(cluster: &EtcdCluster, member: usize) -> Client {
    let hosts = [0, 1, 2].map(|on| cluster.address((member + on) % 3).to_string());
    client(&format!("etcd://{}", hosts.join(","))).await
}

/// Tries a name until the error is that too few members agree; at first it may ask a member that
/// has not noticed yet.
pub(crate) async fn refused_by_too_few(client: &Client, name: &str) {
    let mutex = client.mutex_with(name, &lease(5)).expect("a good lock");
    until("too few", async || {
        let refused = mutex.try_lock().await.expect_err("no majority");
        matches!(refused.kind(), ErrorKind::NoQuorum { .. })
    })
    .await;
}

/// Tries a name until the error is that nobody answers.
pub(crate) async fn unanswered(client: &Client, name: &str) {
    let mutex = client.mutex_with(name, &lease(5)).expect("a good lock");
    until("no answer", async || {
        let refused = mutex.try_lock().await.expect_err("nobody answers");
        matches!(refused.kind(), ErrorKind::Unavailable { .. })
    })
    .await;
}
