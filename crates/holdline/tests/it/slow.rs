//! Waiters at a store that answers late, or cannot be reached for a while: they keep their place.

use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline::clock::ManualClock;
use holdline::{Client, ErrorKind, LockOptions};
use holdline_core::RenewReply;

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, locked, look, pass, settle};

const S: Duration = Duration::from_secs(1);

/// Three clients queue one after the other at a store that answers after `answer`, wait for half
/// a minute, and are served in order, each under its first lease id.
async fn kept_at_a_store_that_answers_after(answer: Duration) {
    let (inner, clock) = engine();
    let near = client(inner.clone(), &clock, 1);
    let first = near.mutex("a").expect("good").lock().await.expect("free");
    let far: Vec<(Faulty, Client)> = (2..5)
        .map(|seed| {
            let faulty = Faulty::new(inner.clone());
            faulty.slow(clock.clone(), answer / 2);
            (faulty.clone(), client(faulty, &clock, seed))
        })
        .collect();
    // Each client has met its store before: it knows how long an answer takes.
    for (number, (_, client)) in far.iter().enumerate() {
        let own = client.mutex(format!("own {number}")).expect("good");
        let guard = drive(&clock, locked(own)).await.expect("free");
        let _ = drive(&clock, guard.release()).await;
    }
    let mut waiters = Vec::new();
    for (_, client) in &far {
        waiters.push(tokio::spawn(locked(client.mutex("a").expect("good"))));
        pass(&clock, S).await;
    }
    pass(&clock, 30 * S).await;
    assert_eq!(look(&near, "a").await.queue_length, 3, "the store keeps their places");
    let _ = first.release().await;
    for ((faulty, _), waiter) in far.iter().zip(waiters) {
        let guard = in_turn(&clock, waiter).await;
        let mut ids: Vec<_> = faulty.line.acquired.lock().iter().map(|(id, _)| *id).collect();
        ids.dedup();
        assert_eq!(ids.len(), 2, "one of its own name, and one place: {ids:?}");
        let _ = drive(&clock, guard.release()).await;
    }
}

/// Waits for the waiter that must be next, for 20 s at most.
async fn in_turn(
    clock: &ManualClock,
    waiter: tokio::task::JoinHandle<Result<holdline::Guard, holdline::LockError>>,
) -> holdline::Guard {
    for _ in 0..20 {
        if waiter.is_finished() {
            return waiter.await.expect("no panic").expect("handed over");
        }
        pass(clock, S).await;
    }
    panic!("the next in the queue does not get the name");
}

#[tokio::test]
async fn waiters_keep_their_positions_if_answers_take_one_and_a_half_seconds() {
    kept_at_a_store_that_answers_after(S * 3 / 2).await;
}

#[tokio::test]
async fn waiters_keep_their_positions_if_answers_take_five_seconds() {
    kept_at_a_store_that_answers_after(5 * S).await;
}

/// The connection breaks just when the request is to leave: the store keeps the hand-off.
#[tokio::test]
async fn a_repeated_request_that_was_not_applied_is_repeated_under_the_same_id() {
    let (inner, clock) = engine();
    let near = client(inner.clone(), &clock, 1);
    let first = near.mutex("a").expect("good").lock().await.expect("free");
    let faulty = Faulty::new(inner);
    faulty.line.deaf.store(true, Ordering::Relaxed);
    let far = client(faulty.clone(), &clock, 2);
    let waiter = tokio::spawn(locked(far.mutex("a").expect("good")));
    pass(&clock, S).await;
    faulty.line.judge(|call, number| match (call, number) {
        (Call::Again, 0..3) => Fate::Unavailable,
        _ => Fate::Good,
    });
    let _ = first.release().await;
    let guard = in_turn(&clock, waiter).await;
    let ids: Vec<_> = faulty.line.acquired.lock().iter().map(|(id, _)| *id).collect();
    assert!(ids.iter().all(|id| *id == guard.lease_id()), "{ids:?}");
    assert_eq!(faulty.line.count(Call::Again), 4);
    let _ = guard.release().await;
}

/// Heartbeats fail for longer than the store keeps silent entries, and the store has received none
/// of them or all of them. Only the store knows whether the position is lost.
#[tokio::test]
async fn failed_heartbeats_cost_no_position_that_the_store_keeps() {
    let (inner, clock) = engine();
    let near = client(inner.clone(), &clock, 1);
    let first = near.mutex("a").expect("good").lock().await.expect("free");
    let faulty = Faulty::new(inner);
    let far = client(faulty.clone(), &clock, 2);
    let waiter = tokio::spawn(locked(far.mutex("a").expect("good")));
    pass(&clock, S / 2).await;
    faulty.line.judge(|call, _| if call == Call::Beat { Fate::ReplyUnknown } else { Fate::Good });
    pass(&clock, 20 * S).await;
    faulty.line.judge(|_, _| Fate::Good);
    pass(&clock, 2 * S).await;
    let _ = first.release().await;
    let guard = in_turn(&clock, waiter).await;
    let ids: Vec<_> = faulty.line.acquired.lock().iter().map(|(id, _)| *id).collect();
    assert!(ids.iter().all(|id| *id == guard.lease_id()), "{ids:?}");
    let _ = guard.release().await;
}

#[tokio::test]
async fn an_attempt_with_the_callers_id_leaves_the_queue_when_it_is_cancelled() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner.clone());
    let near = client(inner, &clock, 1);
    let first = near.mutex("a").expect("good").lock().await.expect("free");
    let far = client(faulty.clone(), &clock, 2);
    let options = LockOptions::default().with_lease_id(far.leases().draw_id());
    let waiter = tokio::spawn(locked(far.mutex_with("a", &options).expect("fits")));
    pass(&clock, S / 2).await;
    assert_eq!(look(&near, "a").await.queue_length, 1);
    *faulty.line.nonsense.lock() = Some(RenewReply::Unknown);
    let error = drive(&clock, async { waiter.await.expect("no panic") }).await;
    let error = error.expect_err("the store says that it does not know the id");
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    settle().await;
    assert_eq!(look(&near, "a").await.queue_length, 0, "its entry stands, and nobody waits there");
    let _ = first.release().await;
}
