//! Waiting: the queue, its heartbeat, limits, and engines without a queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use holdline::clock::Clock;
use holdline::memory::{MemoryEngine, MemoryOptions};
use holdline::observer::Subject;
use holdline::{Certainty, ErrorKind, Guard, LockError, LockOptions, Observer};
use holdline_core::HandOff;
use holdline_core::contract::MAX_HAND_OFF_LEASE;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::faulty::{Call, Fate, Faulty};
use crate::support::{client, drive, engine, locked, look, name, options, pass, settle};

const S: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_thousand_waiters_share_heartbeats_and_are_served_in_order() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 20);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiters: Vec<_> = (0..1_000)
        .map(|n| {
            let (mutex, order) = (mutex.clone(), order.clone());
            tokio::spawn(async move {
                let guard = mutex.lock().await.expect("in the end");
                order.lock().push(n);
                drop(guard);
            })
        })
        .collect();
    pass(&clock, 6 * S).await;
    assert_eq!(look(&client, "a").await.queue_length, 1_000, "nobody fell silent");
    let _ = first.release().await;
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    assert!(order.lock().iter().copied().eq(0..1_000), "out of order");
}

#[tokio::test]
async fn a_hundred_waiters_share_one_heartbeat_a_second_and_are_served_in_order() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 1);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for n in 0..100 {
        let (mutex, order) = (mutex.clone(), order.clone());
        waiters.push(tokio::spawn(async move {
            let guard = mutex.lock().await.expect("in the end");
            order.lock().push(n);
            let _ = guard.release().await;
        }));
        settle().await;
    }
    assert_eq!(look(&client, "a").await.queue_length, 100);
    faulty.line.batches.lock().clear();
    let before = faulty.line.count(Call::Beat);
    pass(&clock, 20 * S).await;
    let beats = faulty.line.count(Call::Beat) - before;
    assert!((19..=21).contains(&beats), "{beats} heartbeats in 20 s");
    let full = faulty.line.batches.lock().iter().filter(|size| **size == 100).count();
    assert!(full >= 19, "each heartbeat carries all: {full}");
    assert_eq!(look(&client, "a").await.queue_length, 100, "nobody fell silent");
    let renewals = faulty.line.count(Call::Renew);
    let _ = first.release().await;
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    assert_eq!(*order.lock(), (0..100).collect::<Vec<_>>());
    assert_eq!(faulty.line.count(Call::Again), 0, "the message of a hand-off is the grant");
    assert_eq!(faulty.line.count(Call::Renew), renewals, "a short hold is not extended");
}

#[tokio::test]
async fn without_hints_the_heartbeat_reports_the_hand_off() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    faulty.line.deaf.store(true, Ordering::Relaxed);
    let (holder, client) = (client(faulty.clone(), &clock, 1), client(faulty, &clock, 2));
    let first = holder.mutex("a").expect("good").lock().await.expect("free");
    let waiter = tokio::spawn(locked(client.mutex("a").expect("good")));
    settle().await;
    // Between two heartbeats, so that the next one comes within the lease of the hand-off.
    pass(&clock, Duration::from_millis(500)).await;
    let _ = first.release().await;
    let released = clock.now();
    let second =
        drive(&clock, async { waiter.await.expect("no panic") }).await.expect("handed over");
    assert_eq!(released.until(clock.now()), S / 2, "with the next heartbeat");
    assert_eq!(second.fencing_token().get(), 2, "by the hand-off, not by queueing anew");
    let _ = second.release().await;
}

