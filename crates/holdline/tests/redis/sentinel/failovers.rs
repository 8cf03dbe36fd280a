//! A replica takes over: what it knows goes on, and what it missed is reported as lost. No lock is
//! granted until every lease that it may have missed has expired.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline::{Client, ErrorKind, Keep, LostReason};
use holdline_services::{RedisConfig, RedisServer, Reply, SentinelConfig};

use super::ground::{Group, LONGEST, fixed, lost, patient, quarantined};
use crate::support::{
    Outages, Referee, behind, client, is_not_lost, lease, let_go, queued, renewed, soon, take,
    the_resource_refuses, try_take, unspoilt, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_replicated_lock() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        let (holder, other) = (group.client("").await, group.client("").await);
        let referee = Referee::default();
        let guard = take(&holder, "a", &patient()).await;
        referee.granted(&guard);
        let waiter = tokio::spawn({
            let mutex = other.mutex_with("a", &patient()).expect("a good lock");
            async move { mutex.lock().await }
        });
        queued(group.server(0), "a", 1).await;
        group.0.await_replicated();
        group.server(0).kill();
        group.0.await_promotion(0);
        if !guard.is_valid() {
            return false;
        }
        renewed(&guard).await;
        quarantined(try_take(&holder, "b", &patient()).await);
        let outcome = soon("a release", guard.release()).await;
        assert!(!outcome.is_lost(), "{outcome:?}");
        let next = soon("the next", waiter).await.expect("no panic").expect("the name");
        referee.granted(&next);
        let_go(next).await;
        true
    })
    .await;
}

/// The outage is longer than a client without any answer keeps asking. The sentinels answer, so
/// clients wait for a master, in the queue and beside it, until there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_survive_a_group_without_a_master() {
    let servers = RedisConfig::default().with_appendonly("always");
    let config = SentinelConfig::default().with_servers(servers);
    let group = Group::start_with(&config.with_down_after(Duration::from_secs(600)));
    let (dead, frozen) = (RedisServer::kill as fn(&RedisServer), RedisServer::stop as fn(&_));
    for (harm, mend) in [(dead, RedisServer::restart as fn(&_)), (frozen, RedisServer::cont)] {
        let (queued_at, came_late) = (Arc::new(Outages::default()), Arc::new(Outages::default()));
        let waiters = [
            queued_at.client(&group.hasty_url()).await,
            came_late.client(&group.hasty_url()).await,
        ];
        let [first, second] = waiters.each_ref().map(|client| {
            let mutex = client.mutex_with("a", &patient()).expect("a good lock");
            async move {
                let guard = mutex.lock().await.expect("the name");
                let token = guard.fencing_token();
                let_go(guard).await;
                token
            }
        });
        let held = take(&group.client("").await, "a", &patient()).await;
        let first = tokio::spawn(first);
        queued(group.server(0), "a", 1).await;
        harm(group.server(0));
        let second = tokio::spawn(second);
        queued_at.await_some().await;
        came_late.await_some().await;
        let error = try_take(&waiters[1], "b", &patient()).await.expect_err("no master");
        assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error:?}");
        assert!(error.to_string().contains("no master accepts it"), "{error}");
        mend(group.server(0));
        let token = held.fencing_token();
        drop(held);
        for waiter in [first, second] {
            assert!(soon("the next", waiter).await.expect("no panic") > token);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_without_the_key_grants_nothing_until_the_lost_lease_is_over() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        let (holder, other) = (group.client("").await, group.client("").await);
        let_go(take(&holder, "a", &patient()).await).await;
        group.0.await_replicated();
        group.0.hold_replicas_back();
        let renewed = take(&holder, "a", &patient()).await;
        let unreplicated = take(&holder, "b", &fixed()).await;
        group.promote_who_missed_it();
        if !renewed.is_valid() || !unreplicated.is_valid() {
            return false;
        }
        quarantined(try_take(&other, "a", &patient()).await);
        assert_eq!(lost(&renewed).await, LostReason::Missing);
        let outcome = soon("a release", renewed.release()).await;
        assert!(!outcome.is_released(), "{outcome:?}");
        // This one gets no message: its lease ends before anybody else may hold.
        let next = take(&other, "b", &patient()).await;
        assert!(!unreplicated.is_valid(), "two believe: {unreplicated:?} and {next:?}");
        assert!(next.fencing_token() > unreplicated.fencing_token());
        the_resource_refuses(&unreplicated, &next);
        let_go(next).await;
        true
    })
    .await;
}

