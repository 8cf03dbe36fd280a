//! The smallest uses.

use std::time::Duration;

use holdline::{ErrorKind, Keep, LockOptions, Mode, ReleaseOutcome};

use crate::support::{client, engine, locked, look, pass, settle};

#[tokio::test]
async fn lock_and_release() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let mutex = client.mutex("a").expect("good name");
    let guard = mutex.lock().await.expect("free");
    assert!(guard.is_valid());
    assert_eq!(guard.mode(), Mode::Exclusive);
    let busy = mutex.try_lock().await.expect_err("held");
    assert!(matches!(busy.kind(), ErrorKind::Busy { holder: Some(_) }), "{busy}");
    clock.advance(Duration::from_secs(2));
    let first = guard.fencing_token();
    let outcome = guard.release().await;
    let held_for = Duration::from_secs(2);
    let ReleaseOutcome::Released { held_for: reported, confirmed: true, .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(reported, held_for);
    let again = mutex.try_lock().await.expect("free again");
    assert!(again.fencing_token() > first);
    drop(again);
    settle().await;
    assert_eq!(look(&client, "a").await.holder_count, 0);
}

#[tokio::test]
async fn a_waiter_gets_the_name_when_it_is_released() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 2);
    let mutex = client.mutex("a").expect("good name");
    let guard = mutex.lock().await.expect("free");
    let waiter = tokio::spawn(locked(mutex.clone()));
    settle().await;
    assert_eq!(look(&client, "a").await.queue_length, 1);
    let token = guard.fencing_token();
    let _ = guard.release().await;
    let second = waiter.await.expect("no panic").expect("handed over");
    assert!(second.fencing_token() > token && second.is_valid());
}

#[tokio::test]
async fn leases_are_renewed_until_they_are_released() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 3);
    let guard = client.mutex("a").expect("good name").lock().await.expect("free");
    pass(&clock, Duration::from_secs(120)).await;
    assert!(guard.is_valid());
    assert!(guard.remaining() > Duration::from_secs(15));
    let _ = guard.release().await;
    pass(&clock, Duration::from_secs(60)).await;
    assert_eq!(look(&client, "a").await.holder_count, 0);
}

#[tokio::test]
async fn a_fixed_lease_runs_out_and_says_so() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 4);
    let options = LockOptions::default().with_keep(Keep::Fixed);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    let token = guard.cancellation_token();
    pass(&clock, Duration::from_secs(30)).await;
    assert!(!guard.is_valid() && token.is_cancelled());
    assert_eq!(guard.lost().await, holdline::LostReason::RanOut);
    assert!(!guard.release().await.is_released());
}
