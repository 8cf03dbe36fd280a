//! Packets that are lost, peers that vanish without a word, a cable that is pulled: what only the
//! kernel's network can do. Each test runs in a network of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use holdline::{Certainty, Client, ErrorKind, Guard, LockError, LockOptions, LostReason};
use holdline_services::{Loss, PrivateNetwork, RedisConfig, RedisServer};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{
    LONG, Referee, behind, clean, client, client_at, connections, hasty_url_of,
    is_valid_no_longer_than_kept, lease, leftovers, let_go, patient, queued, reached, renewed,
    server, soon, take, try_take, until, url_of,
};

/// A lease that outlives what the kernel needs to find a peer gone.
fn long() -> LockOptions {
    patient().with_lease_duration(Duration::from_secs(30))
}

/// Waits for a name in a task.
fn waiting(client: &Client, name: &'static str) -> tokio::task::JoinHandle<Guard> {
    let client = client.clone();
    tokio::spawn(async move { take(&client, name, &long()).await })
}

fn unavailable(error: &LockError) -> &str {
    match error.kind() {
        ErrorKind::Unavailable { message } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_cost_time_and_no_lease() {
    let name = "network::lost_packets_cost_time_and_no_lease";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let url = format!("redis://{}", server.address());
    let (holder, waiters) = (client(&url).await, join_all((0..3).map(|_| client(&url))).await);
    let referee = Referee::default();
    let kept = take(&holder, "kept", &long()).await;
    network.lose(Loss::Percent(20));
    let contend = |place: usize| {
        let (client, referee) = (&waiters[place % waiters.len()], &referee);
        async move {
            for _ in 0..3 {
                let guard = take(client, "a", &long()).await;
                referee.granted(&guard);
                let outcome = soon("a release", guard.release()).await;
                assert!(!outcome.is_lost(), "{outcome:?}");
            }
        }
    };
    join_all((0..6).map(contend)).await;
    assert_eq!(referee.grants(), 18);
    renewed(&kept).await;
    assert!(kept.is_valid());
    network.heal();
    let_go(kept).await;
    clean(&server, &waiters.iter().chain([&holder]).collect::<Vec<_>>()).await;
}

/// Requests for a connection get no reply at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_never_accepts_is_unavailable_in_time() {
    let name = "network::a_server_that_never_accepts_is_unavailable_in_time";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let url = format!("redis://{}?connect_timeout_ms=2000", server.address());
    let client = client(&url).await;
    let guard = take(&client, "a", &lease(12_000)).await;
    network.lose(Loss::Connecting(server.address()));
    let error = soon("an answer", Client::connect(&url)).await.expect_err("swallowed");
    assert_eq!(error.certainty(), Certainty::NotApplied);
    assert!(unavailable(&error).contains("no connection within 2s"), "{error:?}");
    // An open connection goes on. When it breaks, the holder learns of the loss before the server
    // frees the name.
    renewed(&guard).await;
    for id in connections(&server) {
        behind(&server, &format!("CLIENT KILL ID {id}"));
    }
    until("they are gone", || connections(&server).is_empty()).await;
    is_valid_no_longer_than_kept(&guard, &server);
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired);
    let error = try_take(&client, "b", &patient()).await.expect_err("swallowed");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    unavailable(&error);
    drop(guard);
    network.heal();
    reached(&client).await;
    let_go(take(&client, "a", &patient()).await).await;
    clean(&server, &[&client]).await;
}

/// The other side is gone and no packet says so: the kernel ends the connection, sooner than our
/// own patience with a silent server would, and the lease lives on over another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_vanished_without_a_word_is_given_up_by_the_kernel() {
    let name = "network::a_peer_that_vanished_without_a_word_is_given_up_by_the_kernel";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let client = client_at(server.address()).await;
    let guard = take(&client, "a", &long()).await;
    let before = network.open_connections(server.address());
    assert_eq!(before.len(), 1);
    network.lose(Loss::To(server.address()));
    network.lose(Loss::From(server.address()));
    // 10 s without an acknowledgement; our own patience is 35 s, the kernel's usual one minutes.
    until("the kernel gives it up", || network.open_connections(server.address()).is_empty()).await;
    assert!(guard.is_valid(), "its lease is longer than that");
    network.heal();
    renewed(&guard).await;
    assert_ne!(network.open_connections(server.address()), before);
    let_go(guard).await;
    clean(&server, &[&client]).await;
}

