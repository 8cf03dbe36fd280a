//! Things that happen at the same time, or in the moment between two others.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdline::admin::Operation;
use holdline::clock::Clock;
use holdline::memory::{MemoryEngine, MemoryOptions};
use holdline::observer::Subject;
use holdline::{Client, ErrorKind, Guard, Keep, LockOptions, LostReason, Observer, RiskReason};
use holdline_core::RenewReply;

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, locked, look, name, options, pass, settle};

const S: Duration = Duration::from_secs(1);

async fn revoke(client: &Client, guard: &Guard, now: bool) {
    let (name, token) = (guard.name().clone(), guard.fencing_token());
    let revoke = Operation::Revoke { name, token, reason: "maintenance".into(), now };
    client.admin().operate(&revoke).await.expect("revoked");
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
    let short = LockOptions::default().with_lease_duration(12 * S);
    let fixed = LockOptions::default().with_lease_duration(20 * S).with_keep(Keep::Fixed);
    // Both are looked at after a second, in one batch, and only one can be answered by that.
    let fixed = client.mutex_with("fixed", &fixed).expect("fits").lock().await.expect("free");
    let kept = client.mutex_with("kept", &short).expect("fits").lock().await.expect("free");
    pass(&clock, 14 * S).await;
    assert!(faulty.line.batches.lock().contains(&2), "{:?}", faulty.line.batches.lock());
    assert!(kept.is_valid() && fixed.is_valid());
}

#[tokio::test]
async fn a_revoke_before_the_watch_is_noticed_when_the_watch_opens() {
    for keep in [Keep::Renewed, Keep::Fixed] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        // The watch reports nothing: neither what was before it, nor anything else.
        faulty.line.deaf.store(true, Ordering::Relaxed);
        let client = client(faulty, &clock, 3);
        let options = LockOptions::default().with_keep(keep);
        let guard = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
        revoke(&client, &guard, false).await;
        pass(&clock, 2 * S).await;
        assert!(guard.cancellation_token().is_cancelled(), "{keep:?}");
        let risk = guard.at_risk().await;
        assert!(
            matches!(&risk, RiskReason::Revoked(reason) if reason == "maintenance"),
            "{risk:?}"
        );
        assert!(guard.is_valid(), "it keeps the time that is left");
    }
}

#[tokio::test]
async fn a_hint_that_meets_a_renewal_under_way_is_followed_by_another() {
    let (inner, clock) = engine();
    let operator = client(inner.clone(), &clock, 40);
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
    revoke(&operator, &guard, false).await;
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
async fn a_renewal_with_an_unexpected_reply_is_an_error_at_once() {
    for keep in [Keep::Renewed, Keep::Fixed] {
        for nonsense in
            [RenewReply::Queued { position: None, next_look: S }, RenewReply::Held { left: None }]
        {
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
    invalid(elsewhere.leases().attach(&lease).await.expect_err("another store"));
    invalid(elsewhere.leases().renew(&lease).await.expect_err("another store"));
    invalid(elsewhere.leases().release(&lease).await.expect_err("another store"));
    assert!(here.leases().release(&lease).await.expect("its own").is_released());
}

#[tokio::test]
async fn a_max_hold_that_comes_near_is_no_failure_to_renew() {
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

#[tokio::test]
async fn a_revoke_that_shortens_a_lease_shortens_its_validity() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 10);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let revoked = RenewReply::Revoked { reason: "soon".into(), left: Some(2 * S) };
    *faulty.line.nonsense.lock() = Some(revoked);
    assert!(guard.renew().await.is_err());
    assert!(guard.is_valid() && guard.remaining() <= 2 * S, "{:?}", guard.remaining());
}

#[tokio::test]
async fn a_body_is_not_polled_after_its_lease_before_the_loss_is_recorded() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 11);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let polls = AtomicUsize::new(0);
    let mut run = std::pin::pin!(guard.run(std::future::poll_fn(|_| {
        polls.fetch_add(1, Ordering::Relaxed);
        std::task::Poll::<()>::Pending
    })));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(run.as_mut().poll(&mut context).is_pending());
    // The process was paused: body and keeper wake at the same time, the body first.
    clock.advance(31 * S);
    let std::task::Poll::Ready(Err(error)) = run.as_mut().poll(&mut context) else {
        panic!("the body goes on");
    };
    assert!(matches!(error.kind(), ErrorKind::Lost { reason: LostReason::Expired }), "{error}");
    assert_eq!(polls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn an_id_of_which_one_request_is_late_is_given_up_for_good() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 12);
    let held = client.mutex("a").expect("good").lock().await.expect("free");
    // The first request gets stuck; the same is asked again, queues, and waits in vain.
    faulty.line.judge(|call, n| match (call, n) {
        (Call::Acquire, 1) => Fate::Late,
        _ => Fate::Good,
    });
    let options = LockOptions::default().with_wait(20 * S);
    let mutex = client.mutex_with("a", &options).expect("fits");
    let error = drive(&clock, locked(mutex)).await.expect_err("held throughout");
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    let outcome = drive(&clock, async move { held.release().await }).await;
    assert!(outcome.is_released());
    assert_eq!(faulty.deliver().len(), 1);
    let seen = look(&client, "a").await;
    assert_eq!((seen.holder_count, seen.queue_length), (0, 0), "it comes to nothing");
}

