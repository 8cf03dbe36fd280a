//! The master of a Sentinel group is killed while a server uses it.

use holdline_services::{SentinelConfig, SentinelGroup};

use super::{both_are_served, lease_path, serve_url, two_waiters};
use crate::ground::Ground;

/// The longest lease of the group: longer than a failover takes on a slow machine.
const LEASE: &str = r#"{"lease_duration_ms": 15000}"#;

/// A group that has been used for long, and a server on it.
async fn start() -> (SentinelGroup, Ground) {
    let group = SentinelGroup::start(&SentinelConfig::default());
    group.settle(0);
    let parameters = "command_timeout_ms=4000&max_lease_duration_ms=15000&old_master_ms=0";
    let ground = serve_url(&format!("{}?{parameters}", group.url())).await;
    (group, ground)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_replicated_lease_and_no_wait() {
    let (group, ground) = start().await;
    let held = ground.acquire("a", LEASE).await;
    let waiters = two_waiters(&ground).await;
    group.await_replicated();
    group.servers()[0].kill();
    group.await_promotion(0);
    let renewed = ground.ask_with_through_outage("PUT", &lease_path(&held), LEASE).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    // The new master may have missed leases: nothing new is granted until they have ended.
    let early = ground.ask("POST", "/v1/locks/b", LEASE).await;
    assert_eq!((early.status, early.text("kind")), (503, "quarantined".to_owned()), "{early:?}");
    assert_eq!(early.text("certainty"), "not_applied");
    let again = early.json()["retry_after"].as_u64().expect("a number");
    assert!((1..=15).contains(&again), "{early:?}");
    assert_eq!(ground.ask_through_outage("DELETE", &lease_path(&held)).await.status, 200);
    both_are_served(&ground, waiters).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_the_new_master_has_missed_is_lost() {
    let (group, ground) = start().await;
    group.await_replicated();
    group.hold_replicas_back();
    let missed = ground.acquire("b", LEASE).await;
    group.servers()[0].kill();
    group.let_replicas_go(0);
    group.await_promotion(0);
    let lost = ground.ask_with_through_outage("PUT", &lease_path(&missed), LEASE).await;
    assert_eq!((lost.status, lost.text("lost")), (410, "missing".to_owned()), "{lost:?}");
    // It is granted again, but not before the lost lease has ended.
    let wait = r#"{"wait_ms": 60000, "lease_duration_ms": 15000}"#;
    let next = ground.ask("POST", "/v1/locks/b", wait).await;
    assert_eq!(next.status, 200, "{next:?}");
    let old = missed["fencing_token"].as_u64().expect("a number");
    assert!(next.token() > old, "{next:?}");
}
