//! Any of several names, and several names of several clients, in virtual time.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdline::clock::{Clock, ManualClock};
use holdline::memory::{MemoryEngine, MemoryOptions};
use holdline::{AnyOf, Client, ErrorKind, LockOptions, ReleaseOutcome};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::support::{client, drive, engine, look, pass, settle};

const S: Duration = Duration::from_secs(1);
const GPUS: [&str; 3] = ["gpu/0", "gpu/1", "gpu/2"];

fn any_of(client: &Client) -> AnyOf {
    client.any_of(GPUS).expect("good")
}

/// How many holders and waiters the names have together.
async fn count(client: &Client, names: &[&str]) -> (usize, usize) {
    let (mut holders, mut waiters) = (0, 0);
    for name in names {
        let snapshot = look(client, name).await;
        holders += snapshot.holder_count;
        waiters += snapshot.queue_length;
    }
    (holders, waiters)
}

#[tokio::test]
async fn the_first_free_name_is_taken_in_the_order_of_the_list() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let gpus = any_of(&client);
    let mut guards = Vec::new();
    for name in GPUS {
        let guard = gpus.lock().await.expect("one is free");
        assert_eq!(guard.name().as_str(), name);
        guards.push(guard);
    }
    assert!(gpus.try_lock().await.is_err_and(|error| error.is_contended()));
    let _ = guards.remove(1).release().await;
    assert_eq!(gpus.try_lock().await.expect("free again").name().as_str(), "gpu/1");
}

#[tokio::test]
async fn whichever_becomes_free_is_taken_and_no_other_queue_is_kept() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 2);
    let mut held = Vec::new();
    for name in GPUS {
        held.push(client.mutex(name).expect("good").lock().await.expect("free"));
    }
    let gpus = any_of(&client);
    let waiting = tokio::spawn(async move { gpus.lock().await });
    settle().await;
    assert_eq!(count(&client, &GPUS).await, (3, 3));
    let _ = held.remove(2).release().await;
    let guard = drive(&clock, waiting).await.expect("no panic").expect("one is free");
    assert_eq!(guard.name().as_str(), "gpu/2");
    assert_eq!(count(&client, &GPUS).await, (3, 0), "it waits nowhere");
    // The others are free at once for the next request.
    drop(held);
    settle().await;
    assert_eq!(count(&client, &GPUS).await, (1, 0));
}

#[tokio::test]
async fn two_that_become_free_together_are_not_both_kept() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 3);
    let held = client.lock_all(GPUS).await.expect("free");
    let gpus = any_of(&client);
    let waiting = tokio::spawn(async move { gpus.lock().await });
    settle().await;
    assert!(held.release().await.iter().all(ReleaseOutcome::is_released));
    let guard = drive(&clock, waiting).await.expect("no panic").expect("free");
    assert_eq!(count(&client, &GPUS).await, (1, 0), "the others went back before it returned");
    assert!(guard.is_valid());
}

#[tokio::test]
async fn cancelling_leaves_every_queue() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 4);
    let _held = client.lock_all(GPUS).await.expect("free");
    for many in [1, 2] {
        let gpus = any_of(&client);
        let waiting = tokio::spawn(async move { gpus.lock_many(many).await.map(drop) });
        settle().await;
        assert_eq!(count(&client, &GPUS).await.0, 3);
        assert!(count(&client, &GPUS).await.1 > 0);
        waiting.abort();
        settle().await;
        assert_eq!(count(&client, &GPUS).await, (3, 0));
    }
}

#[tokio::test]
async fn the_limit_is_one_for_all_names() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 5);
    let _held = client.lock_all(GPUS).await.expect("free");
    let options = LockOptions::default().with_wait(5 * S);
    let gpus = client.any_of_with(GPUS, &options).expect("good");
    let began = clock.now();
    let error = drive(&clock, async move { gpus.lock().await }).await.expect_err("held");
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    assert!(began.until(clock.now()) < 6 * S);
    assert_eq!(count(&client, &GPUS).await, (3, 0));
}

