//! On a cluster: sharded messages, a slot that moves, and names whose keys would be apart.

use std::time::Duration;

use holdline_conformance::asking;
use holdline_core::{
    AcquireReply, Engine, ErrorKind, Hint, LatchCommand, Purpose, ReleaseReply, RenewReply,
};
use holdline_redis::RedissonEngine;
use holdline_services::{ClusterConfig, Flavour, RedisCluster, RedisConfig};

use crate::shared::next;
use crate::support::{connect, ending, name, request, take};

/// Longer than any fault that must not cause a failover.
const LONG: Duration = Duration::from_secs(90);

pub(crate) fn masters(flavour: Flavour) -> RedisCluster {
    let servers = RedisConfig::default().with_flavour(flavour);
    let config = ClusterConfig::default().with_node_timeout(LONG).with_size(3, 0);
    RedisCluster::start(&config.with_servers(servers))
}

pub(crate) async fn engine(cluster: &RedisCluster, parameters: &str) -> RedissonEngine {
    connect(&cluster.url(), parameters).await.expect("connected")
}

/// Returns how often the nodes have run a command.
fn calls(cluster: &RedisCluster, command: &str) -> u64 {
    cluster.nodes().iter().map(|node| crate::support::calls(node, command)).sum()
}

/// One holds, the other waits and is woken by the release.
async fn wakes(holder: &RedissonEngine, waiter: &RedissonEngine, text: &str) {
    let held = request(text);
    take(holder, &held).await;
    let waits = request(text);
    let reply = waiter.try_acquire(&waits).await.expect("answered");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
    let mut hints = waiter.watch(&waits.name, waits.lease_id);
    assert_eq!(next(&mut hints).await, Hint::LookAgain, "it is subscribed now");
    holder.release(&ending(&held, false)).await.expect("released");
    assert_eq!(next(&mut hints).await, Hint::LookAgain);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_sharded_unless_the_options_say_otherwise() {
    let cluster = masters(Flavour::Debian);
    // Those that made the cluster published, too.
    let before = calls(&cluster, "publish");
    let published = || (calls(&cluster, "publish") - before, calls(&cluster, "spublish"));
    let auto = [engine(&cluster, "").await, engine(&cluster, "protocol=resp2").await];
    wakes(&auto[0], &auto[1], "a").await;
    wakes(&auto[1], &auto[0], "b").await;
    assert_eq!(published(), (0, 2));
    let plain = [engine(&cluster, "publish=plain").await, engine(&cluster, "publish=plain").await];
    wakes(&plain[0], &plain[1], "c").await;
    assert_eq!(published(), (1, 2));
    let both = engine(&cluster, "publish=both").await;
    wakes(&both, &plain[0], "d").await;
    wakes(&both, &auto[0], "e").await;
    assert_eq!(published(), (3, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_the_slot_of_its_channel() {
    let cluster = masters(Flavour::Debian);
    for (text, parameters) in [("a", ""), ("b", "protocol=resp2")] {
        let (ours, theirs) = (engine(&cluster, "").await, engine(&cluster, parameters).await);
        let held = request(text);
        take(&ours, &held).await;
        let waits = request(text);
        let reply = theirs.try_acquire(&waits).await.expect("answered");
        assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
        let mut hints = theirs.watch(&waits.name, waits.lease_id);
        assert_eq!(next(&mut hints).await, Hint::LookAgain, "it is subscribed now");
        let slot = cluster.slot_of(text);
        let from = cluster.owner(slot, 0).expect("an owner");
        cluster.move_slot(slot, from, (from + 1) % 3);
        assert_eq!(next(&mut hints).await, Hint::LookAgain, "it is subscribed anew");
        let kept = asking::renew(&ours, &held, Purpose::Keep(held.hold)).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
        ours.release(&ending(&held, false)).await.expect("released");
        assert_eq!(next(&mut hints).await, Hint::LookAgain);
    }
}

/// The keys of a name are split between two nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_moves_a_mutex_is_renewed_and_released_and_nothing_is_granted() {
    let cluster = masters(Flavour::Debian);
    let patient = engine(&cluster, "").await;
    let hasty = engine(&cluster, "command_timeout_ms=300").await;
    for moves_key in [false, true] {
        let text = if moves_key { "moved" } else { "stays" };
        let held = request(text);
        take(&patient, &held).await;
        let slot = cluster.slot_of(text);
        let from = cluster.owner(slot, 0).expect("an owner");
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        if moves_key {
            cluster.move_key(text, from, to);
        }
        let kept = asking::renew(&patient, &held, Purpose::Keep(held.hold)).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
        let refused = hasty.try_acquire(&request(text)).await.expect_err("its slot moves");
        assert!(matches!(refused.kind(), ErrorKind::NoQuorum { .. }), "{refused:?}");
        let released = patient.release(&ending(&held, false)).await.expect("released");
        assert!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
        let refused = hasty.try_acquire(&request(text)).await.expect_err("its slot moves");
        assert!(matches!(refused.kind(), ErrorKind::NoQuorum { .. }), "{refused:?}");
        let counter = format!("redisson_lock_token:{{{text}}}");
        cluster.move_key(&counter, from, to);
        cluster.end_move(slot, from, to);
        assert_eq!(take(&patient, &request(text)).await.get(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_whose_keys_would_be_apart_are_refused() {
    let cluster = masters(Flavour::Debian);
    let engine = engine(&cluster, "").await;
    for bad in ["a{b", "x{}y", "a}b"] {
        let error = engine.try_acquire(&request(bad)).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "name", .. }), "{error:?}");
        assert!(engine.inspect(&name(bad)).await.is_err(), "{bad}");
    }
    take(&engine, &request("{orders}:7")).await;
    let set = LatchCommand::Set(2);
    assert!(Engine::latch(&engine, &name("ready"), set).await.is_ok());
    let error = Engine::latch(&engine, &name("{orders}:8"), set).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "name", .. }), "{error:?}");
}
