//! Clocks of nodes that are set or run at another rate. While fewer nodes than matter have a wrong
//! one, nothing happens; where they are enough for a second majority exclusion ends, and the
//! fencing token is what is left (Kleppmann's second case).

use std::time::Duration;

use futures_util::future::join_all;
use holdline::{ErrorKind, Guard, Keep, LockOptions, LostReason};
use holdline_services::{FaultProxy, RedisConfig, RedisServer};

use super::ground::{MINUTE, Nodes, client_through, lost, revoke_now};
use crate::support::{
    Referee, behind, is_not_lost, lease, let_go, patient, reached, renewed, soon, take,
    the_resource_refuses, try_take, until,
};

/// What a longer lease is granted for at first, in ms.
const FIRST: i64 = 30_000;
const HOUR: Duration = Duration::from_secs(3_600);

async fn with_clocks(count: usize) -> Nodes {
    Nodes::start_with(count, MINUTE, &RedisConfig::default().with_clock()).await
}

/// A lease that nobody renews.
fn fixed(millis: u64) -> LockOptions {
    lease(millis).with_keep(Keep::Fixed)
}

/// Waits until each of these keeps a name for longer than it is granted at first. What comes to a
/// server only after its clock was set counts from then.
async fn kept_by(servers: &[RedisServer], guard: &Guard) {
    let left = format!("PTTL holdline:{{{}}}", guard.name().as_str());
    until("kept by all", || {
        is_not_lost(guard);
        servers.iter().all(|server| behind(server, &left).integer() > Some(FIRST))
    })
    .await;
}

fn cut_off(proxies: &[FaultProxy]) {
    for proxy in proxies {
        proxy.refuse();
        proxy.reset();
    }
}