/// The request follows the release, without a hint and without any time.
///
/// Of an engine whose messages are no grants.
#[tokio::test]
async fn a_release_wakes_the_next_waiter_of_its_own_client() {
    for dropped in [false, true] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner).with_capabilities(|can| can.hand_off = HandOff::Direct);
        faulty.line.deaf.store(true, Ordering::Relaxed);
        let (ours, other) = (client(faulty.clone(), &clock, 1), client(faulty.clone(), &clock, 2));
        let mutex = |client: &holdline::Client| client.mutex("a").expect("good");
        let first = mutex(&ours).lock().await.expect("free");
        let mut waiters = Vec::new();
        for client in [&ours, &other, &ours] {
            waiters.push(tokio::spawn(locked(mutex(client))));
            settle().await;
        }
        let end = async |guard: holdline::Guard| match dropped {
            true => drop(guard),
            false => drop(guard.release().await),
        };
        end(first).await;
        settle().await;
        let asked = || faulty.line.count(Call::Again);
        assert!(waiters[0].is_finished(), "the next one is of the same client");
        let second = waiters.remove(0).await.expect("no panic").expect("granted");
        assert_eq!((second.fencing_token().get(), asked()), (2, 1), "by the hand-off");
        end(second).await;
        settle().await;
        assert_eq!(asked(), 1, "the next one is of another client");
        for waiter in waiters {
            let guard = drive(&clock, async { waiter.await.expect("no panic") }).await;
            end(guard.expect("handed over")).await;
        }
        assert_eq!(asked(), 3);
    }
}

/// The lease of a hand-off is extended soon, but a hold that is over by then sends no renewal.
#[tokio::test]
async fn the_message_of_a_hand_off_is_the_grant() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 1);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let waiter = queue(&mutex, 1).await.pop().expect("one");
    let _ = first.release().await;
    settle().await;
    let second = waiter.await.expect("no panic").expect("handed over");
    assert_eq!(faulty.line.count(Call::Again), 0);
    assert!(second.remaining() <= MAX_HAND_OFF_LEASE, "{:?}", second.remaining());
    assert_eq!(faulty.line.count(Call::Renew), 0);
    pass(&clock, S / 5).await;
    assert!(second.remaining() > 20 * S, "{:?}", second.remaining());
    assert_eq!(faulty.line.count(Call::Renew), 1);
    let _ = second.release().await;
}

/// The store handed the name over after it had answered the last request as queued. Of a message
/// that comes late, little is left: then the store is asked.
#[tokio::test]
async fn the_lease_of_a_hand_off_counts_from_the_last_answer_as_queued() {
    for (tenths, asked) in [(25, 0), (35, 1)] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner.clone());
        let holder = client(inner, &clock, 1);
        let client = client(faulty.clone(), &clock, 2);
        let first = holder.mutex("a").expect("good").lock().await.expect("free");
        let short = LockOptions::default().with_lease_duration(4 * S);
        let mutex = client.mutex_with("a", &short).expect("good");
        let waiter = queue(&mutex, 1).await.pop().expect("one");
        faulty.line.judge(|call, _| match call {
            Call::Beat => Fate::RequestLost,
            _ => Fate::Good,
        });
        pass(&clock, S / 10 * tenths).await;
        let _ = first.release().await;
        settle().await;
        let second = waiter.await.expect("no panic").expect("handed over");
        assert_eq!(faulty.line.count(Call::Again), asked, "after {tenths} tenths");
        let left = if asked == 0 { 4 * S - S / 10 * tenths } else { 4 * S };
        assert!(second.remaining() <= left, "{:?}", second.remaining());
        let _ = second.release().await;
    }
}

/// A late copy of a request that went unanswered could be queued, and served, once more.
#[tokio::test]
async fn a_message_is_not_believed_if_a_request_went_unanswered() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner.clone());
    let holder = client(inner, &clock, 1);
    let client = client(faulty.clone(), &clock, 2);
    let first = holder.mutex("a").expect("good").lock().await.expect("free");
    faulty.line.judge(|call, number| match (call, number) {
        (Call::Acquire, 0) => Fate::RequestUnknown,
        _ => Fate::Good,
    });
    let waiter = tokio::spawn(locked(client.mutex("a").expect("good")));
    pass(&clock, S / 2).await;
    let _ = first.release().await;
    settle().await;
    let second = waiter.await.expect("no panic").expect("handed over");
    assert_eq!(faulty.line.count(Call::Again), 1);
    let _ = second.release().await;
}

/// The caller may have used it for an attempt before, and this message may be about that one.
#[tokio::test]
async fn a_message_is_not_believed_if_the_caller_chose_the_lease_id() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 1);
    let first = client.mutex("a").expect("good").lock().await.expect("free");
    let options = LockOptions::default().with_lease_id(client.leases().draw_id());
    let chosen = client.mutex_with("a", &options).expect("good");
    let waiter = queue(&chosen, 1).await.pop().expect("one");
    let _ = first.release().await;
    settle().await;
    let second = waiter.await.expect("no panic").expect("handed over");
    assert_eq!(faulty.line.count(Call::Again), 1);
    let _ = second.release().await;
}

