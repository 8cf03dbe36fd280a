//! Renewals while a slot moves: the keys of a name are on two nodes, whichever have moved already.

use std::time::Duration;

use holdline_core::{
    AcquireRequest, Engine, Hold, LockKind, Mode, Purpose, ReleaseReply, RenewReply, RenewRequest,
};
use holdline_redis::RedissonEngine;
use holdline_services::{Flavour, RedisCluster, Reply};

use crate::cluster::{engine, masters};
use crate::support::{ending, name, request, take};

/// By how much each renewal of these tests is longer than the one before: no renewal takes so long.
const STEP: Duration = Duration::from_secs(60);

/// Makes the requests of a case, which are granted together.
type Requests = fn(&str) -> Vec<AcquireRequest>;

fn two_readers(text: &str) -> Vec<AcquireRequest> {
    let read = || AcquireRequest { mode: Mode::Shared, kind: LockKind::ReadWrite, ..request(text) };
    vec![read(), read()]
}

fn a_writer(text: &str) -> Vec<AcquireRequest> {
    vec![AcquireRequest { kind: LockKind::ReadWrite, ..request(text) }]
}

fn permits(text: &str) -> Vec<AcquireRequest> {
    let of = |count| AcquireRequest { mode: Mode::Permits { count, of: 4 }, ..request(text) };
    vec![of(1), of(2)]
}

/// Returns the keys that a node has of a slot, in order.
fn keys_of(cluster: &RedisCluster, slot: u16, node: usize) -> Vec<String> {
    let words = ["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"];
    let reply = cluster.nodes()[node].raw().send(&words).expect("an answer");
    let mut keys: Vec<_> = reply.items().expect("a list").iter().filter_map(Reply::text).collect();
    keys.sort();
    keys
}

/// Renews grants by one batch, for longer each time; each must have at least that much left then.
async fn all_renewed(engine: &RedissonEngine, held: &[AcquireRequest], rounds: &mut u32) {
    *rounds += 1;
    let lease = STEP * *rounds;
    let renewal = |request: &AcquireRequest| RenewRequest {
        name: request.name.clone(),
        lease_id: request.lease_id,
        client: request.client,
        purpose: Purpose::Keep(Hold::Leased(lease)),
    };
    let renewals: Vec<RenewRequest> = held.iter().map(renewal).collect();
    for reply in engine.renew(&renewals).await {
        let Ok(RenewReply::Renewed { left: Some(left) }) = reply else {
            panic!("renewal {rounds} of {}: {reply:?}", held[0].name)
        };
        assert!(left > lease - STEP, "renewal {rounds} of {}: {left:?} are left", held[0].name);
    }
}

/// Renews after each key that moves, and releases at the end. The key of the lock itself is the
/// first in the order of keys of one, and among the last in that of another.
async fn renewed_at_each_step(
    cluster: &RedisCluster,
    engine: &RedissonEngine,
    (text, of, last_first): (&str, Requests, bool),
) {
    let held = of(text);
    for request in &held {
        take(engine, request).await;
    }
    let mut rounds = 0;
    all_renewed(engine, &held, &mut rounds).await;
    let slot = cluster.slot_of(text);
    let from = cluster.owner(slot, 0).expect("an owner");
    let to = (from + 1) % 3;
    let mut keys = keys_of(cluster, slot, from);
    if last_first {
        keys.reverse();
    }
    cluster.begin_move(slot, from, to);
    for key in &keys {
        all_renewed(engine, &held, &mut rounds).await;
        cluster.move_key(key, from, to);
    }
    all_renewed(engine, &held, &mut rounds).await;
    cluster.end_move(slot, from, to);
    all_renewed(engine, &held, &mut rounds).await;
    let shown = engine.inspect(&name(text)).await.expect("inspected");
    for holder in &shown.holders {
        let left = holder.summary.left.expect("a lease");
        assert!(left > STEP * (rounds - 1), "{left:?} of {rounds} renewals");
    }
    for request in &held {
        let released = engine.release(&ending(request, false)).await.expect("released");
        assert!(matches!(released, ReleaseReply::Released { .. }), "{released:?}");
    }
}

async fn renewed_in_both_orders(of: Requests) {
    let cluster = masters(Flavour::Debian);
    let engine = engine(&cluster, "").await;
    renewed_at_each_step(&cluster, &engine, ("first-first", of, false)).await;
    renewed_at_each_step(&cluster, &engine, ("last-first", of, true)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_lock_is_renewed_while_its_slot_moves() {
    renewed_in_both_orders(two_readers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_lock_is_renewed_while_its_slot_moves() {
    renewed_in_both_orders(a_writer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_renewed_while_their_slot_moves() {
    renewed_in_both_orders(permits).await;
}
