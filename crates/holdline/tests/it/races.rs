//! Things that happen at the same time, or in the moment between two others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline::{
    Client, Clock, ErrorKind, Guard, Keep, LockOptions, LostReason, Observer, Operation,
    RiskReason, Subject,
};
use holdline_core::RenewReply;

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, look, name, options, pass, settle};

const S: Duration = Duration::from_secs(1);

async fn revoke(client: &Client, guard: &Guard, now: bool) {
    let (name, token) = (guard.name().clone(), guard.fencing_token());
    let revoke = Operation::Revoke { name, token, reason: "maintenance".into(), now };
    client.operate(&revoke).await.expect("told");
}

#[tokio::test]
async fn a_guard_that_could_not_be_detached_is_kept_on() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 1);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    pass(&clock, 5 * S).await;
    // The request that detaches goes unanswered, and a renewal would be due meanwhile.
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::RequestLost } else { Fate::Good });
    let detaching = tokio::spawn(guard.detach());
    pass(&clock, 11 * S).await;
    let error = detaching.await.expect("no panic").expect_err("no answer");
    assert!(matches!(error.error().kind(), ErrorKind::Unavailable { .. }), "{error}");
    faulty.line.judge(|_, _| Fate::Good);
    let guard = error.into_guard();
    pass(&clock, 60 * S).await;
    assert!(guard.is_valid(), "it is renewed as before");
}

#[tokio::test]
async fn a_look_that_hangs_costs_no_other_lease_of_its_batch() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    faulty.line.nagging.store(true, Ordering::Relaxed);
    faulty.line.mute.store(true, Ordering::Relaxed);
    let client = client(faulty.clone(), &clock, 2);
    let short = LockOptions::default().with_lease_duration(6 * S);
    let fixed = LockOptions::default().with_lease_duration(20 * S).with_keep(Keep::Fixed);
    // Both are looked at after a second, in one batch, and only one can be answered by that.
    let fixed = client.mutex_with("fixed", &fixed).expect("fits").lock().await.expect("free");
    let kept = client.mutex_with("kept", &short).expect("fits").lock().await.expect("free");
    pass(&clock, 8 * S).await;
    assert!(faulty.line.batches.lock().contains(&2), "{:?}", faulty.line.batches.lock());
    assert!(kept.is_valid() && fixed.is_valid());
}

#[tokio::test]
async fn a_revoke_before_the_watch_is_told_when_the_watch_begins() {
    for keep in [Keep::Renewed, Keep::Fixed] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        // The watch tells nothing of what was before it, nor anything else.
        faulty.line.deaf.store(true, Ordering::Relaxed);
        let client = client(faulty, &clock, 3);
        let options = LockOptions::default().with_keep(keep);
        let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
        revoke(&client, &guard, false).await;
        pass(&clock, 2 * S).await;
        assert!(guard.cancellation_token().is_cancelled(), "{keep:?}");
        let risk = guard.at_risk().await;
        assert!(matches!(&risk, RiskReason::Revoked(told) if told == "maintenance"), "{risk:?}");
        assert!(guard.is_valid(), "it keeps the time that is left");
    }
}

#[tokio::test]
async fn a_hint_that_meets_a_renewal_under_way_is_followed_by_another() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 4);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    pass(&clock, 3 * S).await;
    let looks = faulty.line.count(Call::Renew);
    faulty.slow(clock.clone(), S);
    while faulty.line.count(Call::Renew) == looks {
        pass(&clock, S / 10).await;
    }
    // The store has renewed it, and the answer is on the way.
    pass(&clock, S + S / 2).await;
    revoke(&client, &guard, false).await;
    pass(&clock, 4 * S).await;
    assert!(guard.cancellation_token().is_cancelled());
}

#[tokio::test]
async fn what_was_revoked_and_then_ran_out_is_given_up_in_the_store() {
    for dropped in [false, true] {
        let (engine, clock) = engine();
        let client = client(engine, &clock, 5);
        let options = LockOptions::default().with_lease_duration(3_600 * S);
        let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
        pass(&clock, 2 * S).await;
        revoke(&client, &guard, false).await;
        settle().await;
        // The drift of the clocks is taken off: the store would keep it for half a minute yet.
        pass(&clock, guard.remaining()).await;
        assert_eq!(guard.lost().await, LostReason::Revoked("maintenance".into()));
        assert_eq!(look(&client, "a").await.holder_count, 1);
        if dropped {
            drop(guard);
        } else {
            assert!(!guard.release().await.is_released());
        }
        settle().await;
        assert_eq!(look(&client, "a").await.holder_count, 0, "dropped: {dropped}");
    }
}