#[tokio::test]
async fn what_was_lost_while_the_last_name_was_waited_for_makes_the_whole_fail() {
    let (inner, clock) = engine();
    let other = client(inner.clone(), &clock, 13);
    let in_the_way = other.mutex("b").expect("good").lock().await.expect("free");
    let faulty = Faulty::new(inner);
    faulty.line.judge(|call, _| if call == Call::Renew { Fate::RequestLost } else { Fate::Good });
    let client = client(faulty, &clock, 14);
    let options = LockOptions::default().with_lease_duration(3 * S);
    let both = client.clone();
    let both = tokio::spawn(async move { both.lock_all_with(["a", "b"], &options).await });
    pass(&clock, 5 * S).await;
    let _ = in_the_way.release().await;
    let error = drive(&clock, both).await.expect("no panic").expect_err("one was lost");
    assert!(matches!(error.kind(), ErrorKind::Lost { reason: LostReason::Expired }), "{error}");
    assert_eq!(error.name().map(|name| name.as_str()), Some("a"));
    pass(&clock, S).await;
    assert_eq!(look(&other, "b").await.holder_count, 0, "none of them is held");
}

#[tokio::test]
async fn a_grant_whose_answer_took_longer_than_its_lease_is_no_guard() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    faulty.slow(clock.clone(), 20 * S);
    let options = options(&clock, 15).with_answer_within(60 * S);
    let client = Client::with_options(Arc::new(faulty), options).expect("made");
    let mutex = client.mutex("a").expect("good");
    let error = drive(&clock, locked(mutex)).await.expect_err("it had run out");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(error.certainty(), holdline::Certainty::Unknown);
}

#[tokio::test]
async fn a_lease_is_given_out_behind_the_renewal_that_is_under_way() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 16);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    pass(&clock, 3 * S).await;
    faulty.slow(clock.clone(), S);
    let looks = faulty.line.count(Call::Renew);
    while faulty.line.count(Call::Renew) == looks {
        pass(&clock, S / 10).await;
    }
    let detaching = tokio::spawn(guard.detach());
    pass(&clock, S).await;
    assert_eq!(faulty.line.count(Call::Renew), looks + 1, "one that came later would undo it");
    drive(&clock, detaching).await.expect("no panic").expect("detached");
    assert!(look(&client, "a").await.holders[0].detached);
}

#[tokio::test]
async fn a_lease_id_of_the_caller_is_exchanged_for_no_other() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 17);
    let _held = client.mutex("a").expect("good").lock().await.expect("free");
    let options = LockOptions::default().with_lease_id(client.leases().draw_id());
    let waiting = locked(client.mutex_with("a", &options).expect("fits"));
    let waiting = tokio::spawn(waiting);
    pass(&clock, S).await;
    // The store forgets everything, the place in the queue too.
    let fresh = MemoryEngine::new("t", Arc::new(clock.clone()), &MemoryOptions::default());
    faulty.flush(fresh);
    let error = drive(&clock, waiting).await.expect("no panic").expect_err("the id is spent");
    assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error}");
}

#[tokio::test]
async fn a_watch_that_ended_is_opened_again() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 18);
    faulty.line.ending.store(true, Ordering::Relaxed);
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    let waiting = tokio::spawn(locked(client.mutex("a").expect("good")));
    pass(&clock, 3 * S).await;
    faulty.line.ending.store(false, Ordering::Relaxed);
    // A heartbeat for the waiter, an interval for the holder.
    pass(&clock, 12 * S).await;
    revoke(&client, &guard, false).await;
    settle().await;
    assert!(guard.cancellation_token().is_cancelled(), "notified at once");
    let _ = guard.release().await;
    settle().await;
    assert!(waiting.is_finished(), "handed over without another heartbeat");
}
