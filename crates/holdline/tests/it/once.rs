//! Jobs that run once per slot, in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdline::admin::HolderFields;
use holdline::clock::{Clock, ManualClock};
use holdline::memory::MemoryEngine;
use holdline::once::{Begun, OnceOptions, OnceOutcome, Slot};
use holdline::{Certainty, Client, ErrorKind, LockError, LockOptions, Once};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::faulty::Faulty;
use crate::support::{drive, engine, look, options, pass, settle};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// A slot of a quarter of an hour.
const QUARTER: Duration = Duration::from_secs(900);
/// 2026-11-24 03:00 UTC: every slot here begins then.
const START: Duration = Duration::from_secs(1_795_489_200);

type Outcome = OnceOutcome<u32, &'static str>;

/// Options with a time of day that follows the test's clock, ahead by `ahead` milliseconds.
fn at(clock: &ManualClock, ahead: i64) -> OnceOptions {
    let clock = clock.clone();
    OnceOptions::default().with_wall_clock(move || wall(&clock, ahead))
}

fn wall(clock: &ManualClock, ahead: i64) -> SystemTime {
    let now = UNIX_EPOCH + START + Duration::from_nanos(clock.now().as_nanos());
    let by = Duration::from_millis(ahead.unsigned_abs());
    if ahead < 0 { now - by } else { now + by }
}

/// A machine of its own.
fn machine(engine: &MemoryEngine, clock: &ManualClock, seed: u64) -> Client {
    let holder = HolderFields { host: format!("host{seed}"), ..HolderFields::default() };
    let options = options(clock, seed).with_holder(holder);
    Client::with_options(Arc::new(engine.clone()), options).expect("a client")
}

fn once(client: &Client, options: OnceOptions) -> Once {
    client.once_with("report", Slot::every(QUARTER), options).expect("good")
}

/// Waits for nothing.
fn at_once(options: OnceOptions) -> OnceOptions {
    options.with_lock(LockOptions::default().with_wait(Duration::ZERO))
}

async fn run(once: &Once) -> Outcome {
    once.run(async |_| Ok(7)).await.expect("the store answers")
}

#[tokio::test]
async fn one_machine_runs_the_job_in_each_slot() {
    let (engine, clock) = engine();
    let machines = [machine(&engine, &clock, 1), machine(&engine, &clock, 2)];
    let jobs = machines.each_ref().map(|client| once(client, at(&clock, 0)));
    for slot in 0..3 {
        let first = slot % 2;
        assert!(matches!(run(&jobs[first]).await, OnceOutcome::Ran(7)), "slot {slot}");
        pass(&clock, 60 * S).await;
        for job in &jobs {
            let OnceOutcome::AlreadyRan(taken) = run(job).await else { panic!("slot {slot}") };
            assert_eq!(taken.by().host, format!("host{}", first + 1));
            let minute = wall(&clock, 0) - 60 * S;
            assert_eq!(taken.since(), Some(minute));
            assert_eq!(taken.clock_skew(), None);
        }
        pass(&clock, QUARTER - 60 * S).await;
    }
}

#[tokio::test]
async fn tokens_grow_from_slot_to_slot() {
    let (engine, clock) = engine();
    let job = once(&machine(&engine, &clock, 1), at(&clock, 0));
    let mut last = 0;
    for _ in 0..3 {
        let outcome = job.run(async |held| Ok::<_, ()>(held.fencing_token().get())).await;
        let Ok(OnceOutcome::Ran(token)) = outcome else { panic!("{outcome:?}") };
        assert!(token > last);
        last = token;
        pass(&clock, QUARTER).await;
    }
}

#[tokio::test]
async fn without_a_wait_the_outcome_is_that_the_job_runs_elsewhere() {
    let (engine, clock) = engine();
    let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
    let Begun::Run(running) = once(&there, at(&clock, 0)).begin().await.expect("free") else {
        panic!("the slot is free")
    };
    assert_eq!(running.slot_start(), UNIX_EPOCH + START);
    let outcome = run(&once(&here, at_once(at(&clock, 0)))).await;
    let OnceOutcome::RunningElsewhere(taken) = outcome else { panic!("{outcome:?}") };
    assert_eq!(taken.by().host, "host2");
    running.finish().await.expect("kept");
}