/// Starts waiters of one lock, one after the other.
async fn queue(mutex: &holdline::Mutex, count: usize) -> Vec<JoinHandle<Result<Guard, LockError>>> {
    let mut waiters = Vec::new();
    for _ in 0..count {
        waiters.push(tokio::spawn(locked(mutex.clone())));
        settle().await;
    }
    waiters
}

/// A store that is away for two seconds costs no waiter its place, also if the release met it.
#[tokio::test]
async fn a_release_that_fails_costs_no_waiter_of_its_client_its_place() {
    for in_order in [true, false] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner).with_capabilities(move |can| {
            can.in_order = in_order;
            can.hand_off = HandOff::Direct;
        });
        let client = client(faulty.clone(), &clock, 1);
        let mutex = client.mutex("a").expect("good");
        let first = mutex.lock().await.expect("free");
        let waiters = queue(&mutex, 3).await;
        faulty.line.judge(|_, _| Fate::Unavailable);
        let release = tokio::spawn(first.release());
        pass(&clock, 2 * S).await;
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()), "all wait on");
        faulty.line.judge(|_, _| Fate::Good);
        let _ = drive(&clock, async { release.await.expect("no panic") }).await;
        for waiter in waiters {
            let guard = drive(&clock, async { waiter.await.expect("no panic") }).await;
            let _ = drive(&clock, guard.expect("handed over").release()).await;
        }
    }
}

/// A waiter that gives up frees no name.
#[tokio::test]
async fn a_waiter_that_gives_up_wakes_nobody() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner).with_capabilities(|can| can.hand_off = HandOff::Direct);
    let client = client(faulty.clone(), &clock, 1);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let mut waiters = queue(&mutex, 3).await;
    waiters.pop().expect("the last one").abort();
    settle().await;
    assert_eq!(look(&client, "a").await.queue_length, 2, "it is out of the queue");
    assert_eq!(faulty.line.count(Call::Again), 0);
    drop((waiters, first));
}

#[tokio::test]
async fn the_head_looks_when_the_lease_of_a_dead_holder_ends() {
    let (engine, clock) = engine();
    let holder = client(engine.clone(), &clock, 3);
    let waiter = client(engine, &clock, 4);
    let options = LockOptions::default().with_keep(holdline::Keep::Fixed);
    let lease = Duration::from_millis(2_300);
    let options = options.with_lease_duration(lease);
    let dead = holder.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    let start = clock.now();
    let mutex = waiter.mutex("a").expect("good");
    let guard = drive(&clock, locked(mutex)).await.expect("free in the end");
    let waited = start.until(clock.now());
    assert!(waited >= lease && waited < lease + Duration::from_millis(50), "{waited:?}");
    let _ = guard.release().await;
    drop(dead);
}

#[tokio::test]
async fn the_wait_limit_ends_a_wait_and_leaves_nothing() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 5);
    let options = LockOptions::default().with_reason("lunch");
    let first = client.mutex_with("a", &options).expect("fits").lock().await.expect("free");
    for wait in [Duration::ZERO, 3 * S] {
        let options = LockOptions::default().with_wait(wait);
        let mutex = client.mutex_with("a", &options).expect("fits");
        let start = clock.now();
        let error = drive(&clock, locked(mutex)).await.expect_err("held throughout");
        assert_eq!(start.until(clock.now()), wait);
        let ErrorKind::TimedOut { waited, holder: Some(holder) } = error.kind() else {
            panic!("{error}");
        };
        assert_eq!((*waited, holder.metadata.fields().reason.as_str()), (wait, "lunch"));
        // The age is the holder's age now, and not when we first looked.
        assert_eq!(holder.held_for, Some(wait));
        assert_eq!(error.certainty(), holdline::Certainty::NotApplied);
        assert_eq!(look(&client, "a").await.queue_length, 0);
    }
    let _ = first.release().await;
}

