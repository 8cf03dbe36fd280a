//! A leader that is killed or stands still, members that are too few, a server that restarts.

use std::time::Duration;

use holdline::admin::Operation;
use holdline::{ErrorKind, FencingToken, LostReason};
use holdline_services::{EtcdCluster, EtcdConfig, EtcdFlavour, EtcdServer};

use crate::support::{
    client, first_at, lease, let_go, patient, queued, refused_by_too_few, renewed, soon, take,
    taking, until,
};

/// Holds, lets another wait, does something to the leader, and passes the lock on.
async fn over(harm: impl FnOnce(&EtcdCluster, usize)) {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let leader = cluster.leader_seen_by(0);
    // One is connected to the leader first, the other to another member.
    let holding = first_at(&cluster, leader).await;
    let waiting = first_at(&cluster, (leader + 1) % 3).await;
    let held = take(&holding, "a", &patient()).await;
    let waiter = taking(&waiting, "a");
    queued(&waiting, "a", 1).await;
    harm(&cluster, leader);
    renewed(&held, 2).await;
    assert!(held.is_valid());
    let token = held.fencing_token();
    let_go(held).await;
    let next = soon("the next one", waiter).await.expect("no panic");
    assert!(next.fencing_token() > token);
    let_go(next).await;
    let fresh = take(&holding, "a", &patient()).await;
    let_go(fresh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_costs_no_lock_and_no_position() {
    over(|cluster, leader| cluster.kill(leader)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_leader_costs_no_lock_and_no_position() {
    over(|cluster, leader| cluster.stop(leader)).await;
}

/// A leader that resumes believes for a moment that it still leads. It may answer a keepalive that
/// does not count (before 3.5.13), or end a lease that the new leader renewed (in every version):
/// exclusion is not promised here. That tokens grow is, and that the holder is notified.
async fn after_a_leader_resumes(flavour: EtcdFlavour) {
    let cluster = EtcdCluster::start(EtcdConfig::default().with_flavour(flavour));
    let holding = client(&cluster.url()).await;
    let waiting = client(&cluster.url()).await;
    let short = lease(3);
    let mut last = FencingToken::MIN;
    for _ in 0..3 {
        let leader = cluster.leader_seen_by(0);
        let held = take(&holding, "a", &short).await;
        let waiter = taking(&waiting, "a");
        cluster.stop(leader);
        // The stopped leader saw no keepalive for longer than the lease; the next one did.
        tokio::time::sleep(Duration::from_secs(4)).await; // event: none, the pause lasts so long
        cluster.cont(leader);
        let token = held.fencing_token();
        assert!(token > last);
        let lost = tokio::select! {
            () = renewed(&held, 2) => None,
            reason = held.lost() => Some(reason),
        };
        println!("{flavour:?}: a leader resumed, the lease was {lost:?}");
        match lost {
            None => let_go(held).await,
            Some(reason) => {
                assert!(matches!(reason, LostReason::Missing | LostReason::Expired), "{reason:?}");
                assert!(!held.is_valid());
            }
        }
        let next = soon("the next one", waiter).await.expect("no panic");
        assert!(next.fencing_token() > token);
        last = next.fencing_token();
        let_go(next).await;
        cluster.ctl_until(leader, &["put", "other", "value"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_leader_resumes_the_tokens_order_the_holders() {
    after_a_leader_resumes(EtcdFlavour::Debian).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_leader_resumes_and_tokens_grow() {
    after_a_leader_resumes(EtcdFlavour::V37).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nobody_holds_for_long_and_with_it_all_goes_on() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let client = client(&cluster.url()).await;
    let held = take(&client, "a", &lease(10)).await;
    let token = held.fencing_token();
    cluster.kill(0);
    cluster.kill(1);
    refused_by_too_few(&client, "b").await;
    // By its own clock: no message reaches it.
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Expired);
    assert!(!held.is_valid());
    cluster.relaunch(0);
    cluster.relaunch(1);
    cluster.await_ready(0);
    cluster.await_ready(1);
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > token);
    let_go(next).await;
}

/// Members that are too few are waited out as a holder is: until the limit, or until they are
/// enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_a_majority_goes_on_until_its_limit_or_the_majority() {
    let cluster = EtcdCluster::start(EtcdConfig::default());
    let client = client(&cluster.url()).await;
    let_go(take(&client, "a", &patient()).await).await;
    cluster.kill(0);
    cluster.kill(1);
    refused_by_too_few(&client, "a").await;
    let wait = Duration::from_secs(4);
    let limited = client.mutex_with("a", &patient().with_wait(wait)).expect("a good lock");
    let began = tokio::time::Instant::now();
    let refused = soon("an answer", limited.lock()).await.expect_err("no majority");
    assert!(matches!(refused.kind(), ErrorKind::NoQuorum { .. }), "{refused:?}");
    assert!(began.elapsed() >= wait, "{:?}: {refused}", began.elapsed());
    let patient = client.mutex_with("a", &patient()).expect("a good lock");
    let waiting = tokio::spawn(async move { patient.lock().await });
    cluster.relaunch(0);
    cluster.relaunch(1);
    cluster.await_ready(0);
    let held = soon("the lock", waiting).await.expect("no panic").expect("a majority");
    let_go(held).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_restarted_keeps_holder_and_queue() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = client(&server.url()).await;
    let held = take(&client, "a", &patient()).await;
    let waiter = taking(&client, "a");
    queued(&client, "a", 1).await;
    server.restart();
    renewed(&held, 2).await;
    let_go(held).await;
    let next = soon("the next one", waiter).await.expect("no panic");
    let_go(next).await;
}

/// The leases of the keys of a name, in the order in which the keys were made.
fn leases(server: &EtcdServer, name: &str) -> Vec<u64> {
    let prefix = format!("holdline/{name}/");
    let asked = ["get", &prefix, "--prefix", "--sort-by=CREATE", "--order=ASCEND", "-w=fields"];
    let listed = server.ctl(&asked);
    let leases = listed.lines().filter_map(|line| line.strip_prefix("\"Lease\" : "));
    leases.map(|lease| lease.parse().expect("a number")).collect()
}

/// Its key is gone while it waits: it stands behind those who came after it, and holds when it is
/// its new key's turn, not when it would have been the old one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_session_ended_while_it_queued_starts_over_behind_the_others() {
    let server = EtcdServer::start(EtcdConfig::default());
    let (holding, waiting) = (client(&server.url()).await, client(&server.url()).await);
    let held = take(&holding, "a", &patient()).await;
    let unlucky = taking(&waiting, "a");
    queued(&holding, "a", 1).await;
    let behind = taking(&holding, "a");
    queued(&holding, "a", 2).await;
    let before = leases(&server, "a");
    assert_eq!((before.len(), before[0] == before[2]), (3, true), "{before:?}");
    server.ctl(&["lease", "revoke", &format!("{:x}", before[1])]);
    until("it queues anew", async || {
        let after = leases(&server, "a");
        after.len() == 3 && after[1] == before[2] && after[2] != before[1]
    })
    .await;
    let first = held.fencing_token();
    let_go(held).await;
    let behind = soon("the one behind", behind).await.expect("no panic");
    assert!(behind.fencing_token() > first && !unlucky.is_finished());
    let second = behind.fencing_token();
    let_go(behind).await;
    let unlucky = soon("the one that started over", unlucky).await.expect("no panic");
    assert!(unlucky.fencing_token() > second);
    let_go(unlucky).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_key_and_a_revoked_grant_are_noticed() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = client(&server.url()).await;
    let held = take(&client, "a", &patient()).await;
    server.ctl(&["del", "holdline/a/", "--prefix"]);
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Missing);
    let held = take(&client, "a", &patient()).await;
    let (name, token) = (held.name().clone(), held.fencing_token());
    let revoke = Operation::Revoke { name, token, reason: "why".into(), now: true };
    client.admin().operate(&revoke).await.expect("revoked");
    assert_eq!(soon("the loss", held.lost()).await, LostReason::Revoked("why".into()));
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > token);
}

/// A contender that is dropped while it waits, or while nobody answers, leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_dropped_while_the_server_hangs_leaves_nothing() {
    let server = EtcdServer::start(EtcdConfig::default());
    let client = client(&server.url()).await;
    server.stop();
    let mutex = client.mutex_with("a", &patient()).expect("a good lock");
    let asking = tokio::time::timeout(std::time::Duration::from_millis(100), mutex.lock()).await;
    assert!(asking.is_err(), "nobody answers");
    server.cont();
    let held = take(&client, "a", &patient()).await;
    let_go(held).await;
    let report = soon("a shutdown", client.shutdown(crate::support::LONG)).await;
    assert!(report.is_clean(), "{report:?}");
    until("nothing is left", async || {
        let keys = server.ctl(&["get", "holdline/a/", "--prefix", "--keys-only"]);
        keys.is_empty()
    })
    .await;
}