#[tokio::test]
async fn a_waiter_takes_over_from_a_failed_job_and_not_from_a_finished_one() {
    let (engine, clock) = engine();
    let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
    for fails in [true, false] {
        let Begun::Run(running) = once(&there, at(&clock, 0)).begin().await.expect("free") else {
            panic!("the slot is free")
        };
        let waiting = {
            let job = once(&here, at(&clock, 0));
            tokio::spawn(async move { run(&job).await })
        };
        pass(&clock, 20 * S).await;
        assert!(!waiting.is_finished());
        if fails {
            running.give_back().await;
        } else {
            running.finish().await.expect("kept");
        }
        let outcome = drive(&clock, waiting).await.expect("no panic");
        assert_eq!(outcome.ran(), fails, "{outcome:?}");
        pass(&clock, QUARTER).await;
    }
}

/// The store refuses to keep the slot for as long as it may have lost grants. That ends, and the
/// lease lasts.
#[tokio::test]
async fn a_job_that_ends_while_the_store_grants_nothing_keeps_its_slot() {
    let (memory, clock) = engine();
    let faulty = Faulty::new(memory.clone()).with_capabilities(|can| can.lease.max = 60 * S);
    let client = Client::with_options(Arc::new(faulty.clone()), options(&clock, 1));
    let job = once(&client.expect("a client"), at(&clock, 0));
    let Begun::Run(run) = job.begin().await.expect("free") else { panic!("the slot is free") };
    for left in [40 * S, 20 * S, S, MS, MS] {
        let kind = ErrorKind::Quarantined { left };
        let error = LockError::new("faulty", kind, Certainty::NotApplied);
        faulty.line.refused_operations.lock().push_back(error);
    }
    drive(&clock, run.finish()).await.expect("kept when the store grants again");
    assert!(faulty.line.refused_operations.lock().is_empty());
    let outcome = self::run(&once(&machine(&memory, &clock, 2), at_once(at(&clock, 0)))).await;
    assert!(matches!(outcome, OnceOutcome::AlreadyRan(_)), "{outcome:?}");
}

/// Leaves the slot as a machine that dies does: its lease ends, and nobody renews it.
fn dies(begun: Begun) {
    let Begun::Run(run) = begun else { panic!("the slot is free") };
    std::mem::forget(run);
}

#[tokio::test]
async fn another_machine_runs_the_job_of_one_that_died() {
    let (engine, clock) = engine();
    let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
    // Nobody renews a lease longer than this, so the guard that is leaked keeps none.
    let lock = LockOptions::default().with_lease_duration(10 * S).with_max_hold(MS);
    dies(once(&there, at(&clock, 0).with_lock(lock)).begin().await.expect("free"));
    let job = once(&here, at(&clock, 0));
    let outcome = drive(&clock, async move { run(&job).await }).await;
    assert!(outcome.ran(), "{outcome:?}");
    assert!(clock.now().as_nanos() <= Duration::as_nanos(&(12 * S)) as u64, "when its lease ended");
}

#[tokio::test]
async fn at_most_once_keeps_the_slot_of_a_machine_that_died_until_the_slot_is_over() {
    for (slot, step) in [(QUARTER, S), (Duration::from_secs(7 * 86_400), 3_600 * S)] {
        let (engine, clock) = engine();
        let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
        let describe = |client: &Client| {
            let options = at(&clock, 0).with_at_most_once(true);
            client.once_with("report", Slot::every(slot), options).expect("good")
        };
        let Begun::Run(run_there) = describe(&there).begin().await.expect("free") else {
            panic!("the slot is free")
        };
        drop(run_there);
        settle().await;
        for _ in 0..5 {
            let OnceOutcome::AlreadyRan(taken) = run(&describe(&here)).await else {
                panic!("nobody may run it")
            };
            assert_eq!(taken.by().host, "host2");
            clock.advance(step);
            settle().await;
        }
        clock.advance(slot);
        settle().await;
        assert!(run(&describe(&here)).await.ran());
    }
}