/// The clock of the promoted one is behind, by less than the quarantine: tokens go on above those
/// that it has missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_when_the_clock_of_the_promoted_one_is_behind() {
    let servers = RedisConfig::default().with_clock();
    let group = Group::start_with(&SentinelConfig::default().with_servers(servers));
    for replica in [1, 2] {
        group.server(replica).clock().step_back(Duration::from_millis(LONGEST / 2));
        group.server(replica).await_clock();
    }
    let client = group.client("").await;
    let_go(take(&client, "a", &patient()).await).await;
    group.0.await_replicated();
    // Read here, since the client raises the counter soon after the promotion.
    let known = behind(group.server(1), "GET holdline:fence").text().expect("the old counter");
    group.0.hold_replicas_back();
    let unreplicated = take(&client, "a", &patient()).await;
    let token = unreplicated.fencing_token();
    let_go(unreplicated).await;
    assert!(known < token.to_string(), "{known} is that of the first grant");
    group.promote_who_missed_it();
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > token, "{:?} after {token:?}", next.fencing_token());
    let_go(next).await;
}

/// A holder that the promoted server knows releases there during the quarantine. The waiter begins
/// after it, with a token above those that the promoted server has missed, although its clock is
/// behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_during_the_quarantine_begins_after_it_with_a_larger_token() {
    unspoilt("the failover took longer than the lease", async || {
        let servers = RedisConfig::default().with_clock();
        let group = Group::start_with(&SentinelConfig::default().with_servers(servers));
        for replica in [1, 2] {
            group.server(replica).clock().step_back(Duration::from_millis(LONGEST / 10 * 9));
            group.server(replica).await_clock();
        }
        let (holder, other) = (group.client("").await, group.client("").await);
        let held = take(&holder, "a", &patient()).await;
        let waiter = tokio::spawn({
            let mutex = other.mutex_with("a", &patient()).expect("a good lock");
            async move { mutex.lock().await }
        });
        queued(group.server(0), "a", 1).await;
        group.0.await_replicated();
        group.0.hold_replicas_back();
        let before = Instant::now();
        // One counter gives the tokens of all names.
        let missed = take(&holder, "b", &fixed()).await.fencing_token();
        let promoted = group.promote_who_missed_it();
        until("both clients have moved", || {
            let channels = behind(group.server(promoted), "PUBSUB CHANNELS holdline:inbox:*");
            matches!(channels, Reply::Array(names) if names.len() == 2)
        })
        .await;
        // So that the lease of the hand-off lasts until the quarantine is over.
        until("two seconds of the quarantine have passed", || {
            let term = behind(group.server(promoted), "HGET holdline:reign:1 r").text();
            let left = term.and_then(|term| term.rsplit(' ').next()?.parse::<u64>().ok());
            left.is_some_and(|left| left + 2_000 < LONGEST)
        })
        .await;
        let outcome = soon("a release", held.release()).await;
        if !outcome.is_released() {
            return false;
        }
        let next = soon("the next", waiter).await.expect("no panic").expect("the name");
        let quarantine = Duration::from_millis(LONGEST);
        assert!(before.elapsed() > quarantine, "during the quarantine: {next:?}");
        let token = next.fencing_token();
        assert!(token > missed, "{token:?} after {missed:?}");
        let_go(next).await;
        true
    })
    .await;
}