/// The limit of a call replaces that of the options, be it longer or shorter.
#[tokio::test]
async fn the_wait_limit_of_one_call_replaces_that_of_the_options() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 5);
    let first = client.mutex("a").expect("good").lock().await.expect("free");
    for limit in [None, Some(S), Some(60 * S)] {
        let options = limit
            .map_or_else(LockOptions::default, |limit| LockOptions::default().with_wait(limit));
        let mutex = client.mutex_with("a", &options).expect("fits");
        let rwlock = client.rwlock_with("a", &options).expect("fits");
        let any_of = client.any_of_with(["a"], &options).expect("fits");
        let election = client.election_with("a", &options).expect("fits");
        let (reads, writes) = (rwlock.clone(), rwlock);
        let ends: [(&str, BoxFuture<'static, Result<(), LockError>>); 5] = [
            ("lock", async move { mutex.lock_within(3 * S).await.map(drop) }.boxed()),
            ("read", async move { reads.read_within(3 * S).await.map(drop) }.boxed()),
            ("write", async move { writes.write_within(3 * S).await.map(drop) }.boxed()),
            ("any of", async move { any_of.lock_within(3 * S).await.map(drop) }.boxed()),
            (
                "campaign",
                async move { election.campaign_within("v", 3 * S).await.map(drop) }.boxed(),
            ),
        ];
        for (call, end) in ends {
            let start = clock.now();
            let error = drive(&clock, end).await.expect_err("held throughout");
            let ErrorKind::TimedOut { waited, .. } = error.kind() else {
                panic!("{call}: {error}")
            };
            assert_eq!((*waited, start.until(clock.now())), (3 * S, 3 * S), "{call}");
            assert_eq!(error.certainty(), Certainty::NotApplied, "{call}");
            assert_eq!(look(&client, "a").await.queue_length, 0, "{call}");
        }
    }
    let mutex = client.mutex("a").expect("good");
    let waiter = tokio::spawn(async move { mutex.lock_within(60 * S).await });
    pass(&clock, S).await;
    let _ = first.release().await;
    let second = drive(&clock, async { waiter.await.expect("no panic") }).await;
    let _ = second.expect("within the limit").release().await;
}

#[tokio::test]
async fn the_wait_limit_of_one_call_counts_for_permits_too() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 5);
    let permits = client.semaphore("a", 3).expect("good");
    let two = permits.acquire_many_within(2, S).await.expect("free");
    let waiting = permits.clone();
    let many = drive(&clock, async move { waiting.acquire_many_within(2, 3 * S).await.map(drop) });
    let error = many.await.expect_err("one is left");
    let ErrorKind::TimedOut { waited, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*waited, 3 * S);
    let third = permits.acquire_within(S).await.expect("one is left");
    let one = drive(&clock, async move { permits.acquire_within(S).await.map(drop) });
    let error = one.await.expect_err("none is left");
    assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    assert_eq!(look(&client, "a").await.queue_length, 0);
    drop((two, third));
}

/// The second name is asked for when half of the limit has passed, the first one's end waited for.
#[tokio::test]
async fn a_wait_that_timed_out_is_reported_no_shorter_than_its_limit() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 6);
    let first = client.mutex("a").expect("good").lock().await.expect("free");
    let _second = client.mutex("b").expect("good").lock().await.expect("free");
    let taking = client.clone();
    let both = tokio::spawn(async move {
        let options = LockOptions::default().with_wait(2 * S);
        taking.lock_all_with(["a", "b"], &options).await
    });
    pass(&clock, S).await;
    let _ = first.release().await;
    let both = async { both.await.expect("no panic").map(drop) };
    let error = drive(&clock, both).await.expect_err("b is held");
    let ErrorKind::TimedOut { waited, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(*waited, 2 * S);
}

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl Observer for Events {
    fn queued(
        &self,
        _: Subject<'_>,
        position: Option<usize>,
        holder: Option<&holdline::HolderSummary>,
    ) {
        self.0.lock().push(format!("queued {position:?} behind {}", holder.is_some()));
    }

    fn requeued(&self, _: Subject<'_>) {
        self.0.lock().push("requeued".into());
    }

    fn without_store(&self, _: Subject<'_>, _: &holdline::LockError) {
        self.0.lock().push("without quorum".into());
    }

    fn acquired(&self, subject: Subject<'_>, _: holdline::FencingToken, waited: Duration) {
        self.0.lock().push(format!("acquired {} after {waited:?}", subject.name));
    }

    fn renewed(&self, _: Subject<'_>, slack: Duration) {
        self.0.lock().push(format!("renewed with {}s", slack.as_secs()));
    }

    fn released(&self, _: Subject<'_>, outcome: &holdline::ReleaseOutcome) {
        self.0.lock().push(format!("released {}", outcome.is_released()));
    }

    fn dropped(&self, _: Subject<'_>, confirmed: bool) {
        self.0.lock().push(format!("dropped {confirmed}"));
    }

    fn failed(&self, _: Subject<'_>, error: &holdline::LockError) {
        self.0.lock().push(format!("failed {}", error.is_contended()));
    }

    fn lost(&self, _: Subject<'_>, reason: &holdline::LostReason) {
        self.0.lock().push(format!("lost: {reason}"));
    }
}