#[tokio::test]
async fn several_of_several_are_all_or_none() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 6);
    let gpus = any_of(&client);
    let two = gpus.lock_many(2).await.expect("free");
    let names = |guards: &holdline::Guards| -> Vec<String> {
        guards.guards().iter().map(|guard| guard.name().as_str().to_owned()).collect()
    };
    assert_eq!(names(&two), ["gpu/0", "gpu/1"]);
    assert!(gpus.try_lock_many(2).await.is_err_and(|error| error.is_contended()));
    assert_eq!(count(&client, &GPUS).await, (2, 0), "none of the rest is held");
    let options = LockOptions::default().with_wait(2 * S);
    let limited = client.any_of_with(GPUS, &options).expect("good");
    let error = drive(&clock, async move { limited.lock_many(3).await }).await.expect_err("held");
    assert!(error.is_contended(), "{error}");
    settle().await;
    assert_eq!(count(&client, &GPUS).await, (2, 0));
    let waiting = tokio::spawn(async move { gpus.lock_many(3).await });
    settle().await;
    let _ = two.release().await;
    let all = drive(&clock, waiting).await.expect("no panic").expect("free");
    assert_eq!(names(&all), GPUS);
}

/// Fourteen workers want one or two of five names, each from a set of its own, for a long time: no
/// name is held twice, nobody holds one too many or waits where it need not, and everybody is
/// served about as soon as the others.
#[tokio::test]
async fn nobody_starves_in_a_long_run() {
    const ROUNDS: usize = 60;
    let names = ["a", "b", "c", "d", "e"];
    let (engine, clock) = engine();
    let watcher = client(engine.clone(), &clock, 99);
    let held: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    let waits: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let mut workers = Vec::new();
    for worker in 0..14_usize {
        let mut random = StdRng::seed_from_u64(worker as u64);
        let (client, clock) = (client(engine.clone(), &clock, worker as u64), clock.clone());
        let (held, waits) = (held.clone(), waits.clone());
        workers.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let count = random.random_range(1..=2);
                let size = count + random.random_range(0..3);
                let set: Vec<&str> = names.sample(&mut random, size).copied().collect();
                let any_of = client.any_of(&set).expect("good");
                let began = clock.now();
                let guards = any_of.lock_many(count).await.expect("in the end");
                waits.lock().expect("no panic").push(began.until(clock.now()));
                assert_eq!(guards.guards().len(), count);
                for guard in guards.guards() {
                    let name = guard.name().as_str().to_owned();
                    assert!(set.contains(&&*name));
                    let before = held.lock().expect("no panic").insert(name, worker);
                    assert_eq!(before, None, "two hold one name");
                }
                let lasts = Duration::from_millis(random.random_range(1..200));
                clock.sleep_until(clock.now().after(lasts)).await;
                for guard in guards.guards() {
                    held.lock().expect("no panic").remove(guard.name().as_str());
                }
                let _ = guards.release().await;
            }
        }));
    }
    drive(&clock, async move {
        for worker in workers {
            worker.await.expect("no panic");
        }
    })
    .await;
    assert_eq!(count(&watcher, &names).await, (0, 0), "nothing is left");
    let waits = waits.lock().expect("no panic");
    let longest = waits.iter().max().expect("some");
    // Fourteen hold for at most 0.2 s each: a waiter that is skipped again and again waits longer.
    assert!(*longest < 10 * S, "somebody waited {longest:?}");
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_asked() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 7);
    for bad in [vec![], vec!["a", "b", "a"]] {
        let error = client.any_of(bad).expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "names", .. }), "{error}");
    }
    let id = LockOptions::default().with_lease_id(client.leases().draw_id());
    assert!(client.any_of_with(["a"], &id).is_err());
    for bad in [0, 4] {
        let error = any_of(&client).lock_many(bad).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "count", .. }), "{error}");
        assert!(error.to_string().contains("from 1 to 3"), "{error}");
    }
}

/// Two stores, and a client of each.
fn two_stores(clock: &ManualClock) -> (MemoryEngine, MemoryEngine) {
    let store = |identity: &str| {
        MemoryEngine::new(identity, Arc::new(clock.clone()), &MemoryOptions::default())
    };
    (store("alpha"), store("beta"))
}

