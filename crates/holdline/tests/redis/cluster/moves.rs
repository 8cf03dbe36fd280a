//! Slots move while their names are held and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ground::{Cluster, patient};
use crate::support::{Referee, is_not_lost, let_go, renewed, take};

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
