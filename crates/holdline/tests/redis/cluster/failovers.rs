//! A master is lost and its replica takes over: with what it knew, or without.

use std::sync::Arc;

use holdline::{ErrorKind, LostReason};
use holdline_services::{RedisCluster, RedisConfig, RedisServer};

use super::ground::{Cluster, fixed, lost, patient};
use crate::support::{
    HASTY, Outages, Referee, is_not_lost, let_go, renewed, soon, take, the_resource_refuses,
    try_take, unspoilt, until,
};

/// What was replicated survives: the holder, the waiters and the tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_replicated_lock() {
    unspoilt("the failover took longer than the lease", async || {
        let cluster = Cluster::start();
        let (holder, other) = (cluster.client().await, cluster.client().await);
        let (slot, master) = cluster.place("a");
        let guard = take(&holder, "a", &patient()).await;
        cluster.0.await_replicated();
        cluster.node(master).kill();
        cluster.await_takeover(slot, master);
        if !guard.is_valid() {
            return false;
        }
        renewed(&guard).await;
        renewed(&guard).await;
        let token = guard.fencing_token();
        let busy = try_take(&other, "a", &patient()).await.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
        let options = patient();
        let (next, ()) = tokio::join!(take(&other, "a", &options), let_go(guard));
        assert!(next.fencing_token() > token);
        let_go(next).await;
        true
    })
    .await;
}