#[tokio::test]
async fn a_waiter_that_the_store_lost_queues_again_under_another_id() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let events = Arc::new(Events::default());
    let options = options(&clock, 6).with_observer(events.clone());
    let client = holdline::Client::with_options(Arc::new(faulty.clone()), options).expect("made");
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let waiter = tokio::spawn(locked(mutex.clone()));
    settle().await;
    let old = faulty.line.acquired.lock().last().expect("asked").0;
    let fresh = MemoryEngine::new("t", Arc::new(clock.clone()), &MemoryOptions::default());
    faulty.flush(fresh);
    pass(&clock, Duration::from_millis(1_100)).await;
    let guard = waiter.await.expect("no panic").expect("free in the new store");
    assert_ne!(guard.lease_id(), old, "a dropped id is dead");
    let asked = faulty.line.acquired.lock().clone();
    assert_eq!(asked.last(), Some(&(guard.lease_id(), false)));
    drop((first, guard));
    settle().await;
    let events = events.0.lock().clone();
    for event in ["queued Some(0) behind true", "requeued", "dropped true"] {
        assert!(events.iter().any(|seen| seen == event), "no {event}: {events:?}");
    }
}

/// The caller may have sent another request under its id: nobody else gives it up.
#[tokio::test]
async fn a_kept_id_that_the_store_lost_is_asked_anew_unless_the_caller_gave_it_up() {
    for gave_up in [false, true] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        let client = client(faulty.clone(), &clock, 15);
        let held = client.mutex("a").expect("good").lock().await.expect("free");
        let id = client.leases().draw_id();
        let kept = LockOptions::default().with_kept_lease_id(id);
        let mutex = client.mutex_with("a", &kept).expect("good");
        let waiter = tokio::spawn(locked(mutex));
        settle().await;
        if gave_up {
            let client = client.clone();
            let given_up = async move { client.leases().give_up_by_id(&name("a"), id).await };
            let _ = drive(&clock, given_up).await.expect("answered");
        } else {
            let fresh = MemoryEngine::new("t", Arc::new(clock.clone()), &MemoryOptions::default());
            faulty.flush(fresh);
        }
        pass(&clock, Duration::from_millis(1_200)).await;
        match (gave_up, waiter.await.expect("no panic")) {
            (false, granted) => assert_eq!(granted.expect("free now").lease_id(), id),
            (true, refused) => {
                let error = refused.expect_err("given up");
                assert!(matches!(error.kind(), ErrorKind::Cancelled), "{error:?}");
            }
        }
        drop(held);
    }
}

#[tokio::test]
async fn missing_heartbeats_cost_the_position_and_are_reported() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let holder = client(faulty.clone(), &clock, 7);
    let first = holder.mutex("a").expect("good").lock().await.expect("free");
    let waiting = client(faulty.clone(), &clock, 8);
    let options = LockOptions::default().with_fail_in_outage(true);
    let waiter = tokio::spawn(locked(waiting.mutex_with("a", &options).expect("good")));
    settle().await;
    faulty.line.judge(|call, _| match call {
        Call::Beat | Call::Again | Call::Acquire => Fate::Unavailable,
        _ => Fate::Good,
    });
    pass(&clock, 10 * S).await;
    let error = waiter.await.expect("no panic").expect_err("the store cannot be reached");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert_eq!(look(&holder, "a").await.queue_length, 0);
    let _ = first.release().await;
}

