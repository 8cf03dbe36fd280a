//! What the keeper does: renew in time and in batches, and report what holders must know.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdline::admin::Operation;
use holdline::clock::{Clock, ManualClock, Moment};
use holdline::memory::{MemoryEngine, MemoryOptions};
use holdline::observer::Subject;
use holdline::{
    Client, ClientOptions, ErrorKind, Keep, LockOptions, LostReason, Observer, Owner,
    ReleaseOutcome, RiskReason,
};
use holdline_core::RenewReply;

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, locked, look, name, options, pass, settle, soon};

const S: Duration = Duration::from_secs(1);

#[tokio::test]
async fn leases_are_renewed_in_batches_and_not_for_ever() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 1);
    let mut guards = Vec::new();
    for n in 0..300 {
        guards.push(client.mutex(format!("n{n}")).expect("good").lock().await.expect("free"));
    }
    pass(&clock, 35 * S).await;
    assert!(guards.iter().all(holdline::Guard::is_valid));
    let batches = faulty.line.batches.lock().clone();
    assert!(batches.iter().all(|size| *size <= 128), "{batches:?}");
    // Three rounds of 300 leases: far fewer calls than leases.
    assert!((900..1_500).contains(&batches.iter().sum::<usize>()), "{batches:?}");
    assert!(batches.len() < 200, "{} calls", batches.len());
    drop(guards);
    settle().await;
    let before = faulty.line.count(Call::Renew);
    pass(&clock, 60 * S).await;
    assert_eq!(faulty.line.count(Call::Renew), before, "released leases are not renewed");
}

#[tokio::test]
async fn ten_thousand_leases_are_kept_and_given_up() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 20);
    let mut guards = Vec::new();
    for n in 0..10_000 {
        guards.push(client.mutex(format!("n{n}")).expect("good").lock().await.expect("free"));
    }
    pass(&clock, 60 * S).await;
    assert!(guards.iter().all(holdline::Guard::is_valid));
    drop(guards);
    let report = client.shutdown(S).await;
    assert!(report.is_clean() && report.dropped_guards() == 10_000, "{report:?}");
}

#[tokio::test]
async fn a_slow_store_shortens_the_validity_and_costs_no_lease() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    faulty.slow(clock.clone(), 2 * S);
    let client = client(faulty, &clock, 21);
    let start = clock.now();
    let mutex = client.mutex("a").expect("good");
    let guard = drive(&clock, locked(mutex)).await.expect("free");
    assert_eq!(start.until(clock.now()), 4 * S, "two seconds each way");
    assert!(guard.valid_until() <= start.after(30 * S), "counted from before the request left");
    pass(&clock, 120 * S).await;
    assert!(guard.is_valid());
    let outcome = drive(&clock, async move { guard.release().await }).await;
    assert!(outcome.is_released());
}

#[tokio::test]
async fn a_lease_at_risk_recovers_with_the_next_renewal() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 2);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::Unavailable } else { Fate::Good });
    pass(&clock, 15 * S).await;
    assert!(faulty.line.count(Call::Renew) > 3, "a failed renewal is tried again");
    pass(&clock, 6 * S).await;
    let risk = guard.at_risk().await;
    assert!(matches!(risk, RiskReason::NotRenewed(Some(_))), "{risk:?}");
    assert!(risk.to_string().starts_with("not renewed: "), "{risk}");
    assert!(guard.is_valid());
    faulty.line.judge(|_, _| Fate::Good);
    pass(&clock, 3 * S).await;
    assert!(guard.remaining() > 25 * S);
    let calm = tokio::time::timeout(Duration::ZERO, guard.at_risk()).await;
    assert!(calm.is_err(), "no longer at risk");
    let _ = guard.release().await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_is_lost_before_the_store_frees_it() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 3);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let cancelled = guard.cancellation_token();
    // Nothing comes back any more, not even an error.
    faulty.line.judge(|_, _| Fate::RequestLost);
    let until = guard.valid_until();
    while clock.now() < until {
        assert!(guard.is_valid());
        pass(&clock, Duration::from_millis(100).min(clock.now().until(until))).await;
    }
    assert!(!guard.is_valid() && cancelled.is_cancelled());
    assert_eq!(look(&client, "a").await.holder_count, 1, "the store still keeps it");
    assert_eq!(guard.lost().await, LostReason::Expired);
    let error = guard.renew().await.expect_err("renewals never resurrect");
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    faulty.line.judge(|_, _| Fate::Good);
    assert!(!guard.is_valid());
    assert!(!guard.release().await.is_released());
    settle().await;
    assert_eq!(look(&client, "a").await.holder_count, 0, "what the store kept is given up");
}

