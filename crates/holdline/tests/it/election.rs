//! Elections: who leads, what observers see, and what happens when a leader is cut off.

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use holdline::admin::{ListRequest, Operation};
use holdline::clock::{Clock, ManualClock};
use holdline::election::{Leader, Leaders, MAX_VALUE_BYTES};
use holdline::engine::Capabilities;
use holdline::{
    Certainty, Client, Election, ErrorKind, Keep, LeaseId, LockError, LockOptions, LostReason,
};

use crate::faulty::{Fate, Faulty};
use crate::support::{client, drive, engine, look, name, pass, settle};

const S: Duration = Duration::from_secs(1);

fn election(client: &Client) -> Election {
    client.election("e").expect("a good name")
}

/// Returns the next leader, and moves the clock while the stream waits.
async fn next(clock: &ManualClock, leaders: Leaders) -> (Leader, Leaders) {
    let (leader, leaders) = drive(clock, async {
        let mut leaders = leaders;
        (leaders.next().await, leaders)
    })
    .await;
    (leader.expect("the stream goes on").expect("memory answers"), leaders)
}

fn seen(leader: &Leader) -> (u64, &str) {
    (leader.term().get(), leader.value())
}

#[tokio::test]
async fn observers_see_each_leader_once_and_the_value_that_it_proclaims() {
    let (engine, clock) = engine();
    let (one, two) = (client(engine.clone(), &clock, 1), client(engine.clone(), &clock, 2));
    let watcher = client(engine, &clock, 3);
    let first = election(&one).campaign("one").await.expect("nobody leads");
    let leader = election(&watcher).leader().await.expect("answered").expect("somebody leads");
    assert!(!leader.host().is_empty() && leader.since().is_some(), "{leader:?}");
    let (leader, leaders) = next(&clock, election(&watcher).observe()).await;
    assert_eq!(seen(&leader), (first.term().get(), "one"));

    for value in ["a", "b", "", "d"] {
        first.proclaim(value).await.expect("it leads");
        let (leader, _) = next(&clock, election(&watcher).observe()).await;
        assert_eq!(seen(&leader), (first.term().get(), value));
    }
    let second = tokio::spawn(async move { election(&two).campaign("two").await });
    settle().await;
    let term = first.term();
    assert!(first.resign().await.is_released());
    // Woken by the hand-off: no time has passed.
    let second = second.await.expect("no panic").expect("it leads");
    assert!(second.term() > term);
    let (leader, leaders) = next(&clock, leaders).await;
    assert_eq!(seen(&leader), (second.term().get(), "two"), "the value of the new leader");

    // Nothing new is seen of the same leader, whatever it proclaims.
    second.proclaim("two again").await.expect("it leads");
    let mut leaders = leaders;
    let waits = tokio::spawn(async move { leaders.next().await.is_some() });
    pass(&clock, 5 * S).await;
    assert!(!waits.is_finished());
    waits.abort();
    let _ = second.resign().await;
    let rest = watcher.admin().list(&ListRequest::default()).await.expect("listed").names;
    assert!(rest.is_empty(), "nothing is left: {rest:?}");
}

#[tokio::test]
async fn a_leader_that_is_cut_off_steps_down_before_the_next_one_leads() {
    let (engine, clock) = engine();
    let faulty = Faulty::new(engine.clone());
    let (one, two) = (client(faulty.clone(), &clock, 1), client(engine.clone(), &clock, 2));
    let options = LockOptions::default().with_lease_duration(5 * S);
    let first = one.election_with("e", &options).expect("fits").campaign("one").await;
    let first = first.expect("nobody leads");
    let term = first.term();
    faulty.line.judge(|_, _| Fate::RequestLost);
    let cut_off = clock.now();
    let (watch, watch_clock) = (first.held(), clock.clone());
    let lost = tokio::spawn(async move {
        let reason = watch.lost().await;
        (reason, watch_clock.now())
    });
    let next_clock = clock.clone();
    let next = drive(&clock, async move {
        let leadership = election(&two).campaign("two").await.expect("it leads");
        (leadership, next_clock.now())
    });
    let (second, leads) = next.await;
    let (reason, stepped_down) = lost.now_or_never().expect("before the next").expect("no panic");
    assert_eq!(reason, LostReason::Expired);
    assert!(stepped_down < leads && cut_off.until(stepped_down) < 5 * S);
    assert!(!first.is_valid() && second.is_valid() && second.term() > term);
    let error = first.proclaim("late").await.expect_err("it no longer leads");
    assert!(matches!(error.kind(), ErrorKind::Lost { .. }), "{error}");
    let leader = election(&client(engine, &clock, 3)).leader().await.expect("answered");
    assert_eq!(leader.as_ref().map(seen), Some((second.term().get(), "two")));
}

#[tokio::test]
async fn a_dead_leader_leaves_no_value_and_blocks_none() {
    let (engine, clock) = engine();
    let (one, two) = (client(engine.clone(), &clock, 1), client(engine, &clock, 2));
    let first = election(&one).campaign("one").await.expect("nobody leads");
    first.proclaim("of the dead").await.expect("it leads");
    // Its value lock outlives its grant, as that of a leader that died between two renewals.
    let token = first.term();
    let revoke = Operation::Revoke { name: name("e"), token, reason: "dead".into(), now: true };
    two.admin().operate(&revoke).await.expect("carried out");
    let second = election(&two).campaign("two").await.expect("nobody leads");
    assert_eq!(look(&one, "e:proclaimed-0").await.holder_count, 1, "it is still there");
    let leader = || async { election(&one).leader().await.expect("answered").expect("leads") };
    assert_eq!(leader().await.value(), "two");
    second.proclaim("new").await.expect("the other lock is free");
    assert_eq!(leader().await.value(), "new");
    drop(first);
}