/// Clients measure the quarantine: the clock of the promoted server does not end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_set_forward_ends_no_quarantine() {
    let longest = Cell::new(LONGEST);
    unspoilt("the failover took longer than the lease", async || {
        // A slow machine has more time with each try.
        let millis = longest.get();
        longest.set(4 * LONGEST);
        let connect = async |group: &Group| client(&group.url_up_to(millis, "")).await;
        let servers = RedisConfig::default().with_clock();
        let group = Group::start_with(&SentinelConfig::default().with_servers(servers));
        let holder = connect(&group).await;
        let other = connect(&group).await;
        group.0.await_replicated();
        group.0.hold_replicas_back();
        let unreplicated = take(&holder, "a", &lease(millis).with_keep(Keep::Fixed)).await;
        let promoted = group.promote_who_missed_it();
        quarantined(try_take(&other, "a", &patient()).await);
        group.server(promoted).clock().step_forward(Duration::from_secs(3_600));
        group.server(promoted).await_clock();
        let late = connect(&group).await;
        if !unreplicated.is_valid() {
            return false;
        }
        quarantined(try_take(&late, "a", &patient()).await);
        let next = take(&late, "a", &patient()).await;
        assert!(!unreplicated.is_valid(), "two believe: {unreplicated:?} and {next:?}");
        let_go(next).await;
        true
    })
    .await;
}

/// The control: it is the quarantine that keeps two from believing, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_quarantine_a_replica_without_the_key_makes_a_second_holder() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        let holder = group.client("").await;
        group.0.await_replicated();
        group.0.hold_replicas_back();
        let first = take(&holder, "a", &fixed()).await;
        let promoted = group.promote_who_missed_it();
        // An operator who says, wrongly, that nothing is held.
        group.0.settle(promoted);
        let other = group.client("").await;
        let second = take(&other, "a", &patient()).await;
        if !first.is_valid() {
            return false;
        }
        assert!(second.is_valid() && second.fencing_token() > first.fencing_token());
        the_resource_refuses(&first, &second);
        let_go(second).await;
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stood_still_is_left_for_good() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        let (holder, other) = (group.client("").await, group.client("").await);
        let guard = take(&holder, "a", &patient()).await;
        group.0.await_replicated();
        group.server(0).stop();
        group.0.await_promotion(0);
        moves(&other).await;
        // It believes that it is the master, and would grant.
        group.server(0).cont();
        if !guard.is_valid() {
            return false;
        }
        quarantined(try_take(&other, "b", &patient()).await);
        renewed(&guard).await;
        renewed(&guard).await;
        until("the old one follows", || !group.server(0).is_master()).await;
        is_not_lost(&guard);
        // On a machine that stands still itself, the sentinels may have moved on once more.
        let is_left = group.0.master() != 0;
        let_go(guard).await;
        is_left
    })
    .await;
}

/// Waits until the new master refuses this client's requests: the sentinels may notify us before
/// it. The old one answers nobody meanwhile.
async fn moves(client: &Client) {
    let moved = async {
        loop {
            let error = try_take(client, "b", &patient()).await.expect_err("nothing is granted");
            match error.kind() {
                ErrorKind::Quarantined { .. } => return,
                ErrorKind::NoQuorum { .. } | ErrorKind::Unavailable { .. } => {}
                _ => panic!("{error:?}"),
            }
        }
    };
    soon("the client moves", moved).await;
}

/// An old copy is restored: the counter of its time is behind, and the clock is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_restored_from_an_old_copy_gives_no_token_twice() {
    unspoilt("a replica was promoted before the master was back", async || {
        let group = Group::start();
        let client = group.client("").await;
        let_go(take(&client, "a", &patient()).await).await;
        behind(group.server(0), "SAVE");
        let mut tokens = BTreeSet::new();
        for _ in 0..20 {
            let guard = take(&client, "a", &patient()).await;
            tokens.insert(guard.fencing_token());
            let_go(guard).await;
        }
        let last = *tokens.last().expect("twenty of them");
        group.server(0).kill();
        group.server(0).restart();
        let kept = behind(group.server(0), "GET holdline:fence").text().expect("the old counter");
        assert!(kept < last.to_string(), "{kept} is old");
        let next = take(&client, "a", &patient()).await;
        let is_first = group.0.master() == 0;
        assert!(next.fencing_token() > last, "{next:?} after {last:?}");
        let_go(next).await;
        is_first
    })
    .await;
}