#[tokio::test]
async fn a_release_after_a_pause_reports_what_ended_the_lease() {
    let (engine, clock) = engine();
    let client = Client::with_options(Arc::new(engine), options(&clock, 6)).expect("made");
    let fixed = LockOptions::default().with_keep(Keep::Fixed);
    for (options, why) in
        [(LockOptions::default(), LostReason::Expired), (fixed, LostReason::RanOut)]
    {
        let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
        // The process sleeps past its lease, and the release is the first that it does.
        clock.advance(31 * S);
        assert_eq!(guard.release().await, ReleaseOutcome::Lost { reason: why });
    }
}

#[tokio::test]
async fn a_late_answer_does_not_bring_a_lease_back() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let options = options(&clock, 4).with_answer_within(60 * S);
    let client = Client::with_options(Arc::new(faulty), options).expect("made");
    let options = LockOptions::default().with_keep(Keep::Fixed);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    pass(&clock, 20 * S).await;
    let renewing = guard.renew();
    let mut renewing = std::pin::pin!(renewing);
    // The store renews, and the process sleeps while the answer is on the way.
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(renewing.as_mut().poll(&mut context).is_pending());
    assert!(renewing.as_mut().poll(&mut context).is_pending());
    clock.advance(11 * S);
    let error = renewing.await.expect_err("too late");
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    assert!(!guard.is_valid() && guard.valid_until() <= Moment::ORIGIN.after(30 * S));
}

#[tokio::test]
async fn a_deleted_lease_and_a_flushed_store_are_noticed_at_the_next_renewal() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 5);
    let one = client.mutex("one").expect("good").lock().await.expect("free");
    let two = client.mutex("two").expect("good").lock().await.expect("free");
    let outcome = client.leases().release_by_id(&name("one"), one.lease_id()).await;
    assert!(outcome.expect("known").is_released());
    pass(&clock, 10 * S).await;
    assert_eq!(one.lost().await, LostReason::Missing);
    assert!(two.is_valid());
    faulty.flush(MemoryEngine::new("t", Arc::new(clock.clone()), &MemoryOptions::default()));
    pass(&clock, 10 * S).await;
    assert_eq!(two.lost().await, LostReason::Missing);
    let outcome = two.release().await;
    assert_eq!(outcome, holdline::ReleaseOutcome::Lost { reason: LostReason::Missing });
}

#[tokio::test]
async fn a_polite_revoke_is_noticed_at_once_and_leaves_the_remaining_time() {
    for keep in [Keep::Renewed, Keep::Fixed] {
        revoke_politely(keep).await;
    }
}

async fn revoke_politely(keep: Keep) {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 6);
    let options = LockOptions::default().with_keep(keep);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    let cancelled = guard.cancellation_token();
    // Long enough that the keeper watches it.
    pass(&clock, 2 * S).await;
    let until = guard.valid_until();
    let revoke = Operation::Revoke {
        name: name("a"),
        token: guard.fencing_token(),
        reason: "maintenance".into(),
        now: false,
    };
    client.admin().operate(&revoke).await.expect("revoked");
    settle().await;
    assert!(cancelled.is_cancelled() && guard.is_valid());
    assert!(guard.valid_until() <= until, "a hint never extends");
    let risk = guard.at_risk().await;
    assert!(matches!(&risk, RiskReason::Revoked(reason) if reason == "maintenance"), "{risk:?}");
    assert_eq!(risk.to_string(), "revoked by an operator: maintenance");
    pass(&clock, 31 * S).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, LostReason::Revoked("maintenance".into()));
}

