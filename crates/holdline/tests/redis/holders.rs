//! Holders and contenders that misbehave: they drop what they began, block their runtime, and
//! release what is not theirs.

use std::time::Duration;

use holdline::admin::Snapshot;
use holdline::{Client, ClientOptions, Keep, LockName, LostReason, ReleaseOutcome, blocking};
use holdline_services::cut;

use crate::support::{
    Referee, behind, clean, client_at, kept_their_positions, lease, leftovers, let_go, line,
    patient, queued, renewed, server, soon, take, unspoilt, until, url_of,
};

async fn nothing_is_left(server: &holdline_services::RedisServer, what: &str) {
    until(what, || leftovers(server).is_empty()).await;
}

/// On one thread, where no answer can come while a poll runs.
#[tokio::test]
async fn an_attempt_can_be_dropped_at_every_await() {
    let server = server();
    let (client, holder) = (client_at(server.address()).await, client_at(server.address()).await);
    let mutex = client.mutex_with("a", &patient()).expect("a good lock");
    let mut polls = 0;
    loop {
        let cut_off = cut(polls, mutex.lock()).await;
        let done = cut_off.is_some();
        drop(cut_off);
        nothing_is_left(&server, &format!("nothing is left after {polls} polls")).await;
        if done {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 2, "there were awaits to cut at: {polls}");
    // The same for one that queues and is handed the name.
    for polls in 0..60 {
        let guard = take(&holder, "a", &patient()).await;
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move { cut(polls, mutex.lock()).await.map(drop).is_some() }
        });
        until("it queues or has gone", || {
            let line = behind(&server, "ZCARD holdline:{a}:1q").integer();
            waiting.is_finished() || line == Some(2)
        })
        .await;
        let_go(guard).await;
        let done = soon("an end", async {
            tokio::time::timeout(Duration::from_millis(1_500), waiting).await
        });
        let done = done.await.is_ok_and(|done| done.expect("no panic"));
        nothing_is_left(&server, &format!("nothing is left after {polls} polls in the line")).await;
        if done {
            assert!(polls >= 3, "there were awaits to cut at: {polls}");
            clean(&server, &[&client, &holder]).await;
            return;
        }
    }
    panic!("an attempt that queues has fewer polls than these");
}

/// On one thread, where no answer can come while a poll runs.
#[tokio::test]
async fn a_release_can_be_dropped_at_every_await() {
    let server = server();
    let client = client_at(server.address()).await;
    let mut polls = 0;
    loop {
        let guard = take(&client, "a", &patient()).await;
        let done = cut(polls, guard.release()).await.is_some();
        nothing_is_left(&server, &format!("nothing is left after {polls} polls")).await;
        if done {
            break;
        }
        polls += 1;
    }
    assert!(polls >= 2, "there were awaits to cut at: {polls}");
    clean(&server, &[&client]).await;
}

/// Blocks the thread, as work that never awaits does.
fn block(time: Duration) {
    std::thread::sleep(time); // event: the passing of time is what is tested
}

#[tokio::test]
async fn a_runtime_blocked_longer_than_the_lease_has_lost_it() {
    let server = server();
    let client = client_at(server.address()).await;
    let guard = take(&client, "a", &lease(400)).await;
    block(Duration::from_millis(500));
    assert!(!guard.is_valid(), "by the clock, though no task has run");
    assert_eq!(soon("the loss", guard.lost()).await, LostReason::Expired);
    drop(guard);
    clean(&server, &[&client]).await;
}

#[tokio::test]
async fn a_client_with_a_thread_of_its_own_renews_while_the_runtime_is_blocked() {
    let server = server();
    let options = ClientOptions::default().with_own_thread(true);
    let url = url_of(server.address());
    let client = soon("a client", Client::connect_with(&url, options)).await.expect("connected");
    let guard = take(&client, "a", &lease(8_000)).await;
    block(Duration::from_millis(10_000));
    assert!(guard.is_valid(), "it was renewed meanwhile");
    let_go(guard).await;
    clean(&server, &[&client]).await;
}

#[tokio::test]
async fn a_blocking_client_made_inside_a_runtime_renews_while_that_is_blocked() {
    let server = server();
    let url = url_of(server.address());
    let client = blocking::Client::connect(&url).expect("connected");
    let mutex = client.mutex_with("a", &lease(2_000)).expect("fits");
    let guard = mutex.lock().expect("free");
    block(Duration::from_millis(3_000));
    assert!(guard.is_valid(), "it was renewed meanwhile");
    assert!(guard.release().is_released());
    clean(&server, &[client.as_async()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releasing_a_foreign_lease_changes_nothing() {
    let server = server();
    let (holder, other) = (client_at(server.address()).await, client_at(server.address()).await);
    let name = LockName::new("a").expect("a good name");
    let missing = ReleaseOutcome::Lost { reason: LostReason::Missing };
    let release = |client: &Client, id| {
        let (client, name) = (client.clone(), name.clone());
        async move {
            let outcome = client.leases().release_by_id(&name, id).await;
            outcome.expect("an answer")
        }
    };
    let look = || async {
        let shown: Snapshot = holder.admin().inspect(&name).await.expect("an answer");
        (shown.holders.iter().map(|one| one.summary.token).collect::<Vec<_>>(), shown.queue_length)
    };
    // A lease id that nobody was given.
    let guard = take(&holder, "a", &patient()).await;
    let before = look().await;
    assert_eq!(release(&other, other.leases().draw_id()).await, missing);
    assert_eq!(look().await, before);
    renewed(&guard).await;
    // A second release.
    let id = guard.lease_id();
    let_go(guard).await;
    assert_eq!(release(&holder, id).await, missing);
    // A release after the lease has run out, when somebody else holds the name.
    let late = take(&holder, "a", &lease(300).with_keep(Keep::Fixed)).await;
    let referee = Referee::default();
    referee.granted(&late);
    let next = take(&other, "a", &patient()).await;
    referee.granted(&next);
    let late_id = late.lease_id();
    let outcome = soon("a release", late.release()).await;
    assert_eq!(outcome, ReleaseOutcome::Lost { reason: LostReason::RanOut });
    assert_eq!(release(&holder, late_id).await, missing);
    assert_eq!(look().await.0, [Some(next.fencing_token())]);
    renewed(&next).await;
    let_go(next).await;
    clean(&server, &[&holder, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_waiter_leaves_the_order_of_the_others() {
    let server = server();
    let client = client_at(server.address()).await;
    unspoilt("the order", async || {
        let guard = take(&client, "a", &patient()).await;
        let order = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut waiters = Vec::new();
        for place in 0..9 {
            let (client, order) = (client.clone(), order.clone());
            waiters.push(tokio::spawn(async move {
                let guard = take(&client, "a", &patient()).await;
                order.lock().push((place, guard.lease_id().to_hex()));
                let_go(guard).await;
            }));
            queued(&server, "a", place + 1).await;
        }
        for gone in [0, 4, 8] {
            waiters[gone].abort();
        }
        queued(&server, "a", 6).await;
        let places = line(&server, "a");
        let_go(guard).await;
        for waiter in waiters {
            if let Err(error) = soon("the lock", waiter).await {
                assert!(error.is_cancelled(), "{error}");
            }
        }
        let order = std::mem::take(&mut *order.lock());
        let (order, ids): (Vec<_>, Vec<_>) = order.into_iter().unzip();
        if !kept_their_positions(&ids, &places) {
            return false;
        }
        assert_eq!(order, [1, 2, 3, 5, 6, 7]);
        true
    })
    .await;
    clean(&server, &[&client]).await;
}