#[tokio::test]
async fn run_drops_its_future_when_the_leadership_is_lost() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let options = LockOptions::default().with_lease_duration(2 * S).with_keep(Keep::Fixed);
    let election = client.election_with("e", &options).expect("fits");
    let leadership = election.campaign("").await.expect("nobody leads");
    let error = drive(&clock, async move { leadership.run(std::future::pending::<()>()).await });
    let error = error.await.expect_err("its lease ended");
    assert!(matches!(error.kind(), ErrorKind::Lost { reason: LostReason::RanOut }), "{error}");
    let leadership = election.campaign("").await.expect("free again");
    assert_eq!(leadership.run(async { 7 }).await.expect("it leads"), 7);
}

#[tokio::test]
async fn an_answer_that_was_overtaken_shows_no_older_leader() {
    let (engine, clock) = engine();
    let (one, two) = (client(engine.clone(), &clock, 1), client(engine.clone(), &clock, 2));
    let first = election(&one).campaign("one").await.expect("nobody leads");
    let old = look(&one, "e").await;
    let _ = first.resign().await;
    let _second = election(&two).campaign("two").await.expect("nobody leads");
    let faulty = Faulty::new(engine);
    let watcher = client(faulty.clone(), &clock, 3);
    let (leader, leaders) = next(&clock, election(&watcher).observe()).await;
    assert_eq!(leader.value(), "two");
    faulty.line.looks.lock().extend([Ok(old.clone()), Ok(old)]);
    let mut leaders = leaders;
    let waits = tokio::spawn(async move { leaders.next().await });
    pass(&clock, 5 * S).await;
    assert!(faulty.line.looks.lock().is_empty() && !waits.is_finished());
    waits.abort();
}

#[tokio::test]
async fn what_passes_is_waited_out_and_other_errors_end_the_stream() {
    let (engine, clock) = engine();
    let faulty = Faulty::new(engine);
    let client = client(faulty.clone(), &clock, 1);
    let fails = |kind| Err(LockError::new("faulty", kind, Certainty::NotApplied));
    let away = || fails(ErrorKind::Unavailable { message: "away".into() });
    faulty.line.looks.lock().extend([away(), fails(ErrorKind::NoQuorum { nodes: vec![] })]);
    let leadership = election(&client).campaign("one").await.expect("nobody leads");
    let (leader, leaders) = next(&clock, election(&client).observe()).await;
    assert_eq!(leader.term(), leadership.term());
    faulty.line.looks.lock().extend([fails(ErrorKind::Refused { message: "no".into() })]);
    let items = drive(&clock, async move { leaders.collect::<Vec<_>>().await }).await;
    let [Err(error)] = items.as_slice() else { panic!("{items:?}") };
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
}

fn invalid(result: Result<impl Sized, LockError>) -> (&'static str, String) {
    let Err(error) = result else { panic!("it is refused") };
    match error.kind() {
        ErrorKind::Invalid { field, message } => (field, message.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn bad_input_is_refused_before_anything_is_asked() {
    let (engine, clock) = engine();
    let client = client(engine.clone(), &clock, 1);
    let long = "x".repeat(MAX_VALUE_BYTES + 1);
    let (field, message) = invalid(election(&client).campaign(long.as_str()).await);
    assert_eq!(field, "value");
    assert!(message.contains("1024") && message.contains("1025"), "{message}");
    // The value fits by itself, but not together with the other fields.
    let (field, message) = invalid(election(&client).campaign(&long[1..]).await);
    assert_eq!(field, "value");
    assert!(message.contains("shorten the value"), "{message}");
    assert_eq!(invalid(client.election("")).0, "name");
    let (field, message) = invalid(client.election("n".repeat(500)));
    assert!(field == "name" && message.contains("499"), "{message}");
    assert!(client.election("n".repeat(499)).is_ok());
    let options = LockOptions::default().with_lease_id(LeaseId::from_bytes([7; 16]));
    assert_eq!(invalid(client.election_with("e", &options)).0, "lease_id");
    let names = client.admin().list(&ListRequest::default()).await.expect("listed").names;
    assert!(names.is_empty(), "{names:?}");

    let lacks: [fn(&mut Capabilities); 2] = [|has| has.fencing = false, |has| has.metadata = false];
    for lack in lacks {
        let faulty = Faulty::new(engine.clone()).with_capabilities(lack);
        let refused = crate::support::client(faulty, &clock, 2).election("e").map(|_| ());
        let error = refused.expect_err("unsupported");
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_leadership_that_is_dropped_is_resigned() {
    let (engine, clock) = engine();
    let client = client(engine, &clock, 1);
    let leadership = election(&client).campaign("one").await.expect("nobody leads");
    leadership.proclaim("x").await.expect("it leads");
    let cancelled = leadership.cancellation_token();
    drop(leadership);
    assert!(cancelled.is_cancelled());
    assert!(client.shutdown(5 * S).await.is_clean());
}