#[tokio::test]
async fn a_forced_revoke_is_noticed_by_the_watch() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 7);
    for keep in [Keep::Renewed, Keep::Fixed] {
        let options = LockOptions::default().with_keep(keep);
        let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
        pass(&clock, 2 * S).await;
        let (token, reason) = (guard.fencing_token(), "gone".to_owned());
        let revoke = Operation::Revoke { name: name("a"), token, reason, now: true };
        client.admin().operate(&revoke).await.expect("done");
        settle().await;
        assert!(!guard.is_valid(), "{keep:?}");
        assert_eq!(guard.lost().await, LostReason::Revoked("gone".into()));
        assert!(!guard.release().await.is_released());
    }
}

#[tokio::test]
async fn a_hint_for_nothing_extends_no_fixed_lease() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    faulty.line.nagging.store(true, Ordering::Relaxed);
    let client = client(faulty.clone(), &clock, 22);
    let options = LockOptions::default().with_keep(Keep::Fixed);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    let until = guard.valid_until();
    pass(&clock, 3 * S).await;
    assert!(faulty.line.count(Call::Beat) > 0, "the hint was followed by a look");
    assert_eq!(guard.valid_until(), until);
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_leaked_guard_is_renewed_until_its_longest_hold() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 8);
    let options = LockOptions::default().with_max_hold(100 * S);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    let held = guard.held();
    std::mem::forget(guard);
    pass(&clock, 95 * S).await;
    assert!(held.is_valid());
    pass(&clock, 6 * S).await;
    assert!(!held.is_valid());
    assert_eq!(held.lost().await, LostReason::MaxHold);
    pass(&clock, 30 * S).await;
    assert_eq!(look(&client, "a").await.holder_count, 0);
}

#[tokio::test]
async fn a_loss_at_max_hold_has_that_reason() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 13);
    let options = LockOptions::default().with_max_hold(40 * S);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    pass(&clock, 41 * S).await;
    let error = guard.renew().await.expect_err("over");
    assert!(error.to_string().contains("held for as long as max_hold allows"), "{error}");
    assert_eq!(guard.release().await, ReleaseOutcome::Lost { reason: LostReason::MaxHold });
}

#[tokio::test]
async fn a_fixed_lease_that_ends_has_expired_and_not_failed_to_renew() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 14);
    for keep in [Keep::Fixed, Keep::Detached] {
        let options = LockOptions::default().with_lease_duration(20 * S).with_keep(keep);
        let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
        pass(&clock, 21 * S).await;
        assert!(!guard.is_valid());
        assert_eq!(guard.lost().await, LostReason::RanOut, "{keep:?}");
        let error = guard.renew().await.expect_err("over");
        assert!(error.to_string().contains("its fixed lease has ended"), "{error}");
        assert_eq!(guard.release().await, ReleaseOutcome::Lost { reason: LostReason::RanOut });
    }
}

#[tokio::test]
async fn near_the_longest_hold_renewals_keep_their_pace() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 12);
    let options = LockOptions::default().with_max_hold(40 * S);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    pass(&clock, 15 * S).await;
    let before = faulty.line.count(Call::Renew);
    for _ in 0..240 {
        pass(&clock, S / 10).await;
    }
    assert!(guard.is_valid());
    let renewals = faulty.line.count(Call::Renew) - before;
    assert!(renewals <= 3, "{renewals} in 24 s, and a third of the lease is 10 s");
}

