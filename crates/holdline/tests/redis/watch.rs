//! A store that goes away and comes back while it is watched.

use holdline::watch::{EndedWhen, LockEvent, NamePattern, Round, StoreWatch, WatchOptions};

use crate::support::{client, client_at, hasty_url_of, patient, server, soon, take};

/// Reads rounds until one fits.
async fn until(watch: &mut StoreWatch, fits: impl Fn(&Round) -> bool) -> Round {
    let found = async {
        loop {
            let round = watch.next_round().await;
            if fits(&round) {
                return round;
            }
        }
    };
    soon("such a round", found).await
}

#[tokio::test]
async fn the_state_outlives_a_store_that_is_away() {
    let server = server();
    let owner = client_at(server.address()).await;
    let kept = take(&owner, "watched/kept", &patient()).await;
    let gone = take(&owner, "watched/gone", &patient()).await;
    let watcher = client(&hasty_url_of(server.address())).await;
    let pattern = NamePattern::new("watched/*").expect("a good pattern");
    let mut watch =
        StoreWatch::new(watcher, pattern, WatchOptions::default()).expect("Redis lists");
    let first = until(&mut watch, |round| round.failing.is_none()).await;
    assert_eq!(first.changes.len(), 2);

    server.stop();
    let down = until(&mut watch, |round| round.failing.is_some()).await;
    assert_eq!((down.changes.len(), watch.names().count()), (0, 2));
    server.cont();
    let up = until(&mut watch, |round| round.failing.is_none()).await;
    assert!(up.recovered_after.is_some());
    let _ = gone.release().await;
    let ended = |round: &Round| {
        round.changes.iter().any(|change| match &change.event {
            LockEvent::Ended { when, .. } => {
                assert_eq!(change.name.as_str(), "watched/gone");
                assert_eq!(*when, EndedWhen::BeforeLeaseEnd);
                true
            }
            _ => false,
        })
    };
    until(&mut watch, ended).await;
    let names: Vec<_> =
        watch.names().map(|seen| seen.snapshot().name.as_str().to_owned()).collect();
    assert_eq!(names, ["watched/kept"]);
    let _ = kept.release().await;
}
