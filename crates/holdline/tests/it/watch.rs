//! Watching a store in rounds, in virtual time.

use std::time::Duration;

use holdline::admin::Operation;
use holdline::clock::ManualClock;
use holdline::watch::{
    Change, Coverage, EndedWhen, LockEvent, NamePattern, Round, StoreWatch, WatchOptions,
};
use holdline::{Client, ErrorKind, LockOptions};

use crate::support::{client, drive, engine, name, pass, settle};

const S: Duration = Duration::from_secs(1);

fn watch(client: &Client, pattern: &str, options: WatchOptions) -> StoreWatch {
    let pattern = NamePattern::new(pattern).expect("a good pattern");
    StoreWatch::new(client.clone(), pattern, options).expect("memory lists")
}

/// Reads the next round, while the clock moves.
async fn next(clock: &ManualClock, mut watch: StoreWatch) -> (StoreWatch, Round) {
    drive(clock, async move {
        let round = watch.next_round().await;
        (watch, round)
    })
    .await
}

/// What a round has shown, without the renewals, which come when the keeper likes.
fn words(round: &Round) -> Vec<(&str, &'static str, bool)> {
    let is_shown = |change: &&Change| !matches!(change.event, LockEvent::Renewed { .. });
    let changes = round.changes.iter().filter(is_shown);
    changes.map(|c| (c.name.as_str(), c.event.word(), c.found)).collect()
}

#[tokio::test]
async fn a_life_of_a_lock_is_seen_from_outside() {
    let (engine, clock) = engine();
    let (one, two) = (client(engine.clone(), &clock, 1), client(engine, &clock, 2));
    let options = LockOptions::default().with_lease_duration(9 * S);
    let guard = one.mutex_with("a", &options).expect("good").lock().await.expect("free");
    let seen = watch(&two, "", WatchOptions::default());
    let (seen, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("a", "granted", true)]);
    assert_eq!((round.number, &round.coverage), (1, &Some(Coverage::All)));

    let mutex = two.mutex_with("a", &options).expect("good");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    settle().await;
    let (seen, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("a", "queued", false)]);
    let watched = seen.name(&name("a")).expect("held");
    assert_eq!(watched.snapshot().queue_length, 1);

    // Renewed at a third of the lease.
    pass(&clock, 4 * S).await;
    let (seen, round) = next(&clock, seen).await;
    let renewed = round.changes.iter().find_map(|change| match &change.event {
        LockEvent::Renewed { slack, .. } => Some(*slack),
        _ => None,
    });
    let slack = renewed.expect("a third of the lease has passed");
    assert!((3 * S..=9 * S).contains(&slack), "{slack:?}");

    let _ = guard.release().await;
    settle().await;
    let (seen, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("a", "ended", false), ("a", "granted", false)]);
    let LockEvent::Ended { when, holder, .. } = &round.changes[0].event else { panic!("ended") };
    assert_eq!(*when, EndedWhen::BeforeLeaseEnd);
    assert_eq!(holder.summary.metadata.fields().pid, Some(std::process::id()));
    let LockEvent::Granted { waited, .. } = &round.changes[1].event else { panic!("granted") };
    assert!(waited.is_some());

    let _ = waiting.await.expect("no panic").expect("granted").release().await;
    settle().await;
    let (seen, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("a", "ended", false)]);
    assert_eq!(seen.names().count(), 0);
}

#[tokio::test]
async fn operators_are_seen_and_only_the_names_of_the_pattern() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let guard = client.mutex("deploy/eu").expect("good").lock().await.expect("free");
    let _other = client.mutex("other").expect("good").lock().await.expect("free");
    let (seen, round) = next(&clock, watch(&client, "deploy/*", WatchOptions::default())).await;
    assert_eq!(words(&round), [("deploy/eu", "granted", true)]);

    let revoke = Operation::Revoke {
        name: name("deploy/eu"),
        token: guard.fencing_token(),
        reason: "rollback".to_owned(),
        now: true,
    };
    client.admin().operate(&revoke).await.expect("revoked");
    let freeze = Operation::Freeze {
        name: name("deploy/us"),
        duration: 60 * S,
        reason: "moving".to_owned(),
    };
    client.admin().operate(&freeze).await.expect("frozen");
    let (seen, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("deploy/eu", "ended", false), ("deploy/us", "frozen", false)]);
    client
        .admin()
        .operate(&Operation::Unfreeze { name: name("deploy/us") })
        .await
        .expect("unfrozen");
    let (_, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("deploy/us", "unfrozen", false)]);
}

#[tokio::test]
async fn what_is_beyond_the_bound_is_left_out_and_that_is_reported() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let mut guards = Vec::new();
    for text in ["a", "b", "c"] {
        guards.push(client.mutex(text).expect("good").lock().await.expect("free"));
    }
    let options = WatchOptions::default().with_max_names(2);
    let (seen, round) = next(&clock, watch(&client, "*", options)).await;
    assert_eq!(round.coverage, Some(Coverage::UpTo(name("b"))));
    assert_eq!(words(&round), [("a", "granted", true), ("b", "granted", true)]);
    // `c` comes into view: it was not granted just now.
    let _ = guards.remove(0).release().await;
    let (_, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("a", "ended", false), ("c", "granted", true)]);
    assert_eq!(round.coverage, Some(Coverage::All));
}

#[tokio::test]
async fn rounds_keep_their_pause_and_hurry_when_asked() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let seconds = || holdline::clock::Clock::now(&clock).as_nanos() / 1_000_000_000;
    let (seen, _) = next(&clock, watch(&client, "*", WatchOptions::default())).await;
    assert_eq!(seconds(), 0, "the first round is due at once");
    let (mut seen, _) = next(&clock, seen).await;
    assert_eq!(seconds(), 1);
    seen.hurry();
    let (seen, round) = next(&clock, seen).await;
    assert_eq!((seconds(), round.number), (1, 3));
    // A round that is given up while it waits is due as before.
    let mut seen = seen;
    assert!(futures_util::FutureExt::now_or_never(seen.next_round()).is_none());
    let (_, round) = next(&clock, seen).await;
    assert_eq!((seconds(), round.number), (2, 4));
}

#[tokio::test]
async fn an_exact_name_needs_no_listing() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let _longer = client.mutex("ab").expect("good").lock().await.expect("free");
    let (seen, round) = next(&clock, watch(&client, "a", WatchOptions::default())).await;
    assert_eq!(words(&round), [("a", "granted", true)]);
    let _ = guard.release().await;
    let (_, round) = next(&clock, seen).await;
    assert_eq!(words(&round), [("a", "ended", false)]);
    let options = WatchOptions::default().with_interval(Duration::ZERO);
    let error = StoreWatch::new(client, NamePattern::of_prefix(""), options).expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "interval", .. }), "{error}");
}