#[tokio::test]
async fn long_leases_are_reached_by_the_first_renewal() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 9);
    let long = LockOptions::default().with_lease_duration(600 * S);
    let kept = client.mutex_with("kept", &long).expect("fits").lock().await.expect("free");
    assert!(kept.remaining() <= 30 * S, "no grant starts longer than 30 s");
    pass(&clock, S / 5).await;
    assert!(kept.remaining() > 590 * S, "{:?}", kept.remaining());
    // The watch begins with a question, too.
    pass(&clock, 2 * S).await;
    let before = faulty.line.count(Call::Renew);
    pass(&clock, 98 * S).await;
    assert_eq!(faulty.line.count(Call::Renew), before, "the next one comes after a third");
    let fixed = long.with_keep(Keep::Fixed);
    let fixed = client.mutex_with("fixed", &fixed).expect("fits").lock().await.expect("free");
    assert!(fixed.remaining() <= 30 * S, "the guard is there before the whole lease");
    pass(&clock, S / 5).await;
    assert!(fixed.remaining() > 590 * S, "{:?}", fixed.remaining());
    pass(&clock, 300 * S).await;
    assert!(fixed.is_valid() && kept.is_valid());
}

#[tokio::test]
async fn a_renewal_for_longer_counts_for_all_later_ones() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 13);
    let fixed = LockOptions::default().with_keep(Keep::Fixed);
    let fixed = client.mutex_with("fixed", &fixed).expect("fits").lock().await.expect("free");
    let kept = client.mutex("kept").expect("good").lock().await.expect("free");
    for guard in [&fixed, &kept] {
        let left = guard.renew_for(600 * S).await.expect("confirmed");
        assert!(left > 590 * S && guard.remaining() == left, "{left:?}");
        let left = guard.renew_for(S).await.expect("confirmed");
        assert!(left > 590 * S, "a lease is never shortened: {left:?}");
    }
    pass(&clock, 300 * S).await;
    assert!(kept.remaining() > 580 * S, "the keeper renews for as long: {:?}", kept.remaining());
    assert!(fixed.remaining() < 300 * S, "nobody renews it: {:?}", fixed.remaining());
    assert!(fixed.renew().await.expect("confirmed") > 590 * S);
    // Nothing is renewed any more: the loss comes when the longer lease ends, and not before.
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::Unavailable } else { Fate::Good });
    pass(&clock, 500 * S).await;
    assert!(kept.is_valid());
    pass(&clock, 100 * S).await;
    assert_eq!(kept.lost().await, LostReason::Expired);
    assert_eq!(fixed.lost().await, LostReason::RanOut);
    let next = client.mutex("kept").expect("good").try_lock().await;
    drop(next.expect("the store has freed it too"));
}

#[tokio::test]
async fn a_renewal_for_longer_without_an_answer_proves_nothing_and_leaves_nothing() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 14);
    let fixed = LockOptions::default().with_keep(Keep::Fixed);
    let guard = client.mutex_with("a", &fixed).expect("fits").lock().await.expect("free");
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::ReplyUnknown } else { Fate::Good });
    let error = guard.renew_for(600 * S).await.expect_err("nobody knows");
    assert_eq!(error.certainty(), holdline::Certainty::Unknown, "{error}");
    assert!(guard.remaining() <= 30 * S, "the store may have it, and has not said so");
    // The store keeps the name for ten minutes, and is away for longer than the first lease.
    faulty.line.judge(|_, _| Fate::Unavailable);
    let outcome = drive(&clock, async move { guard.release().await }).await;
    assert!(!outcome.is_released(), "{outcome:?}");
    pass(&clock, 120 * S).await;
    faulty.line.judge(|_, _| Fate::Good);
    assert_eq!(look(&client, "a").await.holder_count, 1);
    pass(&clock, 2 * S).await;
    assert_eq!(look(&client, "a").await.holder_count, 0, "the janitor still asks");
}

#[tokio::test]
async fn a_lease_that_was_lengthened_is_detached_with_its_new_duration() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 15);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    guard.renew_for(600 * S).await.expect("confirmed");
    let lease = guard.detach().await.expect("detached");
    assert_eq!(lease.lease_duration(), 600 * S);
    let guard = client.leases().attach(&lease).await.expect("it is there");
    assert!(guard.remaining() > 590 * S);
}