/// A machine that lost power says nothing; when it is back, it answers the old connection with a
/// reset, and what its log holds is held. Where messages come over a second connection, on which
/// nothing is ever sent, nobody finds out: the heartbeat must do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_power_is_found_again_and_knows_its_holders_and_waiters() {
    let name = "network::a_server_that_lost_power_is_found_again_and_knows_its_holders_and_waiters";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    for protocol in ["resp3", "resp2"] {
        let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
        let url = format!("{}&protocol={protocol}", url_of(server.address()));
        let (holder, waiter) = (client(&url).await, client(&url).await);
        let referee = Referee::default();
        let guard = take(&holder, "a", &long()).await;
        referee.granted(&guard);
        let next = waiting(&waiter, "a");
        queued(&server, "a", 1).await;
        // Neither its end nor anything else arrives until it is back.
        network.lose(Loss::From(server.address()));
        server.kill();
        server.restart_settled();
        network.heal();
        renewed(&guard).await;
        let outcome = soon("a release", guard.release()).await;
        assert!(!outcome.is_lost(), "{protocol}: {outcome:?}");
        let next = soon("the next", next).await.expect("no panic");
        referee.granted(&next);
        let_go(next).await;
        clean(&server, &[&holder, &waiter]).await;
    }
}

/// One direction is cut. The holder is notified in time, whether the server still receives its
/// requests or not. The next holder uses another way, and never holds at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_requests_or_replies_are_lost_is_notified_before_the_next_holds() {
    let name =
        "network::a_holder_whose_requests_or_replies_are_lost_is_notified_before_the_next_holds";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let at = server.address();
    let by_socket = format!("redis+unix://{}", server.socket().display());
    let (holder, other) = (client_at(at).await, client(&by_socket).await);
    for cut in [Loss::To(at), Loss::From(at), Loss::All] {
        let referee = Referee::default();
        let often = Duration::from_millis(300);
        let guard = take(&holder, "a", &lease(6_000).with_renew_interval(often)).await;
        referee.granted(&guard);
        let next = waiting(&other, "a");
        queued(&server, "a", 1).await;
        network.lose(cut);
        assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired, "{cut:?}");
        drop(guard);
        let next = soon("the next", next).await.expect("no panic");
        referee.granted(&next);
        renewed(&next).await;
        network.heal();
        // What comes late now touches nobody.
        reached(&holder).await;
        let busy = try_take(&holder, "a", &patient()).await.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{cut:?}: {busy:?}");
        renewed(&next).await;
        let_go(next).await;
    }
    clean(&server, &[&holder, &other]).await;
}