#[tokio::test]
async fn names_of_several_clients_are_taken_in_the_order_of_their_stores() {
    let clock = ManualClock::new();
    let (alpha, beta) = two_stores(&clock);
    let (alpha, beta) = (client(alpha, &clock, 1), client(beta, &clock, 2));
    let all = holdline::lock_all([(&beta, "a"), (&alpha, "z"), (&alpha, "b")]).await;
    let all = all.expect("free");
    let taken: Vec<_> = all.guards().iter().map(|guard| guard.name().as_str()).collect();
    assert_eq!(taken, ["b", "z", "a"]);
    assert_eq!(look(&beta, "a").await.holder_count, 1);
    assert_eq!(look(&beta, "z").await.holder_count, 0);
    assert!(all.release().await.iter().all(ReleaseOutcome::is_released));
}

#[tokio::test]
async fn of_several_clients_none_is_held_when_one_name_is_not_free() {
    let clock = ManualClock::new();
    let (alpha, beta) = two_stores(&clock);
    let (alpha, beta) = (client(alpha, &clock, 1), client(beta, &clock, 2));
    let _held = beta.mutex("a").expect("good").lock().await.expect("free");
    let options = LockOptions::default().with_wait(2 * S);
    let taking = {
        let (alpha, beta) = (alpha.clone(), beta.clone());
        async move { holdline::lock_all_with([(&alpha, "a"), (&beta, "a")], &options).await }
    };
    let error = drive(&clock, taking).await.expect_err("held");
    assert!(error.is_contended(), "{error}");
    assert_eq!(look(&alpha, "a").await.holder_count, 0);
}

#[tokio::test]
async fn the_loss_of_one_of_several_clients_leases_is_reported() {
    let clock = ManualClock::new();
    let (alpha, beta) = two_stores(&clock);
    let (alpha, beta) = (client(alpha, &clock, 1), client(beta, &clock, 2));
    let all = holdline::lock_all([(&alpha, "a"), (&beta, "a")]).await.expect("free");
    let token = all.guards()[1].fencing_token();
    let revoke = holdline::admin::Operation::Revoke {
        name: crate::support::name("a"),
        token,
        reason: "moved".into(),
        now: true,
    };
    beta.admin().operate(&revoke).await.expect("revoked");
    let lost = std::pin::pin!(all.lost());
    let mut lost = lost;
    for _ in 0..100 {
        pass(&clock, S / 10).await;
        if futures_util::poll!(&mut lost).is_ready() {
            assert!(!all.is_valid());
            assert!(all.guards()[0].is_valid(), "the other store knows nothing of it");
            return;
        }
    }
    panic!("the loss was not reported");
}

#[tokio::test]
async fn overlapping_sets_of_several_clients_never_wait_in_a_circle() {
    let clock = ManualClock::new();
    let (alpha, beta) = two_stores(&clock);
    let worker = |seed: u64, turned: bool| {
        let clients =
            (client(alpha.clone(), &clock, seed), client(beta.clone(), &clock, seed + 10));
        let clock = clock.clone();
        tokio::spawn(async move {
            let (alpha, beta) = &clients;
            for _ in 0..20 {
                let mut names = [(alpha, "x"), (beta, "x"), (alpha, "y")];
                if turned {
                    names.reverse();
                }
                let all = holdline::lock_all(names).await.expect("in the end");
                clock.sleep_until(clock.now().after(S / 100)).await;
                let _ = all.release().await;
            }
        })
    };
    let workers = [worker(1, false), worker(2, true), worker(3, true)];
    let all: std::pin::Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        for worker in workers {
            worker.await.expect("no panic");
        }
    });
    drive(&clock, all).await;
}

#[tokio::test]
async fn one_name_of_one_store_is_not_taken_twice_through_two_clients() {
    let (engine, clock) = engine();
    let (one, two) = (client(engine.clone(), &clock, 1), client(engine, &clock, 2));
    let error = holdline::lock_all([(&one, "a"), (&two, "a")]).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "names", .. }), "{error}");
    let nothing: [(&Client, &str); 0] = [];
    assert!(holdline::lock_all(nothing).await.is_err());
}