/// The limit cuts the last request short, so it gets no reply.
#[tokio::test]
async fn a_wait_over_an_outage_lasts_until_its_limit_and_reports_the_outage() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 12);
    faulty.line.judge(|_, number| if number < 9 { Fate::NoQuorum } else { Fate::RequestLost });
    let options = LockOptions::default().with_wait(10 * S);
    let mutex = client.mutex_with("a", &options).expect("good");
    let began = clock.now();
    let error = drive(&clock, locked(mutex)).await.expect_err("nobody answers");
    assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error}");
    assert_eq!(error.certainty(), Certainty::Unknown);
    assert!(faulty.line.count(Call::Acquire) > 9 && began.until(clock.now()) >= 10 * S);
}

/// The first request of an attempt meets a server that restarts: refused, unanswered, lost.
#[tokio::test]
async fn a_first_request_waits_through_a_restart_and_a_limit_ends_a_longer_one() {
    for fate in [Fate::Unavailable, Fate::RequestUnknown, Fate::ReplyUnknown, Fate::RequestLost] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        let client = client(faulty.clone(), &clock, 15);
        let away_until = clock.now().after(30 * S);
        let here = clock.clone();
        faulty.line.judge(move |_, _| if here.now() < away_until { fate } else { Fate::Good });
        let began = clock.now();
        let limited = LockOptions::default().with_wait(10 * S);
        let limited = client.mutex_with("b", &limited).expect("good");
        let error = drive(&clock, locked(limited)).await.expect_err("the store is away");
        let waited = began.until(clock.now());
        assert!(error.is_transient() && (10 * S..12 * S).contains(&waited), "{waited:?}: {error}");
        let hasty = LockOptions::default().with_fail_in_outage(true);
        let hasty = client.mutex_with("c", &hasty).expect("good");
        let began = clock.now();
        if fate == Fate::Unavailable {
            drive(&clock, locked(hasty)).await.expect_err("the store is away");
            assert_eq!(began.until(clock.now()), Duration::ZERO);
        }
        let mutex = client.mutex("a").expect("good");
        let guard = drive(&clock, locked(mutex)).await.expect("the store is back");
        assert!(clock.now() >= away_until);
        assert!(guard.release().await.is_released());
    }
}

/// Between two states of an outage somebody may say that nobody answers: that ends no wait.
#[tokio::test]
async fn an_outage_with_two_different_errors_ends_no_wait() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let client = client(faulty.clone(), &clock, 13);
    faulty.line.judge(|call, number| match (call, number) {
        (Call::Acquire, 0 | 2) => Fate::NoQuorum,
        (Call::Acquire, 1 | 3) => Fate::Unavailable,
        _ => Fate::Good,
    });
    let mutex = client.mutex("a").expect("good");
    let _ = drive(&clock, locked(mutex)).await.expect("free").release().await;
}

#[tokio::test]
async fn a_waiter_that_keeps_its_position_over_an_outage_is_reported_as_queued_again() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner);
    let events = Arc::new(Events::default());
    let observed = options(&clock, 14).with_observer(events.clone());
    let client = holdline::Client::with_options(Arc::new(faulty.clone()), observed).expect("made");
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    faulty.line.nagging.store(true, Ordering::Relaxed);
    faulty.line.judge(|call, number| match (call, number) {
        (Call::Again, 0) => Fate::NoQuorum,
        _ => Fate::Good,
    });
    let waiter = tokio::spawn(locked(mutex.clone()));
    pass(&clock, 2 * S).await;
    let seen = events.0.lock().clone();
    let queued = "queued Some(0) behind true";
    let about = |event: &&String| *event == queued || *event == "without quorum";
    let about: Vec<&String> = seen.iter().filter(about).collect();
    assert_eq!(about, [queued, "without quorum", queued], "{seen:?}");
    let _ = first.release().await;
    drop(drive(&clock, async { waiter.await.expect("no panic") }).await.expect("handed on"));
}