/// What a kernel kept is sent again after the heal, late: the request and, behind it, its undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_given_up_leaves_nothing_when_it_arrives_late() {
    let name = "network::a_request_that_was_given_up_leaves_nothing_when_it_arrives_late";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let client = client_at(server.address()).await;
    for (number, cut) in
        [Loss::To(server.address()), Loss::From(server.address())].iter().enumerate()
    {
        // From here on it subscribes, and the next request is the one for the name.
        let_go(take(&client, "first", &patient()).await).await;
        network.lose(*cut);
        let names = [format!("limited-{number}"), format!("dropped-{number}")];
        let limited = patient().with_wait(Duration::from_millis(300));
        let limited = client.mutex_with(&names[0], &limited).expect("a good lock");
        let error = soon("an end", limited.lock()).await.expect_err("nobody answers");
        assert_eq!(error.certainty(), Certainty::Unknown, "{cut:?}: {error:?}");
        unavailable(&error);
        let mutex = client.mutex_with(&names[1], &patient()).expect("a good lock");
        let dropped = tokio::time::timeout(Duration::from_millis(200), mutex.lock()).await;
        assert!(dropped.is_err(), "nobody answers");
        network.heal();
        // From its undo on an attempt is dead: nothing of it may come to life any more.
        until("both are given up for good", || {
            names.iter().all(|name| {
                let marks = behind(&server, &format!("KEYS holdline:{{{name}}}:1t:*"));
                marks.items().is_some_and(|marks| !marks.is_empty())
            })
        })
        .await;
        assert_eq!(leftovers(&server), [""; 0], "{cut:?}");
    }
    clean(&server, &[&client]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cable_that_is_pulled_for_a_while_costs_no_lease() {
    let name = "network::a_cable_that_is_pulled_for_a_while_costs_no_lease";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let client = client_at(server.address()).await;
    let guard = take(&client, "a", &long()).await;
    network.lose(Loss::All);
    let error = soon("an answer", Client::connect(&url_of(server.address()))).await;
    unavailable(&error.expect_err("no network"));
    unavailable(&try_take(&client, "b", &patient()).await.expect_err("no network"));
    network.heal();
    renewed(&guard).await;
    let_go(guard).await;
    clean(&server, &[&client]).await;
}

/// Cuts of every kind, for as long as a lease or less. Attempts may fail and leases be lost; nobody
/// believes beside another, tokens grow, and nothing stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_cuts_keep_exclusion() {
    const SEED: u64 = 20_261_122;
    const CUTS: usize = 12;
    let name = "network::random_cuts_keep_exclusion";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let at = server.address();
    let urls =
        ["resp3", "resp2"].map(|protocol| format!("{}&protocol={protocol}", hasty_url_of(at)));
    let clients = join_all((0..4).map(|place| client(&urls[place % 2]))).await;
    let by_socket = client(&format!("redis+unix://{}", server.socket().display())).await;
    let referee = Referee::default();
    let (over, cut) = (AtomicBool::new(false), AtomicBool::new(false));
    let contend = |place: usize| {
        let client = clients.get(place % 5).unwrap_or(&by_socket);
        let (referee, over, cut) = (&referee, &over, &cut);
        async move {
            let options = lease(1_500).with_wait(LONG);
            let mutex = client.mutex_with("a", &options).expect("a good lock");
            while !over.load(Ordering::Relaxed) {
                match soon("an end", mutex.lock()).await {
                    Ok(guard) => {
                        referee.granted(&guard);
                        let last =
                            |guard: &Guard| !guard.is_valid() || !cut.load(Ordering::Relaxed);
                        // A holder at the time of a cut keeps the name as long as it believes.
                        until("the cut or the lease is over", || last(&guard)).await;
                        let _ = soon("a release", guard.release()).await;
                    }
                    Err(error) => {
                        unavailable(&error);
                        assert_ne!(error.certainty(), Certainty::Applied, "{error:?}");
                    }
                }
            }
        }
    };
    let cuts = async {
        let mut random = StdRng::seed_from_u64(SEED);
        for _ in 0..CUTS {
            let grants = referee.grants();
            until("the name goes round", || referee.grants() >= grants + 5).await;
            cut.store(true, Ordering::Relaxed);
            network.lose(match random.random_range(0..4) {
                0 => Loss::To(at),
                1 => Loss::From(at),
                2 => Loss::Percent(40),
                _ => Loss::All,
            });
            let time = Duration::from_millis(random.random_range(50..2_500));
            tokio::time::sleep(time).await; // event: the time of the cut is what is tested
            network.heal();
            cut.store(false, Ordering::Relaxed);
        }
        over.store(true, Ordering::Relaxed);
    };
    futures_util::future::join(cuts, join_all((0..10).map(contend))).await;
    join_all(clients.iter().map(reached)).await;
    clean(&server, &clients.iter().chain([&by_socket]).collect::<Vec<_>>()).await;
}