#[tokio::test]
async fn a_renewal_for_a_duration_that_no_lease_has_is_refused_unsent() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner).with_capabilities(|can| can.lease.max = 60 * S);
    let line = faulty.line.clone();
    let client = Client::with_options(Arc::new(faulty), options(&clock, 16)).expect("made");
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    for duration in [Duration::ZERO, 61 * S, Duration::MAX] {
        let error = guard.renew_for(duration).await.expect_err("no such lease");
        let field = "lease_duration";
        let is_named = matches!(error.kind(), ErrorKind::Invalid { field: f, .. } if *f == field);
        assert!(is_named && error.name().is_some(), "{duration:?}: {error}");
    }
    assert_eq!(line.count(Call::Renew), 0);
    assert!(guard.renew_for(60 * S).await.expect("it fits") > 50 * S);
}

#[tokio::test]
async fn a_long_fixed_lease_that_cannot_be_reached_leaves_nothing() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 10);
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::ReplyUnknown } else { Fate::Good });
    let options = LockOptions::default().with_lease_duration(600 * S).with_keep(Keep::Fixed);
    let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    pass(&clock, 20 * S).await;
    assert!(matches!(guard.at_risk().await, RiskReason::NotRenewed(Some(_))));
    pass(&clock, 11 * S).await;
    assert!(!guard.is_valid(), "the store has never confirmed more than 30 s");
    assert_eq!(guard.release().await, ReleaseOutcome::Lost { reason: LostReason::Expired });
    settle().await;
    assert_eq!(look(&client, "a").await.holder_count, 0);
}

#[tokio::test]
async fn an_engine_that_hangs_blocks_nobody() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 11);
    let held = client.mutex("held").expect("good").lock().await.expect("free");
    faulty.line.judge(|_, _| Fate::RequestLost);
    let start = clock.now();
    let options = LockOptions::default().with_fail_in_outage(true);
    let mutex = client.mutex_with("a", &options).expect("good");
    let error = drive(&clock, locked(mutex.clone())).await.expect_err("no answer");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), holdline::Certainty::Unknown);
    assert!(start.until(clock.now()) < 60 * S);
    let trying = async move { mutex.try_lock().await };
    assert!(drive(&clock, trying).await.is_err());
    let released = drive(&clock, async move { held.release().await }).await;
    assert!(!matches!(released, holdline::ReleaseOutcome::Released { confirmed: true, .. }));
    let shut = client.clone();
    let report = drive(&clock, async move { shut.shutdown(Duration::from_secs(5)).await }).await;
    assert!(report.left() > 0 && !report.is_clean(), "{report:?}");
    // The line heals: what was given up meanwhile is given up now.
    faulty.line.judge(|_, _| Fate::Good);
    let shut = client.clone();
    let report = drive(&clock, async move { shut.shutdown(Duration::from_secs(60)).await }).await;
    assert_eq!(report.left(), 0);
}

