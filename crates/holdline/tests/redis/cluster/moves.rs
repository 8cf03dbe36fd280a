//! Slots move while their names are held and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdline::{Client, LostReason};

use super::ground::{Cluster, lost, patient};
use crate::support::{
    Referee, behind, is_not_lost, let_go, queued, renewed, soon, take, the_resource_refuses, until,
};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CONTENDERS: usize = 3;
const ROUNDS: usize = 6;

/// Takes a name and lets it go until the end.
async fn take_turns(client: Client, name: String, referee: Arc<Referee>, end: Arc<AtomicBool>) {
    while !end.load(Ordering::SeqCst) {
        let guard = take(&client, &name, &patient()).await;
        referee.granted(&guard);
        let_go(guard).await;
    }
}

/// Contenders take their turns on some names, others hold some all the while; all their slots are
/// moved from master to master and nobody loses anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_nobody_loses_a_lock_or_a_position() {
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
        let client = cluster.client().await;
        for (name, referee) in NAMES.iter().zip(&referees) {
            let turns = take_turns(client.clone(), name.to_string(), referee.clone(), end.clone());
            work.push(tokio::spawn(turns));
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
                is_served_by(&mover, *slot, to);
                *owner = to;
            }
        }
        for (slot, owner) in places.iter().skip(1).step_by(2) {
            let kept = behind(mover.node(*owner), &format!("CLUSTER COUNTKEYSINSLOT {slot}"));
            assert!(kept.integer() > Some(0), "what is held is there too: {kept:?}");
        }
    });
    moved.await.expect("they move");
    let before: Vec<usize> = referees.iter().map(|referee| referee.grants()).collect();
    for guard in held {
        is_not_lost(&guard);
        renewed(&guard).await;
        let_go(guard).await;
    }
    until("all names go on", || {
        referees.iter().zip(&before).all(|(referee, before)| referee.grants() > before + CONTENDERS)
    })
    .await;
    end.store(true, Ordering::SeqCst);
    for one in work {
        soon("its end", one).await.expect("no panic");
    }
}

/// All masters see the slot there.
fn is_served_by(cluster: &Cluster, slot: u16, owner: usize) {
    let seen = [0, 1, 2].map(|witness| cluster.0.owner(slot, witness));
    assert_eq!(seen, [Some(owner); 3], "slot {slot}");
}

/// This many slots are moved by the operators' own tool, there and back.
const RESHARDED: usize = 48;

/// Names in the first slots of all, which the first node serves and are moved first.
fn names_of_the_first_slots(cluster: &Cluster) -> Vec<String> {
    let is_early = |name: &String| usize::from(cluster.place(name).0) < RESHARDED;
    (0..).map(|number| format!("early:{number}")).filter(is_early).take(NAMES.len()).collect()
}

/// Two names are held and waited for all the while, two go from hand to hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cli_reshards_and_nobody_loses_a_lock_or_a_position() {
    let cluster = Arc::new(Cluster::calm());
    let names = names_of_the_first_slots(&cluster);
    let slots: Vec<u16> = names.iter().map(|name| cluster.place(name).0).collect();
    let (kept, contended) = names.split_at(2);
    let (keeper, other) = (cluster.client().await, cluster.client().await);
    let (mut held, mut waiters) = (Vec::new(), Vec::new());
    for name in kept {
        held.push(take(&keeper, name, &patient()).await);
        let mutex = other.mutex_with(name, &patient()).expect("a good lock");
        waiters.push(tokio::spawn(async move { mutex.lock().await }));
        queued(cluster.node(0), name, 1).await;
    }
    let end = Arc::new(AtomicBool::new(false));
    let referees: Vec<Arc<Referee>> = contended.iter().map(|_| Arc::default()).collect();
    let mut work = Vec::new();
    for _ in 0..CONTENDERS {
        let client = cluster.client().await;
        work.extend(contended.iter().zip(&referees).map(|(name, referee)| {
            tokio::spawn(take_turns(client.clone(), name.clone(), referee.clone(), end.clone()))
        }));
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        slots.iter().for_each(|slot| is_served_by(&cluster, *slot, from));
        let mover = cluster.clone();
        let moved = tokio::task::spawn_blocking(move || mover.0.reshard(RESHARDED, from, to));
        let moved = moved.await.expect("they move");
        assert!(slots.iter().all(|slot| moved.contains(slot)), "{slots:?} of {moved:?}");
        slots.iter().for_each(|slot| is_served_by(&cluster, *slot, to));
        for guard in &held {
            renewed(guard).await;
            let shown =
                soon("an answer", keeper.admin().inspect(guard.name())).await.expect("shown");
            let tokens: Vec<_> = shown.holders.iter().map(|holder| holder.summary.token).collect();
            assert_eq!(tokens, [Some(guard.fencing_token())], "{shown:?}");
            assert_eq!(shown.queue_length, 1, "{shown:?}");
        }
        let before: Vec<usize> = referees.iter().map(|referee| referee.grants()).collect();
        until("all names go on", || {
            referees.iter().zip(&before).all(|(referee, before)| referee.grants() > *before)
        })
        .await;
    }
    for (guard, waiter) in held.into_iter().zip(waiters) {
        let token = guard.fencing_token();
        let_go(guard).await;
        let next = soon("the next", waiter).await.expect("no panic").expect("the name");
        assert!(next.fencing_token() > token, "{next:?} after {token:?}");
        let_go(next).await;
    }
    end.store(true, Ordering::SeqCst);
    for one in work {
        soon("its end", one).await.expect("no panic");
    }
}

/// Another node claims a slot without its keys: an operator may do that, and it was seen after
/// moves in quick succession. The servers throw the keys away, and the locks are gone with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_claimed_without_its_keys_loses_its_locks_and_holders_notice() {
    let cluster = Cluster::calm();
    let (holder, other) = (cluster.client().await, cluster.client().await);
    let (slot, owner) = cluster.place("a");
    let guard = take(&holder, "a", &patient()).await;
    let claims = (owner + 1) % 3;
    for line in [format!("DELSLOTS {slot}"), format!("ADDSLOTS {slot}"), "BUMPEPOCH".to_owned()] {
        cluster.0.command(claims, &format!("CLUSTER {line}"));
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