/// A week is kept by a freeze beside the lease of the job that runs.
#[tokio::test]
async fn a_job_that_runs_at_most_once_has_run_as_soon_as_it_has_started() {
    for slot in [QUARTER, Duration::from_secs(7 * 86_400)] {
        let (engine, clock) = engine();
        let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
        let describe = |client: &Client| {
            let options = at_once(at(&clock, 0).with_at_most_once(true));
            client.once_with("report", Slot::every(slot), options).expect("good")
        };
        let Begun::Run(running) = describe(&there).begin().await.expect("free") else {
            panic!("the slot is free")
        };
        let outcome = run(&describe(&here)).await;
        let OnceOutcome::AlreadyRan(taken) = outcome else { panic!("{slot:?}: {outcome:?}") };
        assert_eq!((&*taken.by().host, taken.clock_skew()), ("host2", None));
        running.finish().await.expect("kept");
    }
}

#[tokio::test]
async fn a_failed_job_is_run_again_as_often_as_asked_and_then_by_others() {
    let (engine, clock) = engine();
    let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
    let job = once(&here, at(&clock, 0).with_retries(2));
    let mut tries = 0;
    let outcome = job
        .run(async |_| {
            tries += 1;
            Err::<(), _>("no paper")
        })
        .await;
    assert!(matches!(outcome, Ok(OnceOutcome::Failed("no paper"))), "{outcome:?}");
    assert_eq!(tries, 3);
    assert!(run(&once(&there, at(&clock, 0))).await.ran());
}

#[tokio::test]
async fn a_failure_can_keep_the_slot() {
    let options: [fn(OnceOptions) -> OnceOptions; 2] =
        [|one| one.with_keep_on_failure(true), |one| one.with_at_most_once(true)];
    for keeps in options {
        let (engine, clock) = engine();
        let job = once(&machine(&engine, &clock, 1), keeps(at(&clock, 0)));
        let outcome = job.run(async |_| Err::<(), _>("no paper")).await;
        assert!(matches!(outcome, Ok(OnceOutcome::Failed("no paper"))), "{outcome:?}");
        assert!(matches!(run(&job).await, OnceOutcome::AlreadyRan(_)));
    }
}

#[tokio::test]
async fn a_dropped_job_frees_its_slot() {
    let (engine, clock) = engine();
    let job = once(&machine(&engine, &clock, 1), at(&clock, 0));
    let running = {
        let job = job.clone();
        tokio::spawn(async move {
            job.run(async |_| std::future::pending::<Result<(), ()>>().await).await.map(drop)
        })
    };
    settle().await;
    running.abort();
    settle().await;
    assert!(run(&job).await.ran());
}

#[tokio::test]
async fn a_slot_longer_than_any_lease_is_kept_by_a_freeze() {
    let (engine, clock) = engine();
    let (here, there) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
    let week = Slot::every(Duration::from_secs(7 * 86_400));
    let describe = |client: &Client| {
        client.once_with("report", week.clone(), at(&clock, 0)).expect("memory can freeze")
    };
    assert!(run(&describe(&there)).await.ran());
    for _ in 0..3 {
        let OnceOutcome::AlreadyRan(taken) = run(&describe(&here)).await else { panic!("kept") };
        assert_eq!((&*taken.by().host, taken.clock_skew()), ("host2", None));
        assert_eq!(taken.since(), Some(UNIX_EPOCH + START));
        clock.advance(Duration::from_secs(43_200));
        settle().await;
    }
    let reason = look(&here, "report").await.freeze.expect("frozen").reason;
    assert!(reason.starts_with("once: slot=") && reason.contains("host=host2"), "{reason}");
    clock.advance(Duration::from_secs(7 * 86_400));
    settle().await;
    assert!(run(&describe(&here)).await.ran());
}

#[tokio::test]
async fn a_start_just_before_a_slot_belongs_to_it() {
    let (engine, clock) = engine();
    let early = machine(&engine, &clock, 1);
    // Half a second before three o'clock.
    let Begun::Run(running) = once(&early, at(&clock, -500)).begin().await.expect("free") else {
        panic!("the slot is free")
    };
    assert_eq!(running.slot_start(), UNIX_EPOCH + START);
    running.finish().await.expect("kept");
    clock.advance(600 * MS);
    settle().await;
    let outcome = run(&once(&early, at(&clock, -500))).await;
    assert!(matches!(outcome, OnceOutcome::AlreadyRan(_)), "{outcome:?}");
}