#[tokio::test]
async fn an_engine_without_a_queue_is_asked_again_under_new_ids() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner).with_capabilities(|can| can.queue = false);
    let client = client(faulty.clone(), &clock, 9);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let waiter = tokio::spawn(locked(mutex.clone()));
    pass(&clock, 5 * S).await;
    let _ = first.release().await;
    let freed = clock.now();
    let second = drive(&clock, async { waiter.await.expect("no panic") }).await.expect("free");
    assert!(freed.until(clock.now()) <= S);
    let mut ids: Vec<_> = faulty.line.acquired.lock().iter().map(|(id, _)| *id).collect();
    let asked = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), asked, "an id that was answered busy is dead");
    let _ = second.release().await;
}

/// A contender of another library does not pause either, and would get most of the grants.
#[tokio::test]
async fn without_a_queue_a_hint_is_followed_by_a_request_at_once() {
    for splits in [false, true] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner)
            .with_capabilities(move |can| (can.queue, can.splits) = (false, splits));
        let (ours, others) =
            (client(faulty.clone(), &clock, 14), client(faulty.clone(), &clock, 15));
        let first = others.mutex("a").expect("good").lock().await.expect("free");
        faulty.line.nagging.store(true, Ordering::Relaxed);
        let waiter = tokio::spawn(locked(ours.mutex("a").expect("good")));
        settle().await;
        // Only where votes are counted does a pause keep contenders apart.
        let asked = faulty.line.count(Call::Acquire);
        assert_eq!(asked > 2, !splits, "{asked} requests, and no time has passed");
        let _ = first.release().await;
        drop(drive(&clock, async { waiter.await.expect("no panic") }).await.expect("free"));
    }
}

/// Where votes are counted, waiters that all ask at once leave nobody enough of them.
#[tokio::test]
async fn without_a_queue_the_waiters_of_a_process_take_turns() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner).with_capabilities(|can| can.queue = false);
    let client = client(faulty.clone(), &clock, 11);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiters: Vec<_> = (0..20)
        .map(|n| {
            let (mutex, order) = (mutex.clone(), order.clone());
            tokio::spawn(async move {
                let guard = mutex.lock().await.expect("in the end");
                order.lock().push(n);
                let _ = guard.release().await;
            })
        })
        .collect();
    settle().await;
    assert_eq!(faulty.line.count(Call::Acquire), 2, "a waiter further back asks nothing yet");
    let before = faulty.line.count(Call::Acquire);
    let _ = first.release().await;
    pass(&clock, S / 10).await;
    // One hands on to the next without any time.
    for _ in 0..100 {
        settle().await;
    }
    for waiter in waiters {
        assert!(waiter.is_finished(), "{order:?}");
        waiter.await.expect("no panic");
    }
    assert!(order.lock().iter().copied().eq(0..20), "{order:?}");
    let asked = faulty.line.count(Call::Acquire) - before;
    assert_eq!(asked, 20, "each asks once, and is granted");
}

#[tokio::test]
async fn a_wait_that_timed_out_in_the_local_queue_names_the_holder() {
    let (inner, clock) = engine();
    let client = client(Faulty::new(inner).with_capabilities(|can| can.queue = false), &clock, 12);
    let holder = client.mutex("a").expect("good").lock().await.expect("free");
    let waiter = tokio::spawn(locked(client.mutex("a").expect("good")));
    settle().await;
    for wait in [Duration::ZERO, S / 2, 3 * S] {
        let options = LockOptions::default().with_wait(wait);
        let mutex = client.mutex_with("a", &options).expect("fits");
        let error = drive(&clock, locked(mutex)).await.expect_err("held throughout");
        let ErrorKind::TimedOut { waited, holder } = error.kind() else { panic!("{error}") };
        assert_eq!(*waited, wait);
        assert!(holder.is_some(), "{error}");
    }
    let _ = holder.release().await;
    drop(drive(&clock, async { waiter.await.expect("no panic") }).await.expect("free"));
}

