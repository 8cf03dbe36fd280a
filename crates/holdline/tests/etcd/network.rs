//! Members cut off from one another or from their clients, each on a machine of its own in the
//! test's own network. No packet comes through, and no error is reported.

use holdline::{Client, ErrorKind, LostReason};
use holdline_services::{Cut, EtcdCluster, EtcdConfig, PrivateNetwork};

use crate::support::{
    client, first_at, lease, let_go, patient, queued, refused_by_too_few, renewed, soon, take,
    taking, unanswered, until,
};

/// Three members on machines of their own, and which of them leads.
fn apart(network: &PrivateNetwork) -> (EtcdCluster, usize) {
    let cluster = EtcdCluster::start_apart(EtcdConfig::default(), network);
    let leader = cluster.leader_seen_by(0);
    (cluster, leader)
}

/// The URL of all members but one.
fn others(cluster: &EtcdCluster, member: usize) -> String {
    let hosts = [1, 2].map(|on| cluster.address((member + on) % 3).to_string());
    format!("etcd://{}", hosts.join(","))
}

/// Holds and waits at a member; cuts it from its peers, and passes the lock on in spite of that.
async fn over_a_member_that_was_cut(cluster: &EtcdCluster, cut: usize) {
    let (holding, waiting) = (first_at(cluster, cut).await, first_at(cluster, cut).await);
    let held = take(&holding, "a", &patient()).await;
    let waiter = taking(&waiting, "a");
    queued(&waiting, "a", 1).await;
    cluster.cut(cut, Cut::Peers);
    renewed(&held, 3).await;
    assert!(held.is_valid());
    let token = held.fencing_token();
    let_go(held).await;
    let next = soon("the next one", waiter).await.expect("no panic");
    assert!(next.fencing_token() > token);
    cluster.heal(cut);
    renewed(&next, 2).await;
    // It serves again, and knows what happened meanwhile.
    let back = reached(&cluster.url_of(cut)).await;
    queued_behind(&back, "a").await;
    let token = next.fencing_token();
    let_go(next).await;
    let last = take(&back, "a", &patient()).await;
    assert!(last.fencing_token() > token);
    let_go(last).await;
}

/// Connects as soon as it can.
async fn reached(url: &str) -> Client {
    let mut found = None;
    until("it is reached", async || {
        found = crate::support::try_client(url).await.ok();
        found.is_some()
    })
    .await;
    found.expect("found")
}

/// Waits until a held name is reported as busy.
async fn queued_behind(client: &Client, name: &str) {
    let mutex = client.mutex_with(name, &patient()).expect("a good lock");
    until("it is busy", async || {
        mutex.try_lock().await.is_err_and(|error| matches!(error.kind(), ErrorKind::Busy { .. }))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_leader_costs_no_lock_and_no_position() {
    let name = "network::an_isolated_leader_costs_no_lock_and_no_position";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let (cluster, leader) = apart(&network);
    over_a_member_that_was_cut(&cluster, leader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_isolated_follower_costs_no_lock_and_no_position() {
    let name = "network::an_isolated_follower_costs_no_lock_and_no_position";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let (cluster, leader) = apart(&network);
    over_a_member_that_was_cut(&cluster, (leader + 1) % 3).await;
}

/// Holds through one member only and lets another wait at the others; cuts that member.
async fn has_lost_before_the_next_grant(cluster: &EtcdCluster, only: usize, from: Cut) {
    let (alone, waiting) =
        (client(&cluster.url_of(only)).await, client(&others(cluster, only)).await);
    let held = take(&alone, "a", &lease(10)).await;
    let waiter = taking(&waiting, "a");
    queued(&waiting, "a", 1).await;
    cluster.cut(only, from);
    let next = soon("the next one", waiter).await.expect("no panic");
    // If this client still considered itself the holder, two would hold at once.
    assert!(!held.is_valid());
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Expired);
    assert!(next.fencing_token() > held.fencing_token());
    // What is asked there comes to nothing, and leaves nothing behind.
    match from {
        Cut::Peers => refused_by_too_few(&alone, "b").await,
        Cut::Clients => unanswered(&alone, "b").await,
    }
    cluster.heal(only);
    let token = next.fencing_token();
    let_go(next).await;
    let back = reached(&cluster.url_of(only)).await;
    for name in ["a", "b"] {
        let fresh = take(&back, name, &patient()).await;
        assert!(fresh.fencing_token() > token);
        let_go(fresh).await;
    }
    drop(held);
    let report = soon("a shutdown", alone.shutdown(crate::support::LONG)).await;
    assert!(report.is_clean(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_on_an_isolated_leader_has_lost_before_the_next_grant() {
    let name = "network::a_holder_on_an_isolated_leader_has_lost_before_the_next_grant";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let (cluster, leader) = apart(&network);
    has_lost_before_the_next_grant(&cluster, leader, Cut::Peers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_has_lost_before_the_next_grant() {
    let name = "network::a_holder_that_is_cut_off_has_lost_before_the_next_grant";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let (cluster, leader) = apart(&network);
    has_lost_before_the_next_grant(&cluster, (leader + 1) % 3, Cut::Clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_lost_for_a_while_costs_only_expired_leases() {
    let name = "network::a_majority_that_is_lost_for_a_while_costs_only_expired_leases";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let (cluster, _) = apart(&network);
    let client = client(&cluster.url()).await;
    let (short, long) =
        (take(&client, "short", &lease(8)).await, take(&client, "long", &patient()).await);
    let waiter = taking(&client, "long");
    queued(&client, "long", 1).await;
    (0..3).for_each(|member| cluster.cut(member, Cut::Peers));
    refused_by_too_few(&client, "other").await;
    // By its own clock: no message reaches it.
    assert_eq!(soon("the loss", short.lost()).await, LostReason::Expired);
    (0..3).for_each(|member| cluster.heal(member));
    renewed(&long, 2).await;
    assert!(long.is_valid());
    let fresh = take(&client, "short", &patient()).await;
    assert!(fresh.fencing_token() > short.fencing_token());
    let token = long.fencing_token();
    let_go(long).await;
    let next = match soon("the next one", waiter).await {
        Ok(guard) => guard,
        // After a long outage its wait ends with `Unavailable`; then it asks again.
        Err(_) => take(&client, "long", &patient()).await,
    };
    assert!(next.fencing_token() > token);
    let_go(next).await;
}
