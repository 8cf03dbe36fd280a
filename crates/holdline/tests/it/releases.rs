//! Releases that the store does not confirm: how long they take, and what they report.

use std::time::Duration;

use holdline::clock::Clock;
use holdline::{Keep, LockOptions, LostReason, ReleaseOutcome};

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, locked, look, settle};

const S: Duration = Duration::from_secs(1);

/// Takes a name, and releases it while releases have this fate. Returns the outcome and the time
/// that the release took.
async fn released_with(
    fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
) -> (ReleaseOutcome, Duration) {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 1);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    faulty.line.judge(move |call, number| match call {
        Call::Release => fate(number),
        _ => Fate::Good,
    });
    let began = clock.now();
    let outcome = drive(&clock, guard.release()).await;
    let taken = began.until(clock.now());
    // Whatever was reported: nothing is left once the store can be reached.
    faulty.line.judge(|_, _| Fate::Good);
    let closing = client.clone();
    drive(&clock, async move { closing.shutdown(60 * S).await }).await;
    settle().await;
    assert_eq!(look(&client, "a").await.holder_count, 0, "{outcome:?}");
    (outcome, taken)
}

#[tokio::test]
async fn a_release_that_is_refused_ends_at_once_and_is_not_confirmed() {
    for fate in [Fate::Refused, Fate::Protocol] {
        let (outcome, taken) = released_with(move |_| fate).await;
        assert!(
            matches!(outcome, ReleaseOutcome::Released { confirmed: false, .. }),
            "{outcome:?}"
        );
        assert!(!outcome.is_released(), "{outcome:?}");
        assert!(taken < S / 10, "{fate:?}: it took {taken:?}");
    }
}

#[tokio::test]
async fn a_release_of_a_name_that_somebody_overwrote_reports_the_loss() {
    for fate in [Fate::Foreign, Fate::Unavailable] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        let client = client(faulty.clone(), &clock, 2);
        let guard = client.mutex("a").expect("good").lock().await.expect("free");
        faulty.line.judge(move |call, number| match (call, number) {
            (Call::Release, 0) => fate,
            (Call::Release, _) => Fate::Foreign,
            _ => Fate::Good,
        });
        let began = clock.now();
        let outcome = drive(&clock, guard.release()).await;
        assert_eq!(outcome, ReleaseOutcome::Lost { reason: LostReason::Missing });
        assert!(began.until(clock.now()) < S, "{fate:?}");
    }
}

#[tokio::test]
async fn a_release_waits_for_a_store_that_is_gone_for_a_second_and_for_a_silent_one_for_five() {
    for (fate, limit) in [
        (Fate::Unavailable, S),
        (Fate::NoQuorum, S),
        (Fate::RequestUnknown, S),
        (Fate::RequestLost, 5 * S),
    ] {
        let (outcome, taken) = released_with(move |_| fate).await;
        assert!(!outcome.is_released(), "{fate:?}: {outcome:?}");
        assert!(taken <= limit, "{fate:?}: it took {taken:?}");
    }
}

#[tokio::test]
async fn a_release_that_failed_once_is_repeated_and_confirmed() {
    for fate in [Fate::Unavailable, Fate::RequestUnknown] {
        let (outcome, taken) =
            released_with(move |number| if number == 0 { fate } else { Fate::Good }).await;
        assert!(outcome.is_released(), "{fate:?}: {outcome:?}");
        assert!(taken < S, "{fate:?}: it took {taken:?}");
    }
    // Whether the first request released it, nobody can know: the name is free, and no more.
    let lost_once = |number| if number == 0 { Fate::ReplyUnknown } else { Fate::Good };
    let (outcome, taken) = released_with(lost_once).await;
    assert!(matches!(outcome, ReleaseOutcome::Released { confirmed: false, .. }), "{outcome:?}");
    assert!(!outcome.is_released() && taken < S, "{outcome:?} after {taken:?}");
}

#[tokio::test]
async fn several_names_are_released_side_by_side_within_one_bound() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 3);
    let names = ["a", "b", "c", "d"];
    let all = client.lock_all(names).await.expect("free");
    faulty.line.judge(|call, _| if call == Call::Release { Fate::RequestLost } else { Fate::Good });
    let began = clock.now();
    let outcomes = drive(&clock, all.release()).await;
    assert_eq!(outcomes.len(), 4);
    assert!(began.until(clock.now()) <= 5 * S, "{:?}", began.until(clock.now()));
    // An attempt that gets only some of them is over as soon, too.
    faulty.line.judge(|_, _| Fate::Good);
    let held = client.mutex("z").expect("good").lock().await.expect("free");
    faulty.line.judge(|call, _| if call == Call::Release { Fate::RequestLost } else { Fate::Good });
    let began = clock.now();
    let options = LockOptions::default().with_wait(2 * S);
    let attempt = client.clone();
    let names = ["e", "f", "g", "z"];
    let failed = drive(&clock, async move { attempt.lock_all_with(names, &options).await }).await;
    assert!(failed.expect_err("held").is_contended());
    // The wait, the answer to giving up the place, and the releases.
    assert!(began.until(clock.now()) <= 8 * S, "{:?}", began.until(clock.now()));
    drop(held);
}

/// A lease above 30 s is reached by a renewal, and nobody else knows its id before the guard does.
#[tokio::test]
async fn no_lease_above_thirty_seconds_exists_before_its_guard() {
    for keep in [Keep::Fixed, Keep::Detached] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        let client = client(faulty.clone(), &clock, 4);
        faulty.line.judge(|call, number| match (call, number) {
            (Call::Renew, 0) => Fate::ReplyLost,
            _ => Fate::Good,
        });
        let options = LockOptions::default().with_lease_duration(3_600 * S).with_keep(keep);
        let attempt = locked(client.mutex_with("a", &options).expect("fits"));
        let attempt = tokio::spawn(attempt);
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let held = look(&client, "a").await.holders;
            let long = held.iter().any(|holder| holder.summary.left.is_some_and(|l| l > 30 * S));
            assert!(!long || attempt.is_finished(), "{keep:?}: nobody has the guard yet: {held:?}");
        }
        let guard = drive(&clock, async { attempt.await.expect("no panic") }).await.expect("free");
        // The lost answer is asked for again, and the whole lease is reached.
        let reached = clock.clone();
        drive(&clock, async move { reached.sleep_until(reached.now().after(29 * S)).await }).await;
        assert!(guard.remaining() > 3_000 * S, "{keep:?}: {:?}", guard.remaining());
        let renewals = faulty.line.count(Call::Renew);
        let reached = clock.clone();
        drive(&clock, async move { reached.sleep_until(reached.now().after(600 * S)).await }).await;
        assert_eq!(faulty.line.count(Call::Renew), renewals, "it is never renewed after that");
        assert!(guard.release().await.is_released());
    }
}
