//! What is built over locks, without async: elections, once per slot, any of several, latches.

use std::thread;
use std::time::Duration;

use holdline::audit::{AuditEntry, AuditRecord, AuditRequest, Operator};
use holdline::blocking::{Begun, Client};
use holdline::once::{OnceOptions, OnceOutcome, Slot};
use holdline::{ErrorKind, LockOptions};

const LIMIT: Duration = Duration::from_secs(60);

/// A client of this memory table, as another process would have one.
fn client(table: &str) -> Client {
    Client::connect(&format!("memory:blocking-{table}")).expect("made")
}

#[test]
fn the_next_candidate_leads_when_the_leader_resigns() {
    let first = client("election").election("service").expect("a name");
    assert!(first.leader().expect("an answer").is_none());
    let leads = first.campaign("one:80").expect("free");
    let mut leaders = first.observe();
    let seen = leaders.next().expect("one").expect("an answer");
    assert_eq!((seen.term(), seen.value()), (leads.term(), "one:80"));
    leads.proclaim("one:81").expect("it leads");
    let leader = first.leader().expect("an answer").expect("one");
    assert_eq!(leader.value(), "one:81");
    let next = thread::spawn(|| client("election").election("service")?.campaign("two:80"));
    assert!(leads.is_valid() && leads.held().is_valid());
    assert!(leads.resign().is_released());
    let next = next.join().expect("no panic").expect("its turn");
    let seen = leaders.next().expect("one").expect("an answer");
    assert_eq!((seen.term(), seen.value()), (next.term(), "two:80"));
    assert!(next.resign().is_released());
}

#[test]
fn a_call_waits_as_long_as_its_own_limit_says() {
    let limit = Duration::from_millis(20);
    let client = client("within");
    let held = client.mutex("a").expect("a name").lock_within(LIMIT).expect("free");
    let rwlock = client.rwlock("a").expect("a name");
    let permits = client.semaphore("permits", 1).expect("a name");
    let permit = permits.acquire_within(LIMIT).expect("free");
    let devices = client.any_of(["a"]).expect("names");
    for end in [
        client.mutex("a").expect("a name").lock_within(limit).map(drop),
        rwlock.read_within(limit).map(drop),
        rwlock.write_within(limit).map(drop),
        permits.acquire_within(limit).map(drop),
        permits.acquire_many_within(1, limit).map(drop),
        devices.lock_within(limit).map(drop),
        client.election("a").expect("a name").campaign_within("v", limit).map(drop),
    ] {
        let error = end.expect_err("held throughout");
        assert!(matches!(error.kind(), ErrorKind::TimedOut { .. }), "{error}");
    }
    assert!(held.release().is_released() && permit.release().is_released());
}

#[test]
fn a_job_runs_once_in_its_slot() {
    // So long that it does not end during the test.
    let slot = || Slot::every(Duration::from_secs(365 * 24 * 3600));
    let (first, second) = (client("once"), client("once"));
    let options = OnceOptions::default().with_retries(1);
    let report = first.once_with("report", slot(), options).expect("a slot");
    let mut runs = 0;
    let failed = report.run(|_| {
        runs += 1;
        Err::<(), _>("no disk")
    });
    assert!(matches!(failed, Ok(OnceOutcome::Failed("no disk"))), "{failed:?}");
    assert_eq!(runs, 2);
    let begun = report.begin().expect("free again");
    let Begun::Run(run) = begun else { panic!("{begun:?}") };
    assert!(run.held().is_valid());
    let elsewhere = second.once("report", slot()).expect("a slot");
    let no_wait = LockOptions::default().with_wait(Duration::ZERO);
    let options = OnceOptions::default().with_lock(no_wait);
    let at_once = second.once_with("report", slot(), options).expect("a slot");
    assert!(matches!(at_once.begin(), Ok(Begun::RunningElsewhere(_))));
    run.finish().expect("kept");
    let again = elsewhere.run(|_| Ok::<_, ()>(()));
    assert!(matches!(again, Ok(OnceOutcome::AlreadyRan(_))), "{again:?}");
}

#[test]
fn a_job_whose_lease_is_lost_meanwhile_is_not_said_to_have_run_once() {
    let (client, slot) = (client("once-lost"), Slot::every(Duration::from_secs(365 * 24 * 3600)));
    let report = client.once("report", slot).expect("a slot");
    let outcome = report.run(|held| {
        let revoke = holdline::admin::Operation::Revoke {
            name: held.name().clone(),
            token: held.fencing_token(),
            reason: "a test".to_owned(),
            now: true,
        };
        client.admin().operate(&revoke).expect("revoked");
        Ok::<_, ()>(())
    });
    assert!(matches!(outcome, Ok(OnceOutcome::Unmarked { .. })), "{outcome:?}");
}

#[test]
fn any_of_several_is_the_one_that_becomes_free() {
    let (first, second) = (client("any"), client("any"));
    let all = first.any_of(["gpu/0", "gpu/1"]).expect("names").lock_many(2).expect("free");
    let options = LockOptions::default().with_wait(LIMIT);
    let any = second.any_of_with(["gpu/0", "gpu/1"], &options).expect("names");
    assert!(any.try_lock().is_err_and(|error| error.is_contended()));
    let waits = thread::spawn(move || any.lock());
    let mut all = all.into_guards();
    let freed = all.remove(1);
    assert!(freed.release().is_released());
    let guard = waits.join().expect("no panic").expect("one is free");
    assert_eq!(guard.name().as_str(), "gpu/1");
}

#[test]
fn a_counting_semaphore_is_refused_where_there_is_none() {
    let error = client("counting").counting_semaphore("slots").expect_err("refused");
    assert!(error.to_string().contains("dialect=redisson"), "{error}");
}

#[test]
fn a_latch_opens_at_zero() {
    let latch = client("latch").latch("ready").expect("a name");
    assert!(latch.try_set(2).expect("set"));
    assert!(!latch.wait_for(Duration::ZERO).expect("an answer"));
    let waits = thread::spawn(|| client("latch").latch("ready")?.wait());
    assert_eq!(latch.count_down(1).expect("counted"), 1);
    assert_eq!((latch.count_down(1).expect("counted"), latch.count().expect("counted")), (0, 0));
    waits.join().expect("no panic").expect("open");
}

#[test]
fn operators_actions_are_recorded_and_read() {
    let client = client("audit");
    let operator = Operator { who: "ann".to_owned(), from: "a test".to_owned() };
    for action in ["freeze", "unfreeze", "freeze"] {
        client.admin().append_audit(AuditRecord::new(action, &operator)).expect("a trail");
    }
    let request = AuditRequest { limit: 1, ..AuditRequest::default() };
    let is_freeze = |entry: &AuditEntry| entry.record.action == "freeze";
    let newest = client.admin().audit(&request, is_freeze).expect("a trail");
    assert_eq!((newest.entries.len(), newest.entries[0].record.who.as_str()), (1, "ann"));
    let older = AuditRequest { before: newest.before, ..AuditRequest::default() };
    let older = client.admin().audit(&older, is_freeze).expect("a trail");
    assert_eq!((older.entries.len(), older.before), (1, None));
    assert!(older.entries[0].id < newest.entries[0].id);
}