/// The place in line goes with the guard, and a guard may outlive its lease.
#[tokio::test]
async fn a_guard_that_outlives_its_lease_blocks_no_waiter() {
    let (inner, clock) = engine();
    let client = client(Faulty::new(inner).with_capabilities(|can| can.queue = false), &clock, 13);
    let first = client.mutex("a").expect("good").lock().await.expect("free");
    let options = LockOptions::default().with_lease_duration(2 * S).with_max_hold(2 * S);
    let second = tokio::spawn(locked(client.mutex_with("a", &options).expect("fits")));
    settle().await;
    let third = tokio::spawn(locked(client.mutex("a").expect("good")));
    settle().await;
    let _ = first.release().await;
    let second = drive(&clock, async { second.await.expect("no panic") }).await.expect("free");
    let third = drive(&clock, async { third.await.expect("no panic") }).await.expect("free");
    assert!(!second.is_valid() && third.is_valid());
    let _ = third.release().await;
}

#[tokio::test]
async fn the_observer_receives_every_event() {
    let (engine, clock) = engine();
    let events = Arc::new(Events::default());
    let options = options(&clock, 10).with_observer(events.clone());
    let client = holdline::Client::with_options(Arc::new(engine), options).expect("made");
    let mutex = client.mutex("a").expect("good");
    let guard = mutex.lock().await.expect("free");
    mutex.try_lock().await.expect_err("held");
    pass(&clock, 11 * S).await;
    let _ = guard.release().await;
    drop(mutex.lock().await.expect("free"));
    settle().await;
    let fixed = LockOptions::default().with_keep(holdline::Keep::Fixed);
    let fixed = client.mutex_with("b", &fixed).expect("fits").lock().await.expect("free");
    pass(&clock, 30 * S).await;
    let _ = fixed.release().await;
    settle().await;
    let events = events.0.lock().clone();
    for event in [
        "acquired a after 0ns",
        "failed true",
        "renewed with 20s",
        "released true",
        "dropped true",
        "lost: its fixed lease has ended",
        "released false",
    ] {
        assert!(events.iter().any(|seen| seen == event), "no {event}: {events:?}");
    }
}

#[tokio::test]
async fn a_request_that_arrives_after_it_was_given_up_is_refused() {
    for dropped in [false, true] {
        let (inner, clock) = engine();
        let faulty = Faulty::new(inner);
        let client = client(faulty.clone(), &clock, 13);
        faulty.line.judge(|call, _| if call == Call::Acquire { Fate::Late } else { Fate::Good });
        let options = LockOptions::default().with_fail_in_outage(true);
        let mutex = client.mutex_with("a", &options).expect("good");
        if dropped {
            let attempt = tokio::spawn(locked(mutex));
            settle().await;
            attempt.abort();
            settle().await;
        } else {
            drive(&clock, locked(mutex)).await.expect_err("no answer");
        }
        let said = faulty.deliver();
        let refused = |reply: &Result<_, holdline::LockError>| {
            reply.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::Cancelled))
        };
        assert!(!said.is_empty() && said.iter().all(refused), "{said:?}");
        assert_eq!(look(&client, "a").await.holder_count, 0);
    }
}

#[tokio::test]
async fn too_many_waiters_is_an_error_of_its_own() {
    let clock = holdline::clock::ManualClock::new();
    let few = MemoryOptions::default().with_max_waiters(1);
    let engine = MemoryEngine::new("test", Arc::new(clock.clone()), &few);
    let client = client(engine, &clock, 11);
    let mutex = client.mutex("a").expect("good");
    let first = mutex.lock().await.expect("free");
    let waiter = tokio::spawn(locked(mutex.clone()));
    settle().await;
    let error = mutex.lock().await.expect_err("full");
    assert!(matches!(error.kind(), ErrorKind::TooManyWaiters { limit: 1 }), "{error}");
    assert_eq!(error.name(), Some(&name("a")));
    let _ = first.release().await;
    let _ = waiter.await.expect("no panic").expect("handed over").release().await;
}

#[tokio::test]
async fn a_lease_id_of_the_caller_makes_an_attempt_safe_to_repeat() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 12);
    let id = client.leases().draw_id();
    let options = LockOptions::default().with_keep(holdline::Keep::Detached).with_lease_id(id);
    let mutex = client.mutex_with("a", &options).expect("fits");
    let first = mutex.try_lock().await.expect("free");
    let again = mutex.try_lock().await.expect("the same grant");
    assert_eq!(first.fencing_token(), again.fencing_token());
    let lease = first.detach().await.expect("detached from the start");
    drop(again);
    assert_eq!(lease.lease_id(), id);
}
