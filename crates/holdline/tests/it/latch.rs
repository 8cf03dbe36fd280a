//! Count-down latches, in virtual time.

use std::time::Duration;

use holdline::ErrorKind;

use crate::support::{client, drive, engine, pass, settle};

const S: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_latch_is_set_once_counted_down_and_set_again() {
    let (engine, clock) = engine();
    let (one, two) = (client(engine.clone(), &clock, 1), client(engine, &clock, 2));
    let (one, two) = (one.latch("ready").expect("good"), two.latch("ready").expect("good"));
    for _ in 0..2 {
        assert!(one.try_set(3).await.expect("set"));
        assert!(!two.try_set(9).await.expect("asked"), "it is set");
        assert_eq!(two.count_down(1).await.expect("counted"), 2);
        assert_eq!(one.count().await.expect("asked"), 2);
        assert_eq!(one.count_down(5).await.expect("counted"), 0);
        assert_eq!(one.count_down(1).await.expect("counted"), 0, "below zero is zero");
        assert_eq!(two.count().await.expect("asked"), 0);
    }
}

#[tokio::test]
async fn waiters_return_at_zero_and_not_before() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let latch = client.latch("ready").expect("good");
    drive(&clock, {
        let latch = latch.clone();
        async move { latch.wait().await }
    })
    .await
    .expect("one that was never set is open");
    assert!(latch.try_set(2).await.expect("set"));
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let latch = latch.clone();
            tokio::spawn(async move { latch.wait().await })
        })
        .collect();
    pass(&clock, 5 * S).await;
    latch.count_down(1).await.expect("counted");
    pass(&clock, 5 * S).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    latch.count_down(1).await.expect("counted");
    pass(&clock, S).await;
    settle().await;
    for waiting in waiting {
        assert!(waiting.is_finished(), "within half a second");
        waiting.await.expect("no panic").expect("open");
    }
}

#[tokio::test]
async fn a_wait_can_have_a_limit() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let latch = client.latch("ready").expect("good");
    assert!(latch.try_set(1).await.expect("set"));
    let waiting = latch.clone();
    let open = drive(&clock, async move { waiting.wait_for(3 * S).await }).await.expect("asked");
    assert!(!open);
    assert_eq!(clock_seconds(&clock), 3);
    latch.count_down(1).await.expect("counted");
    let open = drive(&clock, async move { latch.wait_for(3 * S).await }).await.expect("asked");
    assert!(open);
}

fn clock_seconds(clock: &holdline::clock::ManualClock) -> u64 {
    holdline::clock::Clock::now(clock).as_nanos() / 1_000_000_000
}

#[tokio::test]
async fn a_lock_and_a_latch_of_one_name_know_nothing_of_each_other() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let latch = client.latch("a").expect("good");
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    assert!(latch.try_set(1).await.expect("set"));
    let _ = guard.release().await;
    assert_eq!(latch.count().await.expect("asked"), 1);
    assert!(client.mutex("a").expect("good").try_lock().await.is_ok());
}

#[tokio::test]
async fn bad_counts_are_refused_before_anything_is_asked() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let latch = client.latch("a").expect("good");
    for error in [
        latch.try_set(0).await.expect_err("refused"),
        latch.count_down(0).await.expect_err("refused"),
        latch.try_set(u64::MAX).await.expect_err("refused"),
    ] {
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "count", .. }), "{error}");
    }
    assert!(client.latch("").is_err());
}