/// What P1 does not promise here: the replica lacks the grant, so another client holds while the
/// first still believes. The token shows who came later. The first learns of the loss at its next
/// renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_the_key_makes_a_second_holder_and_tokens_order_them() {
    unspoilt("the failover took longer than the lease", async || {
        let cluster = Cluster::start();
        let (holder, other) = (cluster.client().await, cluster.client().await);
        let (slot, master) = cluster.place("a");
        let replica = cluster.0.replica_of(master);
        let_go(take(&holder, "a", &patient()).await).await;
        cluster.0.await_replicated();
        cluster.0.hold_back(master, replica);
        let unreplicated = take(&holder, "a", &fixed()).await;
        // Many tokens are drawn that are not replicated.
        let mut last = unreplicated.fencing_token();
        for _ in 0..20 {
            let guard = take(&holder, "b", &patient()).await;
            last = last.max(guard.fencing_token());
            let_go(guard).await;
        }
        cluster.node(master).kill();
        cluster.node(replica).cont();
        cluster.await_takeover(slot, master);
        let second = take(&other, "a", &patient()).await;
        if !unreplicated.is_valid() {
            return false;
        }
        assert!(second.is_valid(), "two believe: this is what is not promised");
        assert!(second.fencing_token() > last && last >= unreplicated.fencing_token());
        the_resource_refuses(&unreplicated, &second);
        let outcome = soon("a release", unreplicated.release()).await;
        assert!(!outcome.is_released(), "{outcome:?}");
        is_not_lost(&second);
        let_go(second).await;
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_unknown_to_the_promoted_replica_has_lost() {
    unspoilt("the failover took longer than the lease", async || {
        let cluster = Cluster::start();
        let holder = cluster.client().await;
        let (slot, master) = cluster.place("a");
        let replica = cluster.0.replica_of(master);
        cluster.0.await_replicated();
        cluster.0.hold_back(master, replica);
        let guard = take(&holder, "a", &patient()).await;
        cluster.node(master).kill();
        cluster.node(replica).cont();
        cluster.await_takeover(slot, master);
        match lost(&guard).await {
            LostReason::Missing => true,
            // The cluster was slower than the lease.
            LostReason::Expired => false,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

/// A master that stood still, was replaced, and goes on: it is asked for nothing any more, and what
/// is renewed is renewed at the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stood_still_is_left() {
    unspoilt("the failover took longer than the lease", async || {
        let cluster = Cluster::start();
        let client = cluster.client().await;
        let (slot, master) = cluster.place("a");
        let guard = take(&client, "a", &patient()).await;
        cluster.0.await_replicated();
        cluster.node(master).stop();
        let replica = cluster.await_takeover(slot, master);
        if !guard.is_valid() {
            cluster.node(master).cont();
            return false;
        }
        renewed(&guard).await;
        cluster.node(master).cont();
        renewed(&guard).await;
        until("the old one follows", || !cluster.node(master).is_master()).await;
        cluster.0.await_owner(slot, replica, &[master]);
        renewed(&guard).await;
        let_go(guard).await;
        let_go(take(&client, "a", &patient()).await).await;
        true
    })
    .await;
}

/// Has a master take nothing while it has fewer replicas.
fn ask_for_replicas(server: &RedisServer, count: u32) {
    let reply = server.raw().say(&format!("CONFIG SET min-replicas-to-write {count}"));
    assert_eq!(reply.expect("an answer").text().as_deref(), Some("OK"));
}

/// The outage is longer than a client without any answer keeps asking. Other nodes answer, so
/// clients wait for a master until there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_survive_slots_without_a_master() {
    let cluster = Cluster::calm_with(RedisConfig::default().with_appendonly("always"));
    let (_, master) = cluster.place("a");
    let (dead, frozen) = (RedisServer::kill as fn(&RedisServer), RedisServer::stop as fn(&_));
    let alone: fn(&RedisServer) = |server| ask_for_replicas(server, 9);
    for (harm, mend) in [
        (dead, RedisServer::restart as fn(&_)),
        (frozen, RedisServer::cont),
        (alone, |server| ask_for_replicas(server, 0)),
    ] {
        let outages = Arc::new(Outages::default());
        let waiter = outages.client(&format!("{}?{HASTY}", cluster.0.url())).await;
        let_go(take(&waiter, "a", &patient()).await).await;
        harm(cluster.node(master));
        let mutex = waiter.mutex_with("a", &patient()).expect("a good lock");
        let waits = tokio::spawn(async move { mutex.lock().await });
        outages.await_some().await;
        let error = try_take(&waiter, "a", &patient()).await.expect_err("no master");
        assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
        assert!(error.to_string().contains("no master accepts it"), "{error}");
        mend(cluster.node(master));
        let_go(soon("the next", waits).await.expect("no panic").expect("the name")).await;
    }
}

/// An operator lets a replica take over: the old master hands all over, so nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_moves_a_master_and_nobody_notices() {
    let cluster = Cluster::start();
    let (holder, waiter) = (cluster.client().await, cluster.client().await);
    let (slot, master) = cluster.place("a");
    let replica = cluster.0.replica_of(master);
    let referee = Arc::new(Referee::default());
    let guard = take(&holder, "a", &patient()).await;
    referee.granted(&guard);
    let waits = tokio::spawn({
        let referee = referee.clone();
        async move {
            let guard = take(&waiter, "a", &patient()).await;
            referee.granted(&guard);
            (guard, waiter)
        }
    });
    crate::support::queued(cluster.node(master), "a", 1).await;
    cluster.0.fail_over(replica, slot, &[0, 1, 2]);
    renewed(&guard).await;
    renewed(&guard).await;
    let_go(guard).await;
    let (next, _waiter) = soon("the next", waits).await.expect("no panic");
    let_go(next).await;
    assert_eq!(referee.grants(), 2);
}

/// The connections with the subscriptions end: others are made, to other nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_survive_the_connections_by_which_they_came() {
    let cluster = Cluster::start();
    let (holder, waiter) = (cluster.client().await, cluster.client().await);
    let (_, master) = cluster.place("a");
    let guard = take(&holder, "a", &patient()).await;
    let waits = tokio::spawn(async move { (take(&waiter, "a", &patient()).await, waiter) });
    crate::support::queued(cluster.node(master), "a", 1).await;
    let subscriptions = |node: usize| {
        let channels = cluster.0.command(node, "PUBSUB CHANNELS holdline:inbox:*");
        channels.items().map_or(0, <[_]>::len)
    };
    let before: usize = (0..6).map(subscriptions).sum();
    assert!(before > 0, "somebody subscribes");
    // The subscriptions are ended, not the nodes: that would be a failover.
    for node in 0..6 {
        for kind in ["pubsub", "normal"] {
            cluster.0.command(node, &format!("CLIENT KILL TYPE {kind}"));
        }
    }
    until("they subscribe again", || (0..6).map(subscriptions).sum::<usize>() >= before).await;
    let_go(guard).await;
    let (next, _waiter) = soon("the next", waits).await.expect("no panic");
    let_go(next).await;
}

/// An old copy is restored: the counters of its time are behind, and the clock is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_restored_from_an_old_copy_gives_no_token_twice() {
    let servers = RedisConfig::default();
    let config = holdline_services::ClusterConfig::default().with_size(1, 0).with_servers(servers);
    let cluster = Cluster(RedisCluster::start(&config));
    let client = cluster.client().await;
    let first = take(&client, "a", &patient()).await;
    let mut last = first.fencing_token();
    let_go(first).await;
    cluster.0.command(0, "SAVE");
    for _ in 0..20 {
        let guard = take(&client, "a", &patient()).await;
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        let_go(guard).await;
    }
    cluster.node(0).kill();
    cluster.node(0).restart();
    cluster.0.await_well();
    let kept = cluster.0.command(0, "GET holdline:fence:{a}").text().expect("the old counter");
    assert!(kept.parse::<u64>().expect("a number") < last.get(), "it is old");
    let guard = take(&client, "a", &patient()).await;
    assert!(guard.fencing_token() > last);
    let_go(guard).await;
}
