//! Grants that count only when replicas have them.

use holdline::{Certainty, ErrorKind, Keep, LostReason};

use super::ground::{Group, await_uptime, fixed, lost, patient, quarantined};
use holdline_services::RedisServer;

use crate::support::{
    behind, client, lease, let_go, renewed, take, the_resource_refuses, try_take, unspoilt, until,
};

/// With `replicas=all` nothing that counts is lost, so no quarantine follows a promotion. But
/// a replica that is away blocks grants: the group grants again when all are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_all_replicas_have_needs_no_quarantine() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        behind(group.server(0), "HDEL holdline:reign:1 w");
        let client = group.client("&replicas=all").await;
        for replica in [1, 2] {
            await_uptime(group.server(replica), 12).await;
        }
        let guard = take(&client, "a", &fixed()).await;
        group.server(0).kill();
        group.0.await_promotion(0);
        let error = try_take(&client, "b", &patient()).await.expect_err("one is away");
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
        let known = try_take(&client, "a", &patient()).await;
        if !guard.is_valid() {
            return false;
        }
        let busy = known.expect_err("held");
        assert!(matches!(busy.kind(), ErrorKind::Busy { .. }), "{busy:?}");
        group.server(0).restart();
        until("the old one follows", || !group.server(0).is_master()).await;
        group.0.await_linked();
        let next = take(&client, "a", &patient()).await;
        assert!(!guard.is_valid() && next.fencing_token() > guard.fencing_token());
        renewed(&next).await;
        let_go(next).await;
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_a_replica_lacks_is_undone() {
    let group = Group::start();
    let client = group.client("&replicas=all").await;
    let_go(take(&client, "a", &patient()).await).await;
    group.server(2).stop();
    let error = try_take(&client, "a", &patient()).await.expect_err("one lacks it");
    assert!(error.to_string().contains("1 of 2 replicas"), "{error:?}");
    assert_eq!(error.certainty(), Certainty::Unknown);
    until("it is undone", || behind(group.server(0), "EXISTS holdline:{a}").integer() == Some(0))
        .await;
    // The master itself and one replica are a majority of three.
    let majority = group.client("&replicas=majority").await;
    let_go(take(&majority, "a", &patient()).await).await;
    group.server(2).cont();
    let_go(take(&client, "a", &patient()).await).await;
}

/// The connection on which replicas are waited for, as the server knows it.
fn waiting(server: &RedisServer) -> Option<String> {
    let list = behind(server, "CLIENT LIST").text()?;
    let line = list.lines().find(|line| line.contains(" cmd=wait "))?;
    line.split(' ').find_map(|field| field.strip_prefix("id=").map(str::to_owned))
}

/// Whether the replicas have it nobody knows then, and a grant that nobody knows of is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_whose_confirmation_is_lost_is_undone() {
    let group = Group::start();
    let client = group.client("&replicas=all").await;
    let before = take(&client, "a", &patient()).await;
    let token = before.fencing_token();
    let_go(before).await;
    unspoilt("the server had answered", async || {
        group.server(2).stop();
        let asking = tokio::spawn({
            let client = client.clone();
            async move { try_take(&client, "a", &patient()).await }
        });
        // The library asks again for what it does not know.
        until("nobody asks any more", || {
            if let Some(id) = waiting(group.server(0)) {
                behind(group.server(0), &format!("CLIENT KILL ID {id}"));
            }
            asking.is_finished()
        })
        .await;
        let error = asking.await.expect("no panic").expect_err("nobody knows");
        assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
        let undone = || behind(group.server(0), "EXISTS holdline:{a}").integer() == Some(0);
        until("it is undone", undone).await;
        group.server(2).cont();
        error.to_string().contains("it is not known which replicas have it")
    })
    .await;
    let next = take(&client, "a", &patient()).await;
    assert!(next.fencing_token() > token);
    let_go(next).await;
}

/// Fewer than all narrow the window and do not close it: the one that lacks the grant may be
/// promoted. So the quarantine stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_one_replica_has_is_lost_with_that_one() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        let (holder, other) = (group.client("&replicas=1").await, group.client("").await);
        group.0.await_replicated();
        group.0.hold_replicas_back();
        group.server(1).cont();
        let guard = take(&holder, "a", &patient()).await;
        let unreplicated = take(&holder, "b", &fixed()).await;
        for gone in [1, 0] {
            group.server(gone).kill();
        }
        group.server(2).cont();
        assert_eq!(group.0.await_promotion(0), 2);
        if !guard.is_valid() || !unreplicated.is_valid() {
            return false;
        }
        quarantined(try_take(&other, "a", &patient()).await);
        // Without the replica that it asks for nothing is renewed either.
        assert!(matches!(lost(&guard).await, LostReason::Missing | LostReason::Expired));
        let next = take(&other, "b", &patient()).await;
        assert!(!unreplicated.is_valid(), "two believe: {unreplicated:?} and {next:?}");
        assert!(next.fencing_token() > unreplicated.fencing_token());
        let_go(next).await;
        true
    })
    .await;
}

/// The servers note whether all clients wait for all replicas. If one client does not, the servers
/// refuse requests of the others too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_without_replicas_all_quarantines_all_after_a_promotion() {
    let group = Group::start();
    behind(group.server(0), "HDEL holdline:reign:1 w");
    let all = group.client("&replicas=all").await;
    for replica in [1, 2] {
        await_uptime(group.server(replica), 12).await;
    }
    let _less = group.client("").await;
    group.0.await_replicated();
    group.server(0).kill();
    group.0.await_promotion(0);
    quarantined(try_take(&all, "a", &patient()).await);
}

/// What `replicas=all` does not promise beside a client that asks for less: a replica that missed
/// that client lets the others in at once. The tokens show who came later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_holders_are_possible_beside_an_unmeasured_client_with_a_shorter_promise() {
    unspoilt("the failover took longer than the lease", async || {
        let group = Group::start();
        behind(group.server(0), "HDEL holdline:reign:1 w");
        // Longer than the failover and a server's return take.
        let all = client(&group.url_up_to(20_000, "&replicas=all")).await;
        for replica in [1, 2] {
            await_uptime(group.server(replica), 22).await;
        }
        group.0.await_replicated();
        group.0.hold_replicas_back();
        let less = client(&group.url_by(&[2], 20_000, "")).await;
        let unreplicated = take(&less, "a", &lease(20_000).with_keep(Keep::Fixed)).await;
        // It would announce itself to the next master if it came there before the other.
        group.0.sentinels()[2].stop();
        group.server(0).kill();
        group.0.let_replicas_go(0);
        let next = group.0.await_promotion_seen_by(&[0, 1], 0);
        group.server(0).restart();
        group.0.point(0, next);
        group.0.await_linked();
        let next = take(&all, "a", &patient()).await;
        assert!(next.fencing_token() > unreplicated.fencing_token());
        let both = unreplicated.is_valid() && next.is_valid();
        the_resource_refuses(&unreplicated, &next);
        let_go(next).await;
        both
    })
    .await;
}
