//! Who watches the sentinels when these are away, and a group that nobody has used.

use std::time::Duration;

use holdline::ErrorKind;

use super::ground::{Group, patient, quarantined};
use crate::inputs::names_are_refused_or_locks_of_their_own;
use crate::support::{LONG, behind, client, let_go, reached, renewed, soon, take, try_take};
use holdline_services::{RedisConfig, Sentinel, SentinelConfig, SentinelGroup};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_work_without_sentinels_and_new_clients_get_an_error() {
    let group = Group::start();
    let client = group.client("").await;
    let guard = take(&client, "a", &patient()).await;
    let sentinels = group.0.sentinels();
    sentinels[0].kill();
    sentinels[1..].iter().for_each(Sentinel::stop);
    renewed(&guard).await;
    renewed(&guard).await;
    let_go(take(&client, "b", &patient()).await).await;
    // The connections are lost while no sentinel reports where the master is.
    for kind in ["pubsub", "normal"] {
        behind(group.server(0), &format!("CLIENT KILL TYPE {kind}"));
    }
    let error = try_take(&client, "b", &patient()).await.expect_err("nobody knows the master");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
    sentinels[1..].iter().for_each(Sentinel::cont);
    reached(&client).await;
    let_go(take(&client, "b", &patient()).await).await;
    drop(guard);
}

/// The sentinels move the master while all servers are well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_moves_the_master_and_holders_keep_their_locks() {
    let group = Group::start();
    let client = group.client("").await;
    let guard = take(&client, "a", &patient()).await;
    group.0.await_replicated();
    group.0.fail_over();
    renewed(&guard).await;
    quarantined(try_take(&client, "b", &patient()).await);
    let_go(guard).await;
}

/// Nobody knows whether servers that look unused held anything before, nor how long they have run:
/// the uptime that they say goes by a clock that may be set. A lease that ends before is not waited
/// for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_look_unused_grant_after_the_longest_lease() {
    let servers = RedisConfig::default().with_clock();
    let group = Group(SentinelGroup::start(&SentinelConfig::default().with_servers(servers)));
    group.server(0).clock().step_forward(Duration::from_secs(7_200));
    group.server(0).await_clock();
    let hour = group.url_up_to(3_600_000, "");
    quarantined(try_take(&client(&hour).await, "a", &patient()).await);
    let keys = behind(group.server(0), "EXISTS holdline:{a}");
    assert_eq!(keys.integer(), Some(0));
    behind(group.server(0), "DEL holdline:reign:1");
    let short = group.url_up_to(1_500, "");
    let options = crate::support::lease(1_000).with_wait(LONG);
    let_go(take(&client(&short).await, "a", &options).await).await;
}

/// Each client reports what it has measured when it ends, so many short ones end a quarantine as
/// one long one does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_end_at_once_measure_a_quarantine_together() {
    let group = Group(SentinelGroup::start(&SentinelConfig::default()));
    let hour = group.url_up_to(3_600_000, "");
    let left = || {
        let kept = behind(group.server(0), "HGET holdline:reign:1 r").text()?;
        kept.split(' ').nth(1)?.parse::<u64>().ok()
    };
    for _ in 0..3 {
        let short = client(&hour).await;
        quarantined(try_take(&short, "a", &patient()).await);
        let before = left();
        tokio::time::sleep(Duration::from_millis(2)).await; // event: reports are in milliseconds
        let report = soon("a shutdown", short.shutdown(LONG)).await;
        assert!(report.is_clean(), "{report:?}");
        assert!(before.is_some() && left() < before, "{:?} after {before:?}", left());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_name_is_refused_or_its_own_lock_at_the_master() {
    let group = Group::start();
    let client = client(&group.url_up_to(30_000, "")).await;
    names_are_refused_or_locks_of_their_own(&client, group.server(0)).await;
}

/// A client that is connected reads it with its next report, and a waiter goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_ends_a_quarantine_for_connected_clients() {
    let group = Group(SentinelGroup::start(&SentinelConfig::default()));
    for dialect in ["", "&dialect=redisson"] {
        behind(group.server(0), "DEL holdline:reign:1");
        let client = client(&group.url_up_to(3_600_000, dialect)).await;
        quarantined(try_take(&client, "a", &patient()).await);
        behind(group.server(0), "HSET holdline:reign:1 q 0");
        let_go(take(&client, "a", &patient().with_wait(LONG)).await).await;
    }
}