fn step_forward(servers: &[RedisServer], by: Duration) {
    servers.iter().for_each(|server| server.clock().step_forward(by));
    servers.iter().for_each(RedisServer::await_clock);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_a_minority_that_are_set_forward_make_no_second_holder() {
    let nodes = with_clocks(5).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let guard = take(&holder, "a", &patient()).await;
    nodes.held_on(&guard, 5).await;
    let still = nodes.take_on_all(&holder, "b", &fixed(50_000)).await;
    step_forward(&nodes.0[..2], Duration::from_secs(60));
    for name in ["a", "b"] {
        let busy = try_take(&other, name, &patient()).await.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    }
    renewed(&guard).await;
    nodes.held_on(&guard, 5).await;
    assert!(still.is_valid());
    let before = guard.fencing_token();
    let_go(guard).await;
    let_go(still).await;
    let next = take(&other, "a", &patient()).await;
    assert!(next.fencing_token() > before);
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

/// Outside the promise of exclusion, as this test shows. A holder that reaches the nodes learns of
/// the loss as soon as it asks: so the holder is cut off meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_a_majority_that_are_set_forward_break_exclusion_and_not_the_order() {
    let nodes = with_clocks(5).await;
    let proxies = nodes.proxies();
    let holder = nodes.at_home_behind(&proxies).await;
    let other = nodes.client_at_home().await;
    let guard = nodes.take_on_all(&holder, "a", &fixed(59_000)).await;
    kept_by(&nodes.0, &guard).await;
    cut_off(&proxies);
    step_forward(&nodes.0[..3], Duration::from_secs(120));
    let next = take(&other, "a", &patient()).await;
    // Two believe: what no lock can keep when clocks are set.
    is_not_lost(&guard);
    assert!(next.fencing_token() > guard.fencing_token());
    the_resource_refuses(&guard, &next);
    proxies.iter().for_each(FaultProxy::accept);
    // Once it is connected to all of them again, each reports what has become of its lease.
    reached(&holder).await;
    let still = take(&holder, "b", &patient()).await;
    nodes.held_on(&still, 5).await;
    let outcome = soon("a release", guard.release()).await;
    assert!(!outcome.is_released(), "{outcome:?}");
    let_go(still).await;
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

/// Kleppmann's second case: held on three of five, and the clock of one of the three jumps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_clock_breaks_a_bare_majority_and_the_resource_refuses_the_first_holder() {
    let nodes = with_clocks(5).await;
    let proxies = nodes.proxies();
    proxies[3].refuse();
    proxies[4].refuse();
    let (holder, other) = (client_through(&proxies).await, nodes.client_at_home().await);
    let guard = take(&holder, "a", &fixed(59_000)).await;
    assert_eq!(nodes.with(&guard), 3);
    kept_by(&nodes.0[..3], &guard).await;
    cut_off(&proxies);
    step_forward(&nodes.0[2..3], Duration::from_secs(120));
    let next = take(&other, "a", &patient()).await;
    is_not_lost(&guard);
    assert!(next.fencing_token() > guard.fencing_token());
    the_resource_refuses(&guard, &next);
    drop(guard);
    let_go(next).await;
    proxies.iter().for_each(FaultProxy::accept);
    nodes.clean(&[&holder, &other]).await;
}

/// A holder that renews learns of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_notices_a_holder_that_a_wrong_clock_admitted() {
    let nodes = with_clocks(3).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let rarely = lease(25_000).with_renew_interval(Duration::from_secs(3));
    let guard = take(&holder, "a", &rarely).await;
    step_forward(&nodes.0, Duration::from_secs(120));
    let next = take(&other, "a", &patient()).await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(lost(&guard).await, LostReason::Missing);
    drop(guard);
    renewed(&next).await;
    let_go(next).await;
    nodes.clean(&[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_are_set_back_keep_exclusion_and_operators_can_free_the_name() {
    for wrong in [2, 5] {
        let nodes = with_clocks(5).await;
        let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
        let guard = take(&holder, "a", &patient()).await;
        nodes.held_on(&guard, 5).await;
        for server in &nodes.0[..wrong] {
            server.clock().step_back(HOUR);
        }
        nodes.0[..wrong].iter().for_each(RedisServer::await_clock);
        renewed(&guard).await;
        assert!(guard.remaining() <= Duration::from_secs(20), "{:?}", guard.remaining());
        let busy = try_take(&other, "a", &patient()).await.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
        let status = nodes.status().await;
        let offsets = status.nodes.iter().filter_map(|node| node.clock_offset_us);
        let spread = offsets.clone().max().expect("five") - offsets.min().expect("five");
        assert_eq!(spread > 3_000_000_000, wrong == 2, "{status:?}");
        revoke_now(&other, &guard).await;
        let next = take(&other, "a", &patient()).await;
        assert!(next.fencing_token() > guard.fencing_token(), "counted on");
        drop(guard);
        let_go(next).await;
        nodes.clean(&[&holder, &other]).await;
    }
}

/// A holder that dies while the clocks are behind keeps its name for longer, and nobody is granted
/// beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_set_back_keeps_the_name_of_a_dead_holder_for_longer() {
    let nodes = with_clocks(3).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    let guard = nodes.take_on_all(&holder, "a", &fixed(8_000)).await;
    for server in &nodes.0[..2] {
        server.clock().step_back(HOUR);
    }
    nodes.0[..2].iter().for_each(RedisServer::await_clock);
    assert_eq!(lost(&guard).await, LostReason::RanOut);
    for server in &nodes.0[..2] {
        let left = behind(server, "PTTL holdline:{a}").integer();
        assert!(left > Some(3_500_000), "{left:?}");
    }
    let busy = try_take(&other, "a", &patient()).await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
    revoke_now(&other, &guard).await;
    let_go(take(&other, "a", &patient()).await).await;
    drop(guard);
    nodes.clean(&[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_within_the_drift_end_validity_before_the_lease() {
    let nodes = with_clocks(5).await;
    let (holder, other) = (nodes.client_at_home().await, nodes.client_at_home().await);
    for (at, server) in nodes.0.iter().enumerate() {
        server.clock().set_rate(if at % 2 == 0 { 1.009 } else { 0.991 });
        server.await_clock();
    }
    let referee = Referee::default();
    for _ in 0..3 {
        let guard = take(&holder, "a", &fixed(1_500)).await;
        referee.granted(&guard);
        let next = take(&other, "a", &patient()).await;
        // The referee looks whether the first still believes.
        referee.granted(&next);
        drop(guard);
        let_go(next).await;
    }
    nodes.clean(&[&holder, &other]).await;
}

/// The control: far outside the drift exclusion breaks, and the order of tokens does not. A holder
/// that reaches the nodes learns of the loss as soon as it asks: so the holder is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_far_outside_the_drift_break_exclusion_and_not_the_order() {
    let nodes = with_clocks(3).await;
    let proxies = nodes.proxies();
    let holder = nodes.at_home_behind(&proxies).await;
    let other = nodes.client_at_home().await;
    let (names, options) = (["a", "b", "c"], fixed(55_000));
    let guards = join_all(names.map(|name| take(&holder, name, &options))).await;
    cut_off(&proxies);
    for server in &nodes.0 {
        server.clock().set_rate(50.0);
        server.await_clock();
    }
    for (name, guard) in names.into_iter().zip(&guards) {
        let next = take(&other, name, &fixed(25_000)).await;
        assert!(guard.is_valid(), "two believe: what no lock can keep when clocks run so");
        assert!(next.fencing_token() > guard.fencing_token());
        the_resource_refuses(guard, &next);
    }
}