#[tokio::test]
async fn options_that_do_not_fit_are_refused_when_the_lock_is_built() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner).with_capabilities(|can| {
        can.shared = false;
        can.permits = false;
        can.detach = false;
        can.lease.max = 60 * S;
    });
    let client = Client::with_options(Arc::new(faulty), options(&clock, 12)).expect("made");
    let unsupported = |error: holdline::LockError| {
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    };
    unsupported(client.rwlock("a").expect_err("no shared mode"));
    unsupported(client.semaphore("a", 3).expect_err("no permits"));
    let with = |change: fn(LockOptions) -> LockOptions| {
        client.mutex_with("a", &change(LockOptions::default()))
    };
    unsupported(with(|o| o.with_keep(Keep::Live)).expect_err("no live grants"));
    unsupported(with(|o| o.with_keep(Keep::Detached)).expect_err("no detached leases"));
    type Change = fn(LockOptions) -> LockOptions;
    let cases: [(&str, Change); 7] = [
        ("lease_duration", |o| o.with_lease_duration(61 * S)),
        ("lease_duration", |o| o.with_lease_duration(Duration::ZERO)),
        ("lease_duration", |o| o.with_lease_duration(Duration::MAX)),
        ("renew_interval", |o| o.with_renew_interval(20 * S)),
        ("renew_interval", |o| o.with_keep(Keep::Fixed).with_renew_interval(S)),
        ("max_hold", |o| o.with_max_hold(Duration::ZERO)),
        ("metadata", |o| o.with_reason("x".repeat(2_000))),
    ];
    for (field, change) in cases {
        let error = with(change).expect_err(field);
        assert!(
            matches!(error.kind(), ErrorKind::Invalid { field: f, .. } if *f == field),
            "{error}"
        );
    }
    for bad in ["", "a\nb", &"x".repeat(513)] {
        let error = client.mutex(bad).expect_err("no lock name");
        assert!(matches!(error.kind(), ErrorKind::Invalid { field: "name", .. }), "{error}");
    }
}

/// A client whose background work was dropped, so that nothing is renewed and no loss recorded.
fn client_without_a_worker(clock: &ManualClock) -> Client {
    let options = options(clock, 1).with_spawner(drop);
    let engine = MemoryEngine::new("gone", Arc::new(clock.clone()), &MemoryOptions::default());
    Client::with_options(Arc::new(engine), options).expect("made")
}

#[tokio::test]
async fn a_loss_is_reported_without_a_worker() {
    let clock = ManualClock::new();
    let client = client_without_a_worker(&clock);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let cancelled = guard.cancellation_token();
    let held = guard.held();
    let at_risk = tokio::spawn(async move { held.at_risk().await });
    let held = guard.held();
    let lost = tokio::spawn(async move { held.lost().await });
    settle().await;
    clock.advance(25 * S);
    assert!(matches!(soon(at_risk).await.expect("ends"), RiskReason::NotRenewed(None)));
    assert!(!lost.is_finished() && !cancelled.is_cancelled());
    // A renewal by the caller puts the end off.
    let clock = clock.clone();
    guard.renew().await.expect("still there");
    clock.advance(25 * S);
    settle().await;
    assert!(!lost.is_finished() && !cancelled.is_cancelled());
    clock.advance(5 * S);
    assert!(cancelled.is_cancelled(), "by the timer, at once");
    assert_eq!(soon(lost).await.expect("ends"), LostReason::Expired);
    assert_eq!(soon(guard.lost()).await, LostReason::Expired);
    assert!(matches!(soon(guard.at_risk()).await, RiskReason::Lost(LostReason::Expired)));
    let outcome = guard.release().await;
    assert!(matches!(outcome, ReleaseOutcome::Lost { reason: LostReason::Expired }), "{outcome:?}");
}

#[tokio::test]
async fn a_body_is_dropped_at_the_end_of_the_lease_without_a_worker() {
    let clock = ManualClock::new();
    let client = client_without_a_worker(&clock);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let held = guard.held();
    let body = tokio::spawn(async move {
        let outcome = guard.run(std::future::pending::<()>()).await;
        (outcome, guard)
    });
    settle().await;
    clock.advance(30 * S);
    let (outcome, _guard) = soon(body).await.expect("ends");
    assert!(matches!(outcome.expect_err("lost").kind(), ErrorKind::Lost { .. }));
    assert!(!held.is_valid());
}

#[tokio::test]
async fn a_body_that_outlasts_its_lease_within_one_poll_is_lost() {
    let clock = ManualClock::new();
    let client = client_without_a_worker(&clock);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let outcome = guard.run(async { clock.advance(40 * S) }).await;
    assert!(matches!(outcome.expect_err("lost").kind(), ErrorKind::Lost { .. }));
}

