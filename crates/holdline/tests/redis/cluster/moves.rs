//! Slots move while their names are held and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdline::LostReason;

use super::ground::{Cluster, lost, patient};
use crate::support::{Referee, behind, is_not_lost, let_go, renewed, take, the_resource_refuses};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CONTENDERS: usize = 3;
const ROUNDS: usize = 6;

/// Contenders take their turns on some names, others hold some all the while; all their slots are
/// moved from master to master and nobody loses anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_nobody_loses_a_lock_or_a_place() {
    let cluster = Arc::new(Cluster::calm());
    let end = Arc::new(AtomicBool::new(false));
    let keeper = cluster.client().await;
    let mut held = Vec::new();
    for name in NAMES {
        held.push(take(&keeper, &format!("kept:{name}"), &patient()).await);
    }
    let referees: Vec<Arc<Referee>> = NAMES.iter().map(|_| Arc::default()).collect();
    let mut work = Vec::new();
    for _ in 0..CONTENDERS {
        let client = Arc::new(cluster.client().await);
        for (name, referee) in NAMES.iter().zip(&referees) {
            let (client, referee, end) = (client.clone(), referee.clone(), end.clone());
            work.push(tokio::spawn(async move {
                while !end.load(Ordering::SeqCst) {
                    let guard = take(&client, name, &patient()).await;
                    referee.granted(&guard);
                    let_go(guard).await;
                }
            }));
        }
    }
    let mover = cluster.clone();
    let moved = tokio::task::spawn_blocking(move || {
        let all = NAMES.iter().flat_map(|name| [(*name).to_owned(), format!("kept:{name}")]);
        let mut places: Vec<(u16, usize)> = all.map(|name| mover.place(&name)).collect();
        for _ in 0..ROUNDS {
            for (slot, owner) in &mut places {
                let to = (*owner + 1) % 3;
                mover.0.move_slot(*slot, *owner, to);
                *owner = to;
            }
        }
    });
    moved.await.expect("they move");
    let before: Vec<usize> = referees.iter().map(|referee| referee.grants()).collect();
    for guard in held {
        is_not_lost(&guard);
        renewed(&guard).await;
        let_go(guard).await;
    }
    crate::support::until("all names go on", || {
        referees.iter().zip(&before).all(|(referee, before)| referee.grants() > before + CONTENDERS)
    })
    .await;
    end.store(true, Ordering::SeqCst);
    for one in work {
        crate::support::soon("its end", one).await.expect("no panic");
    }
}

/// Another node claims a slot without its keys: an operator may do that, and it was seen after
/// moves in quick succession. The servers throw the keys away, and the locks are gone with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_claimed_without_its_keys_loses_its_locks_and_holders_are_told() {
    let cluster = Cluster::calm();
    let (holder, other) = (cluster.client().await, cluster.client().await);
    let (slot, owner) = cluster.place("a");
    let guard = take(&holder, "a", &patient()).await;
    let claims = (owner + 1) % 3;
    for line in [format!("DELSLOTS {slot}"), format!("ADDSLOTS {slot}"), "BUMPEPOCH".to_owned()] {
        cluster.0.tell(claims, &format!("CLUSTER {line}"));
    }
    cluster.0.await_owner(slot, claims, &[0, 1, 2]);
    let kept = behind(cluster.node(owner), &format!("CLUSTER COUNTKEYSINSLOT {slot}"));
    assert_eq!(kept.integer(), Some(0));
    assert_eq!(lost(&guard).await, LostReason::Missing);
    let next = take(&other, "a", &patient()).await;
    assert!(next.fencing_token() > guard.fencing_token());
    the_resource_refuses(&guard, &next);
    let_go(next).await;
}
