//! The server's clock is stepped, or runs at another rate.
//!
//! Leases end by the server's time of day. While its *rate* stays within the allowed drift,
//! validity ends before the lease. After a step forward, exclusion ends and only fencing tokens
//! protect.

use std::time::Duration;

use holdline::admin::Operation;
use holdline::{ErrorKind, Keep, LockName, LostReason};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::people::{
    Referee, clean, client, lease, queued, release, renewed, soon, take, try_take, waiting_renewals,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn server_with_clock() -> PostgresServer {
    PostgresServer::start(PostgresConfig::default().with_clock())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_back_keeps_exclusion_and_operators_can_free_the_name() {
    let server = server_with_clock();
    let (holder, other) = (client(&server).await, client(&server).await);
    let guard = take(&holder, "a", &lease(6_000)).await;
    server.clock().step_back(HOUR);
    renewed(&guard).await;
    assert!(guard.remaining() <= Duration::from_secs(6), "{:?}", guard.remaining());
    let busy = try_take(&other, "a").await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    // The holder is gone, set back once more its lease would last for an hour.
    let token = guard.fencing_token();
    std::mem::forget(guard);
    drop(holder);
    server.clock().step_back(2 * HOUR);
    let name = LockName::new("a").expect("a good name");
    let revoke = Operation::Revoke { name, token, reason: "its holder is gone".into(), now: true };
    soon("an answer", other.admin().operate(&revoke)).await.expect("revoked");
    let next = take(&other, "a", &waiting_renewals()).await;
    assert!(next.fencing_token() > token, "tokens are counted on while the clock is behind");
    release(next).await;
}

/// Outside the promise of exclusion: the later token is larger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_clock_set_forward_ends_leases_and_tokens_order_the_holders() {
    let server = server_with_clock();
    let (holder, other) = (client(&server).await, client(&server).await);
    let guard = take(&holder, "a", &waiting_renewals()).await;
    server.clock().step_forward(HOUR);
    let next = take(&other, "a", &waiting_renewals()).await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Missing);
    drop(guard);
    renewed(&next).await;
    release(next).await;
    clean(&server, &[&holder, &other]).await;
}

/// No message wakes the waiter then: its heartbeat finds the hand-off, or that its entry was
/// removed, and it queues again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_its_turn_when_the_clock_is_set() {
    for back in [false, true] {
        let server = server_with_clock();
        let (holder, other) = (client(&server).await, client(&server).await);
        let guard = take(&holder, "a", &waiting_renewals()).await;
        let waiting = queued(&server, &other, "a").await;
        match back {
            true => server.clock().step_back(HOUR),
            false => server.clock().step_forward(HOUR),
        }
        let first = guard.fencing_token();
        if back {
            release(guard).await;
        } else {
            drop(guard);
        }
        let next = soon("the next", waiting).await.expect("no panic");
        assert!(next.fencing_token() > first);
        release(next).await;
        clean(&server, &[&holder, &other]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_within_the_drift_end_validity_before_the_lease() {
    for rate in [0.991, 1.009] {
        let server = server_with_clock();
        let (holder, other) = (client(&server).await, client(&server).await);
        server.clock().set_rate(rate);
        let referee = Referee::default();
        let guard = take(&holder, "a", &lease(2_000).with_keep(Keep::Fixed)).await;
        referee.granted(&guard);
        // The checker looks whether the first is still valid when the second is granted.
        let next = take(&other, "a", &waiting_renewals()).await;
        referee.granted(&next);
        assert_eq!(soon("the loss", guard.lost()).await, LostReason::RanOut);
        drop(guard);
        release(next).await;
        clean(&server, &[&holder, &other]).await;
    }
}