#[tokio::test]
async fn clocks_that_differ_by_more_than_the_bound_are_reported() {
    let (engine, clock) = engine();
    let (good, bad) = (machine(&engine, &clock, 1), machine(&engine, &clock, 2));
    clock.advance(300 * S);
    assert!(run(&once(&good, at(&clock, 0))).await.ran());
    // In the same slot by both clocks: the end that was kept shows the difference.
    for ahead in [120_000, -120_000] {
        let outcome = run(&once(&bad, at(&clock, ahead))).await;
        let OnceOutcome::AlreadyRan(taken) = outcome else { panic!("{outcome:?}") };
        assert_eq!(taken.clock_skew(), Some(120 * S), "{ahead}");
    }
    // An hour apart, so in different slots: nothing is run, and the difference is named.
    for ahead in [3_600_000, -3_600_000] {
        let error = once(&bad, at(&clock, ahead)).begin().await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
        assert!(error.to_string().contains("the clocks of this machine and of host1"), "{error}");
    }
    assert!(matches!(run(&once(&good, at(&clock, 0))).await, OnceOutcome::AlreadyRan(_)));
}

/// Seven machines whose clocks differ by up to the maximum skew, and whose timers are late by up to
/// a few seconds: in every slot exactly one runs the job.
#[tokio::test]
async fn a_fleet_runs_the_job_exactly_once_in_every_slot() {
    const SLOT: Duration = Duration::from_secs(60);
    const SLOTS: u64 = 200;
    let (engine, clock) = engine();
    let ran: Arc<Mutex<BTreeMap<SystemTime, Vec<u64>>>> = Arc::default();
    let mut machines = Vec::new();
    for seed in 0..7 {
        let mut random = StdRng::seed_from_u64(seed);
        let ahead = random.random_range(-500..=500);
        let client = machine(&engine, &clock, seed);
        let (clock, ran) = (clock.clone(), ran.clone());
        let options = at(&clock, ahead);
        let job = client.once_with("report", Slot::every(SLOT), options).expect("good");
        machines.push(tokio::spawn(async move {
            for slot in 1..=SLOTS {
                // By its own clock, from 1 s before the slot, which belongs to it, to 3 s after.
                let due = START + SLOT * u32::try_from(slot).expect("small");
                let due = due + Duration::from_millis(random.random_range(0..4_000)) - S;
                let now = wall(&clock, ahead).duration_since(UNIX_EPOCH).expect("later");
                let until = clock.now().after(due.saturating_sub(now));
                clock.sleep_until(until).await;
                let begun = job.begin().await.expect("no clock is wrong");
                if let Begun::Run(run) = begun {
                    ran.lock().expect("no panic").entry(run.slot_start()).or_default().push(seed);
                    let lasts = Duration::from_millis(random.random_range(0..30_000));
                    clock.sleep_until(clock.now().after(lasts)).await;
                    run.finish().await.expect("kept");
                }
            }
        }));
    }
    drive(&clock, async move {
        for machine in machines {
            machine.await.expect("no panic");
        }
    })
    .await;
    let ran = ran.lock().expect("no panic");
    let mut by_machine = BTreeMap::<u64, u64>::new();
    for slot in 1..=SLOTS {
        let start = UNIX_EPOCH + START + SLOT * u32::try_from(slot).expect("small");
        let machines = ran.get(&start).map_or(&[][..], Vec::as_slice);
        assert_eq!(machines.len(), 1, "slot {slot} was run by {machines:?}");
        *by_machine.entry(machines[0]).or_default() += 1;
    }
    assert_eq!(ran.len() as u64, SLOTS, "no slot but these");
    assert!(by_machine.len() > 3, "the machines take turns: {by_machine:?}");
}

