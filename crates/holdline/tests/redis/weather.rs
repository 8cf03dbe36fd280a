//! Bad weather: a slow network, and one that breaks at random.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use holdline::{Certainty, ErrorKind};
use holdline_services::{Fault, FaultProxy, Frames, Traffic};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{
    Referee, clean, client, hasty_url_of, let_go, patient, queued, renewed, server, soon, take,
    until,
};

/// A hundred milliseconds each way cost time, no lease and no order; and a lease is believed from
/// before its request left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_costs_time_and_no_lease() {
    const EACH_WAY: Duration = Duration::from_millis(100);
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let url = format!("redis://{}?command_timeout_ms=10000", proxy.address());
    let (holder, waiter) = (client(&url).await, client(&url).await);
    proxy.inject(Frames::requests(), Fault::Delay(EACH_WAY));
    proxy.inject(Frames::replies(), Fault::Delay(EACH_WAY));
    let guard = take(&holder, "a", &patient()).await;
    let lease = Duration::from_secs(20);
    assert!(guard.remaining() <= lease - 2 * EACH_WAY, "{:?}", guard.remaining());
    let next = tokio::spawn({
        let waiter = waiter.clone();
        async move { take(&waiter, "a", &patient()).await }
    });
    queued(&server, "a", 1).await;
    for _ in 0..3 {
        renewed(&guard).await;
        assert!(guard.remaining() <= lease - 2 * EACH_WAY, "{:?}", guard.remaining());
    }
    let_go(guard).await;
    let_go(soon("the next", next).await.expect("no panic")).await;
    proxy.pass();
    clean(&server, &[&holder, &waiter]).await;
}

/// Replies take a second and a half: more than a heartbeat's reply was once waited for. The store
/// receives each heartbeat in time, so it keeps every place, and the waiters are served in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_keep_their_places_where_replies_take_one_and_a_half_seconds() {
    let server = server();
    let near = client(&format!("redis://{}", server.address())).await;
    let first = take(&near, "a", &patient()).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut far = Vec::new();
    for number in 0..3 {
        let proxy = FaultProxy::start(server.address());
        let client = client(&format!("redis://{}?command_timeout_ms=10000", proxy.address())).await;
        proxy.inject(Frames::replies(), Fault::Delay(Duration::from_millis(1_500)));
        let (mine, served) = (client.clone(), served.clone());
        let waiter = tokio::spawn(async move {
            let guard = take(&mine, "a", &patient()).await;
            served.lock().expect("no panic").push(number);
            let_go(guard).await;
        });
        queued(&server, "a", number + 1).await;
        far.push((proxy, client, waiter));
    }
    // A place whose heartbeats failed was given up after 4 s of them.
    let beats: Vec<u64> = far.iter().map(|(proxy, ..)| proxy.seen(Traffic::Replies)).collect();
    until("eight more heartbeats", || {
        let seen = far.iter().zip(&beats);
        seen.into_iter().all(|((proxy, ..), before)| proxy.seen(Traffic::Replies) >= before + 8)
    })
    .await;
    queued(&server, "a", 3).await;
    let_go(first).await;
    let mut clients = vec![near];
    for (proxy, client, waiter) in far {
        soon("a waiter", waiter).await.expect("no panic");
        proxy.pass();
        clients.push(client);
    }
    assert_eq!(*served.lock().expect("no panic"), [0, 1, 2]);
    clean(&server, &clients.iter().collect::<Vec<_>>()).await;
}

/// Every tenth message is lost with its connection or comes late. Attempts may fail, and say how
/// certain that is; nobody holds beside another, nothing stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_breaks_at_random_keeps_exclusion() {
    const SEED: u64 = 20_261_121;
    const MESSAGES: u64 = 1_500;
    let server = server();
    let proxy = FaultProxy::start(server.address());
    let url = hasty_url_of(proxy.address());
    let clients = join_all((0..4).map(|_| client(&url))).await;
    let mut random = StdRng::seed_from_u64(SEED);
    for k in 1..=MESSAGES {
        if !random.random_bool(0.1) {
            continue;
        }
        let about = match random.random_bool(0.5) {
            true => Frames::requests(),
            false => Frames::replies(),
        };
        let fault = match random.random_bool(0.7) {
            true => Fault::SwallowThenReset,
            false => Fault::Delay(Duration::from_millis(random.random_range(1..600))),
        };
        proxy.inject(about.containing("holdline:{a}").nth(k), fault);
    }
    let referee = Referee::default();
    let contend = |place: usize| {
        let (client, referee) = (&clients[place % clients.len()], &referee);
        async move {
            let mutex = client.mutex_with("a", &patient()).expect("a good lock");
            let mut held = 0;
            while held < 12 {
                match soon("an end", mutex.lock()).await {
                    Ok(guard) => {
                        referee.granted(&guard);
                        held += 1;
                        let outcome = soon("a release", guard.release()).await;
                        assert!(!outcome.is_lost(), "seed {SEED}: {outcome:?}");
                    }
                    Err(error) => {
                        let away = matches!(error.kind(), ErrorKind::Unavailable { .. });
                        assert!(away && error.certainty() != Certainty::Applied, "{error:?}");
                    }
                }
            }
        }
    };
    join_all((0..8).map(contend)).await;
    assert_eq!(referee.grants(), 96);
    let hit = proxy.events().iter().filter(|event| event.fault.is_some()).count();
    assert!(hit > 20, "the weather was bad: {hit}");
    proxy.pass();
    clean(&server, &clients.iter().collect::<Vec<_>>()).await;
}
