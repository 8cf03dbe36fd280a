//! On a cluster: a slot that moves. Each lock has one key, so nothing waits for its end.

use std::time::Duration;

use holdline_conformance::asking;
use holdline_core::{AcquireReply, Engine, Purpose, ReleaseReply, RenewReply};
use holdline_redis::PlainEngine;
use holdline_services::{ClusterConfig, RedisCluster};

use crate::support::{at, ending, request, take};

/// Longer than any fault that must not cause a failover.
const LONG: Duration = Duration::from_secs(90);

async fn is_busy(engine: &PlainEngine, text: &str) {
    let reply = engine.try_acquire(&request(text)).await.expect("answered");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "{reply:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_its_slot_moves_a_lock_is_acquired_renewed_and_released() {
    let config = ClusterConfig::default().with_node_timeout(LONG).with_size(3, 0);
    let cluster = RedisCluster::start(&config);
    let engine = at(&cluster.url(), "fencing=off").await;
    for moves_key in [false, true] {
        let text = if moves_key { "moved" } else { "stays" };
        let key = format!("lock:{text}");
        let held = request(text);
        take(&engine, &held).await;
        let slot = cluster.slot_of(&key);
        let from = cluster.owner(slot, 0).expect("an owner");
        let to = (from + 1) % 3;
        cluster.begin_move(slot, from, to);
        if moves_key {
            cluster.move_key(&key, from, to);
        }
        let kept = asking::renew(&engine, &held, Purpose::Keep(held.hold)).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
        is_busy(&engine, text).await;
        let released = engine.release(&ending(&held, false)).await.expect("released");
        assert!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
        let next = request(text);
        take(&engine, &next).await;
        is_busy(&engine, text).await;
        cluster.end_move(slot, from, to);
        is_busy(&engine, text).await;
        let kept = asking::renew(&engine, &next, Purpose::Keep(next.hold)).await;
        assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
        engine.release(&ending(&next, false)).await.expect("released");
    }
}