#[tokio::test]
async fn a_lock_of_another_kind_is_in_the_way_and_is_no_slot() {
    let (engine, clock) = engine();
    let client = machine(&engine, &clock, 1);
    let held = client.mutex("report").expect("good").lock().await.expect("free");
    let error = once(&client, at_once(at(&clock, 0))).begin().await.expect_err("held");
    assert!(matches!(error.kind(), ErrorKind::Busy { holder: Some(_) }), "{error}");

    let wait = |wait| {
        let job = once(&client, at(&clock, 0).with_lock(LockOptions::default().with_wait(wait)));
        tokio::spawn(async move { job.begin().await })
    };
    let timed_out = drive(&clock, wait(5 * S)).await.expect("no panic").expect_err("held");
    let ErrorKind::TimedOut { waited, holder: Some(_) } = timed_out.kind() else {
        panic!("{timed_out}")
    };
    assert!((5 * S..7 * S).contains(waited), "{timed_out}");

    let waiting = wait(60 * S);
    pass(&clock, 20 * S).await;
    assert!(!waiting.is_finished());
    let _ = held.release().await;
    let begun = drive(&clock, waiting).await.expect("no panic").expect("free");
    assert!(matches!(begun, Begun::Run(_)), "{begun:?}");
}

/// The slot of a job was changed while the old one is kept. No clock is wrong, and a start that
/// does not wait ends.
#[tokio::test]
async fn a_slot_of_another_length_is_in_the_way_and_no_clock_is_blamed() {
    for (kept, now) in [(QUARTER, 96 * QUARTER), (96 * QUARTER, QUARTER)] {
        let (engine, clock) = engine();
        clock.advance(QUARTER + 300 * S);
        let client = machine(&engine, &clock, 1);
        let job = |slot, options| {
            client.once_with("report", Slot::every(slot), options).expect("a good slot")
        };
        assert!(run(&job(kept, at(&clock, 0))).await.ran());
        let error = job(now, at_once(at(&clock, 0))).begin().await.expect_err("kept");
        assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
        let waits = at(&clock, 0).with_lock(LockOptions::default().with_wait(5 * S));
        let waits = job(now, waits);
        let waiting = tokio::spawn(async move { waits.begin().await });
        let error = drive(&clock, waiting).await.expect("no panic").expect_err("kept");
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    }
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_asked() {
    let (engine, clock) = engine();
    let client = machine(&engine, &clock, 1);
    let quarter = || Slot::every(QUARTER);
    let cron = |expression: &str, zone: &str| Slot::cron(expression, zone);
    let plain = || at(&clock, 0);
    let keep = LockOptions::default().with_keep(holdline::Keep::Detached);
    for (slot, options, field) in [
        (Slot::every(Duration::ZERO), plain(), "slot"),
        (Slot::every(Duration::from_secs(367 * 86_400)), plain(), "slot"),
        (cron("0 0 30 2 *", "UTC"), plain(), "slot"),
        (cron("every day", "UTC"), plain(), "slot"),
        (cron("0 3 * * *", "Mars/Base"), plain(), "slot"),
        (Slot::every(2 * S), plain(), "max_skew"),
        (quarter(), plain().with_max_skew(QUARTER), "max_skew"),
        (quarter(), plain().with_at_most_once(true).with_retries(1), "retries"),
        (quarter(), plain().with_lock(keep), "lock"),
    ] {
        let error = client.once_with("report", slot, options).expect_err("refused");
        let named =
            matches!(error.kind(), ErrorKind::Invalid { field: wrong, .. } if *wrong == field);
        assert!(named, "{field}: {error}");
    }
    let error = client.once("", quarter()).expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "name", .. }), "{error}");
}

const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// A job that runs at most once, in slots that a lease keeps or that only a freeze can keep.
fn at_most_once(client: &Client, clock: &ManualClock, slot: Duration) -> Once {
    let options = at_once(at(clock, 0)).with_at_most_once(true);
    client.once_with("report", Slot::every(slot), options).expect("good")
}