#[tokio::test]
async fn a_renewal_that_is_answered_with_nonsense_is_an_error_at_once() {
    for keep in [Keep::Renewed, Keep::Fixed] {
        for nonsense in [
            RenewReply::Queued { position: None, next_look: S },
            RenewReply::Handed { claim_within: None },
        ] {
            let (inner, clock) = engine();
            let faulty = Faulty::new(inner);
            let client = client(faulty.clone(), &clock, 6);
            let options = LockOptions::default().with_keep(keep);
            let mutex = client.mutex_with("a", &options).expect("fits");
            let guard = mutex.lock().await.expect("free");
            let start = clock.now();
            *faulty.line.nonsense.lock() = Some(nonsense);
            let error = drive(&clock, async move { guard.renew().await }).await;
            let error = error.expect_err("no renewal");
            assert!(matches!(error.kind(), ErrorKind::Protocol { .. }), "{error}");
            assert!(start.until(clock.now()) < S, "it waits for nothing");
        }
    }
}

#[tokio::test]
async fn a_lease_of_another_store_is_neither_renewed_nor_released() {
    let (engine, clock) = engine();
    let here = client(engine, &clock, 7);
    let elsewhere = Client::connect("memory:races-elsewhere").await.expect("made");
    let guard = here.mutex("a").expect("good").lock().await.expect("free");
    let lease = guard.detach().await.expect("memory can");
    let invalid = |error: holdline::LockError| {
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "lease", .. }), "{error}");
        assert_eq!(error.name().map(|name| name.as_str()), Some("a"));
    };
    invalid(elsewhere.attach(&lease).await.expect_err("another store"));
    invalid(elsewhere.renew(&lease).await.expect_err("another store"));
    invalid(elsewhere.release(&lease).await.expect_err("another store"));
    assert!(here.release(&lease).await.expect("its own").is_released());
}

#[tokio::test]
async fn a_longest_hold_that_comes_near_is_no_failure_to_renew() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 8);
    let options = LockOptions::default().with_max_hold(40 * S);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    pass(&clock, 35 * S).await;
    let risk = guard.at_risk().await;
    assert!(matches!(risk, RiskReason::RunsOut), "{risk:?}");
}

#[derive(Default)]
struct AlwaysPanics(AtomicUsize);

impl AlwaysPanics {
    fn panic(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose");
    }
}

impl Observer for AlwaysPanics {
    fn acquired(&self, _: Subject<'_>, _: holdline::FencingToken, _: Duration) {
        self.panic();
    }

    fn renewed(&self, _: Subject<'_>, _: Duration) {
        self.panic();
    }

    fn lost(&self, _: Subject<'_>, _: &LostReason) {
        self.panic();
    }

    fn dropped(&self, _: Subject<'_>, _: bool) {
        self.panic();
    }

    fn released(&self, _: Subject<'_>, _: &holdline::ReleaseOutcome) {
        self.panic();
    }
}

#[tokio::test]
async fn an_observer_that_always_panics_costs_nothing() {
    let (engine, clock) = engine();
    let observer = Arc::new(AlwaysPanics::default());
    let options = options(&clock, 9).with_observer(observer.clone());
    let client = Client::with_options(Arc::new(engine), options).expect("made");
    let mutex = client.mutex("a").expect("good");
    let guard = mutex.lock().await.expect("free");
    pass(&clock, 300 * S).await;
    assert!(observer.0.load(Ordering::Relaxed) > 20);
    assert!(guard.is_valid(), "it is renewed after the twentieth panic");
    assert!(guard.release().await.is_released());
    drop(mutex.lock().await.expect("free"));
    settle().await;
    assert!(client.shutdown(S).await.is_clean());
    assert_eq!(look(&client, name("a").as_str()).await.holder_count, 0);
}
