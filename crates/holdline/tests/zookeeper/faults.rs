//! Members that are too few, a server that stands still or restarts, sessions that somebody ends.

use std::time::Duration;

use holdline::{Client, ErrorKind, LostReason};
use holdline_services::{ZooKeeper, ZooKeeperConfig};

use crate::support::{
    LONG, client, lease, let_go, patient, queued, renewed, soon, take, taking, until,
};

/// Tries a name until nobody answers for it; at first a member may not have noticed yet.
async fn refused(client: &Client, name: &str) {
    let mutex = client.mutex_with(name, &lease(5)).expect("a good lock");
    until("no majority", async || {
        let error = mutex.try_lock().await.err();
        error.is_some_and(|error| matches!(error.kind(), ErrorKind::Unavailable { .. }))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nobody_holds_for_long_and_with_it_all_goes_on() {
    let servers = ZooKeeper::start_three(&ZooKeeperConfig::default());
    let client = client(&servers.url()).await;
    let held = take(&client, "a", &lease(10)).await;
    let token = held.fencing_token();
    servers.kill(0);
    servers.kill(1);
    let risk = soon("the risk", held.at_risk()).await;
    assert!(held.is_valid(), "notified before it is lost: {risk:?}");
    refused(&client, "b").await;
    // By its own clock: no message reaches it.
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Expired);
    assert!(!held.is_valid());
    for member in [0, 1] {
        servers.relaunch(member);
    }
    servers.await_ready(0);
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > token);
    let_go(next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_restarted_keeps_holder_and_queue() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let client = client(&server.url()).await;
    let held = take(&client, "a", &patient()).await;
    let waiter = taking(&client, "a");
    queued(&client, "a", 1).await;
    server.restart();
    renewed(&held, 2).await;
    let token = held.fencing_token();
    let_go(held).await;
    let next = soon("the next one", waiter).await.expect("no panic");
    assert!(next.fencing_token() > token);
    let_go(next).await;
}

/// If its node is gone while it waits, it stands behind those who came after it. A holder whose
/// session has ended is notified, and the next one holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_ended_is_noticed_and_a_waiter_queues_again() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let (holding, waiting) = (client(&server.url()).await, client(&server.url()).await);
    let held = take(&holding, "a", &patient()).await;
    let first = server.sessions_below("/holdline/a");
    let unlucky = taking(&waiting, "a");
    queued(&holding, "a", 1).await;
    let both = server.sessions_below("/holdline/a");
    let its = *both.iter().find(|session| !first.contains(session)).expect("another");
    let behind = taking(&holding, "a");
    queued(&holding, "a", 2).await;
    assert!(server.end_session(its));
    until("it queues anew", async || {
        let now = server.sessions_below("/holdline/a");
        now.len() == 2 && !now.contains(&its)
    })
    .await;
    let token = held.fencing_token();
    let_go(held).await;
    let behind = soon("the one behind", behind).await.expect("no panic");
    assert!(behind.fencing_token() > token && !unlucky.is_finished());
    assert!(server.end_session(first[0]));
    assert_eq!(soon("the loss", behind.lost()).await, LostReason::Missing);
    let unlucky = soon("the one that started over", unlucky).await.expect("no panic");
    assert!(unlucky.fencing_token() > behind.fencing_token());
    let_go(unlucky).await;
}

/// A contender that is dropped while nobody answers leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_dropped_while_the_server_hangs_leaves_nothing() {
    let server = ZooKeeper::start(&ZooKeeperConfig::default());
    let client = client(&server.url()).await;
    // So that there is a session already, and a name.
    let_go(take(&client, "a", &patient()).await).await;
    server.stop(0);
    let mutex = client.mutex_with("a", &patient()).expect("a good lock");
    let asking = tokio::time::timeout(Duration::from_millis(100), mutex.lock()).await;
    assert!(asking.is_err(), "nobody answers");
    server.cont(0);
    let held = take(&client, "a", &patient()).await;
    let_go(held).await;
    let report = soon("a shutdown", client.shutdown(LONG)).await;
    assert!(report.is_clean(), "{report:?}");
    until("nothing is left", async || server.sessions_below("/holdline").is_empty()).await;
}