#[tokio::test]
async fn a_start_that_is_dropped_leaves_the_slot_to_others() {
    for slot in [QUARTER, WEEK] {
        // After each of these times, another request is under way.
        for after in (0..24).map(|n| n * 250 * MS) {
            let (inner, clock) = engine();
            let faulty = Faulty::new(inner.clone());
            faulty.slow(clock.clone(), S / 2);
            let holder = HolderFields { host: "host1".to_owned(), ..HolderFields::default() };
            let options = options(&clock, 1).with_holder(holder);
            let here = Client::with_options(Arc::new(faulty), options).expect("a client");
            let job = at_most_once(&here, &clock, slot);
            let starting = tokio::spawn(async move { job.begin().await.map(drop) });
            settle().await;
            pass(&clock, after).await;
            if starting.is_finished() {
                // It was begun and dropped, so the job may have run.
                break;
            }
            starting.abort();
            settle().await;
            pass(&clock, 11 * S).await;
            let snapshot = look(&here, "report").await;
            assert!(snapshot.freeze.is_none() && !snapshot.is_held(), "{after:?}: {snapshot:?}");
            let report = here.shutdown(S).await;
            assert!(report.is_clean(), "{after:?}: {report:?}");
            let there = machine(&inner, &clock, 2);
            assert!(run(&at_most_once(&there, &clock, slot)).await.ran(), "{after:?}");
        }
    }
}

#[tokio::test]
async fn a_freeze_whose_lifting_fails_is_lifted_later() {
    let (inner, clock) = engine();
    let faulty = Faulty::new(inner.clone());
    let here = Client::with_options(Arc::new(faulty.clone()), options(&clock, 1)).expect("made");
    let Begun::Run(begun) = at_most_once(&here, &clock, WEEK).begin().await.expect("free") else {
        panic!("the slot is free")
    };
    let away = || {
        let kind = ErrorKind::Unavailable { message: "away".to_owned() };
        LockError::new("test", kind, Certainty::NotApplied)
    };
    faulty.line.refused_operations.lock().extend([away(), away(), away()]);
    let _ = begun.give_back().await;
    assert!(look(&here, "report").await.freeze.is_some(), "the store was away");
    pass(&clock, 10 * S).await;
    assert!(look(&here, "report").await.freeze.is_none());
    assert!(here.shutdown(S).await.is_clean());
    // The freeze of an operator stays.
    let Begun::Run(begun) =
        at_most_once(&machine(&inner, &clock, 4), &clock, WEEK).begin().await.expect("free")
    else {
        panic!("the slot is free")
    };
    let operator = machine(&inner, &clock, 3);
    let name = crate::support::name("report");
    let (reason, duration) = ("we move".to_owned(), 60 * S);
    let freeze = holdline::admin::Operation::Freeze { name, duration, reason };
    operator.admin().operate(&freeze).await.expect("frozen");
    let _ = begun.give_back().await;
    assert_eq!(look(&operator, "report").await.freeze.expect("frozen").reason, "we move");
}

#[tokio::test]
async fn a_job_whose_lease_was_lost_is_not_marked() {
    for slot in [QUARTER, WEEK] {
        for once_at_most in [false, true] {
            let (inner, clock) = engine();
            let here = machine(&inner, &clock, 1);
            let options = at_once(at(&clock, 0)).with_at_most_once(once_at_most);
            let job = here.once_with("report", Slot::every(slot), options).expect("good");
            let Begun::Run(begun) = job.begin().await.expect("free") else {
                panic!("the slot is free")
            };
            let token = begun.guard().fencing_token();
            let (name, reason) = (crate::support::name("report"), "we move".to_owned());
            let revoke = holdline::admin::Operation::Revoke { name, token, reason, now: true };
            here.admin().operate(&revoke).await.expect("revoked");
            settle().await;
            let error = begun.finish().await.expect_err("lost");
            assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
        }
    }
    // The lease of a job that outlasts its slot may be lost too.
    let (inner, clock) = engine();
    let here = machine(&inner, &clock, 1);
    let Begun::Run(begun) = once(&here, at(&clock, 0)).begin().await.expect("free") else {
        panic!("the slot is free")
    };
    clock.advance(QUARTER + S);
    assert!(matches!(begun.finish().await.expect_err("lost").kind(), ErrorKind::Lost { .. }));
}