#[test]
fn a_loss_is_reported_on_another_runtime_while_that_of_the_client_is_blocked() {
    let (send_guard, guard) = std::sync::mpsc::channel();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let home = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let options = ClientOptions::default().with_lease_duration(S / 2);
            let client = Client::connect_with("memory:blocked", options).await.expect("made");
            let guard = client.mutex("a").expect("good").lock().await.expect("free");
            send_guard.send(guard).expect("received");
            // It blocks the thread on which the worker would run.
            blocked.recv().expect("sent");
        });
    });
    let guard = guard.recv().expect("sent");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let reason = runtime.block_on(soon(guard.lost()));
    assert_eq!(reason, LostReason::Expired);
    unblock.send(()).expect("received");
    home.join().expect("ends");
}

/// An observer that blocks the worker at the first renewal, until the test has ended.
struct Blocking(std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

impl Observer for Blocking {
    fn renewed(&self, _: Subject<'_>, _: Duration) {
        let blocked = self.0.lock().expect("one worker");
        let _ = blocked.recv();
    }
}

#[test]
fn a_loss_is_reported_to_a_thread_while_an_observer_blocks_the_worker() {
    let (unblock, blocked) = std::sync::mpsc::channel();
    let observer = Arc::new(Blocking(std::sync::Mutex::new(blocked)));
    let options = ClientOptions::default().with_lease_duration(S / 2).with_observer(observer);
    let client = holdline::blocking::Client::connect_with("memory:stuck", options).expect("made");
    let guard = client.mutex("a").expect("good").lock().expect("free");
    assert!(matches!(guard.wait_at_risk(), RiskReason::NotRenewed(_)));
    assert_eq!(guard.wait_lost(), LostReason::Expired);
    drop(unblock);
}

#[tokio::test]
async fn a_guard_of_an_owner_reports_a_loss_at_its_release() {
    let clock = ManualClock::new();
    let client = client_without_a_worker(&clock);
    let mutex = client.mutex("a").expect("good");
    let owner = Owner::new();
    let outer = mutex.lock_as(&owner).await.expect("free");
    let inner = mutex.lock_as(&owner).await.expect("ours");
    clock.advance(30 * S);
    let joined = mutex.lock_as(&owner).await.expect_err("lost");
    assert!(matches!(joined.kind(), ErrorKind::Lost { .. }), "{joined}");
    for guard in [inner, outer] {
        let outcome = guard.release().await;
        assert!(outcome.is_lost(), "{outcome:?}");
    }
}

#[tokio::test]
async fn a_lease_that_is_near_its_end_does_not_fail_the_renewal_of_others() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 4);
    let lock = async |name: &str, lease: Duration| {
        let options =
            LockOptions::default().with_lease_duration(lease).with_renew_interval(5 * S / 2);
        client.mutex_with(name, &options).expect("fits").lock().await.expect("free")
    };
    let short = lock("short", 8 * S).await;
    let long = lock("long", 30 * S).await;
    let until = long.valid_until();
    // The reply to a renewal comes after 4 s: too late for the short lease only.
    faulty.slow(clock.clone(), 2 * S);
    pass(&clock, 7 * S).await;
    assert!(long.valid_until() > until, "it was renewed once");
    pass(&clock, S).await;
    assert!(!short.is_valid() && long.is_valid());
}

#[tokio::test]
async fn a_lease_that_ran_out_during_a_pause_is_not_missing() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 5);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    faulty.slow(clock.clone(), S);
    *faulty.line.nonsense.lock() = Some(RenewReply::Unknown);
    while faulty.line.count(Call::Renew) == 0 {
        pass(&clock, S / 10).await;
    }
    // The reply is on its way when the process pauses.
    pass(&clock, 3 * S / 2).await;
    let watching = guard.held();
    let lost = tokio::spawn(async move { watching.lost().await });
    clock.advance(60 * S);
    settle().await;
    pass(&clock, 2 * S).await;
    assert_eq!(soon(lost).await.expect("ends"), LostReason::Expired);
    assert_eq!(guard.release().await, ReleaseOutcome::Lost { reason: LostReason::Expired });
}
