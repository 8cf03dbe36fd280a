//! Lost packets, and peers that disappear silently: faults that only the kernel's network can
//! produce. Each test has a network of its own; the server's socket is still reachable.

use std::sync::Arc;
use std::time::Duration;

use holdline::{Certainty, ErrorKind, LostReason};
use holdline_services::{Loss, PostgresConfig, PostgresServer, PrivateNetwork};

use crate::people::{
    Referee, by_socket, clean, client, client_at, lease, nothing_left, queued, reached, release,
    renewed, soon, take, try_take, waiting_renewals,
};

fn server() -> PostgresServer {
    PostgresServer::start(PostgresConfig::default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_cost_time_and_no_lease() {
    let name = "network::lost_packets_cost_time_and_no_lease";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let referee = Arc::new(Referee::default());
    let holder = client(&server).await;
    let kept = take(&holder, "kept", &waiting_renewals()).await;
    network.lose(Loss::Percent(10));
    let tasks = (0..4).map(|_| {
        let (url, referee) = (by_socket(&server), referee.clone());
        let lossy = server.url();
        tokio::spawn(async move {
            let client = client_at(&url).await;
            let lossy = client_at(&lossy).await;
            for client in [&client, &lossy] {
                let mut held = 0;
                while held < 3 {
                    let mutex = client.mutex_with("a", &waiting_renewals()).expect("a good lock");
                    // A command may meet its limit; then it is asked for anew.
                    let Ok(guard) = soon("an end", mutex.lock()).await else { continue };
                    referee.granted(&guard);
                    let _ = soon("a release", guard.release()).await;
                    held += 1;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        soon("an end", task).await.expect("no panic");
    }
    renewed(&kept).await;
    network.heal();
    reached(&holder).await;
    release(kept).await;
    clean(&server, &[&holder]).await;
}

/// One direction is cut, or both. The holder is notified in time, whether or not the server
/// still receives its requests; the next one connects by another way, and never holds beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_requests_or_replies_are_lost_is_notified_before_the_next_holds() {
    let name =
        "network::a_holder_whose_requests_or_replies_are_lost_is_notified_before_the_next_holds";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let at = server.address();
    let (holder, other) = (client(&server).await, client_at(&by_socket(&server)).await);
    for cut in [Loss::To(at), Loss::From(at), Loss::All] {
        let referee = Referee::default();
        let guard = take(&holder, "a", &lease(4_000)).await;
        referee.granted(&guard);
        let next = queued(&server, &other, "a").await;
        network.lose(cut);
        assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired, "{cut:?}");
        drop(guard);
        let next = soon("the next", next).await.expect("no panic");
        referee.granted(&next);
        renewed(&next).await;
        network.heal();
        // What comes late now touches nobody.
        reached(&holder).await;
        let busy = try_take(&holder, "a").await.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{cut:?}: {busy:?}");
        renewed(&next).await;
        release(next).await;
    }
    clean(&server, &[&holder, &other]).await;
}

/// What a kernel kept is sent again after the heal, late: the request, and then its undo.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_given_up_leaves_nothing_when_it_arrives_late() {
    let name = "network::a_request_that_was_given_up_leaves_nothing_when_it_arrives_late";
    let Some(network) = PrivateNetwork::enter(name) else { return };
    let server = server();
    let client = client(&server).await;
    for cut in [Loss::To(server.address()), Loss::From(server.address())] {
        reached(&client).await;
        release(take(&client, "first", &waiting_renewals()).await).await;
        network.lose(cut);
        let error = try_take(&client, "limited").await.expect_err("nobody answers");
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{cut:?}: {error:?}");
        assert_eq!(error.certainty(), Certainty::Unknown, "{cut:?}: {error:?}");
        network.heal();
        reached(&client).await;
        release(take(&client, "first", &waiting_renewals()).await).await;
        network.lose(cut);
        let mutex = client.mutex_with("dropped", &waiting_renewals()).expect("a good lock");
        let dropped = tokio::time::timeout(Duration::from_millis(200), mutex.lock()).await;
        assert!(dropped.is_err(), "nobody answers");
        network.heal();
        nothing_left(&server).await;
        for name in ["limited", "dropped"] {
            release(take(&client, name, &waiting_renewals()).await).await;
        }
    }
    clean(&server, &[&client]).await;
}
