//! `replicas=N`: a grant counts only when a replica has it, so a promotion loses none that counts.

use std::sync::Arc;
use std::time::Instant;

use holdline_conformance::asking::{HOLD, renew, request, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::{AcquireReply, Certainty, Engine, Purpose, RenewReply};
use holdline_redis::ClusterEngine;
use holdline_services::RedisCluster;

use crate::support::{LONG, calm, options};

async fn connect(cluster: &RedisCluster) -> ClusterEngine {
    let options = options(cluster, "replicas=1&command_timeout_ms=4000&connect_timeout_ms=10000");
    ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("the cluster is there")
}

/// Returns a name that this node serves.
fn name_of(cluster: &RedisCluster, node: usize) -> String {
    let mut names = (0..).map(|number| format!("n{number}"));
    let slot = |name: &str| cluster.slot_of(&format!("holdline:{{{name}}}"));
    names.find(|name| cluster.owner(slot(name), 0) == Some(node)).expect("one of many")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_counts_survives_the_promotion_of_a_replica() {
    let cluster = RedisCluster::start(&calm());
    let engine = connect(&cluster).await;
    let name = name_of(&cluster, 1);
    let slot = cluster.slot_of(&format!("holdline:{{{name}}}"));
    let replica = cluster.replica_of(1);
    cluster.await_replicated();
    let kept = request(&name);
    let token = take(&engine, &kept).await;
    let held = renew(&engine, &kept, Purpose::Keep(HOLD)).await;
    assert!(matches!(held, Ok(RenewReply::Renewed { .. })), "{held:?}");
    // The replica has it already: the master dies without another word.
    cluster.nodes()[1].kill();
    cluster.command(replica, "CLUSTER FAILOVER TAKEOVER");
    cluster.await_owner(slot, replica, &[0, 2]);
    let other = connect(&cluster).await;
    let busy = other.try_acquire(&request(&name)).await;
    assert!(matches!(busy, Ok(AcquireReply::Queued { .. })), "held with {token:?}: {busy:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_replica_has_does_not_count() {
    let cluster = RedisCluster::start(&calm());
    let engine = connect(&cluster).await;
    let name = name_of(&cluster, 1);
    let slot = cluster.slot_of(&format!("holdline:{{{name}}}"));
    let replica = cluster.replica_of(1);
    cluster.await_replicated();
    cluster.hold_back(1, replica);
    let lacking = request(&name);
    let error = engine.try_acquire(&lacking).await.expect_err("no replica has it");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    // The replica takes over, and another client gets the name: the first never believed in it.
    cluster.nodes()[1].kill();
    cluster.nodes()[replica].cont();
    cluster.command(replica, "CLUSTER FAILOVER TAKEOVER");
    cluster.await_owner(slot, replica, &[0, 2]);
    let end = Instant::now() + LONG;
    // The new master has no replica, so nothing counts there; without the setting it does.
    let url = options(&cluster, "command_timeout_ms=10000");
    let other = ClusterEngine::connect(&url, Arc::new(MachineClock)).await.expect("there");
    let next = request(&name);
    loop {
        match other.try_acquire(&next).await {
            Ok(AcquireReply::Granted { .. }) => return,
            Err(error) if error.is_unavailable() => {}
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < end, "nothing is granted");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await; // event: it takes over
    }
}
