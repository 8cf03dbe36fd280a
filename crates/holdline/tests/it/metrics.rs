//! What is measured: each attempt and each hold once, whatever becomes of it.

use std::time::Duration;

use holdline::admin::Operation;
use holdline::fence::{Fenced, FencedCell, Proof, Rules};
use holdline::{Client, ClientOptions, FencingToken, Keep, LockOptions};

use crate::faulty::{Fate, Faulty};
use crate::recorder::Recorded;
use crate::support::{engine, locked, name, options, pass, settle};

const S: Duration = Duration::from_secs(1);

/// Runs a test on this thread, with a recorder of its own.
fn with_recorder(test: impl AsyncFnOnce(Recorded)) {
    let recorded = Recorded::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let test = test(recorded.clone());
    metrics::with_local_recorder(&recorded, || runtime.block_on(test));
}

fn measured(clock: &holdline::clock::ManualClock, seed: u64) -> ClientOptions {
    options(clock, seed).with_metrics()
}

#[test]
fn every_attempt_and_every_hold_is_counted_once() {
    with_recorder(async |seen: Recorded| {
        let (engine, clock) = engine();
        let client = Client::with_options(std::sync::Arc::new(engine), measured(&clock, 1));
        let client = client.expect("a client");
        let class = LockOptions::default().with_class("invoice:{id}");
        let lock = |name: &str, options: LockOptions| client.mutex_with(name, &options);
        let mutex = lock("invoice:7", class.clone()).expect("fits");

        // Acquired and released after 2 s; busy; out of time; cancelled after 3 s; in the queue.
        let guard = mutex.lock().await.expect("free");
        mutex.try_lock().await.expect_err("held");
        let limited = lock("invoice:7", class.clone().with_wait(S)).expect("fits");
        let limited = tokio::spawn(locked(limited));
        let cancelled = tokio::spawn(locked(mutex.clone()));
        settle().await;
        let labels = "engine=memory,class=invoice:{id}";
        assert_eq!(seen.values(&format!("holdline_waiting {labels}")), [2.0], "{seen:?}");
        assert_eq!(seen.values(&format!("holdline_held {labels}")), [1.0], "{seen:?}");
        pass(&clock, 3 * S).await;
        limited.await.expect("no panic").expect_err("out of time");
        cancelled.abort();
        settle().await;
        assert!(guard.release().await.is_released());

        // Dropped, detached and taken up again, lost.
        drop(mutex.lock().await.expect("free"));
        settle().await;
        let lease = mutex.lock().await.expect("free").detach().await.expect("detached");
        let attached = client.leases().attach(&lease).await.expect("ours");
        let _ = attached.release().await;
        let fixed = class.clone().with_keep(Keep::Fixed).with_lease_duration(S);
        let lost = lock("invoice:8", fixed).expect("fits").lock().await.expect("free");
        pass(&clock, 2 * S).await;
        assert!(lost.release().await.is_lost());
        let late = mutex.lock().await.expect("free");
        let token = late.fencing_token();
        let revoke =
            Operation::Revoke { name: name("invoice:7"), token, reason: "x".into(), now: true };
        client.admin().operate(&revoke).await.expect("carried out");
        // The loss is found by the release.
        assert!(late.release().await.is_lost());

        let values = |metric: &str, label: &str| seen.values(&format!("{metric} {labels},{label}"));
        let count = |metric: &str, label: &str| values(metric, label).iter().sum::<f64>();
        for (outcome, times) in
            [("acquired", 5.0), ("busy", 1.0), ("timeout", 1.0), ("cancelled", 1.0), ("error", 0.0)]
        {
            let counted = count("holdline_acquire_total", &format!("outcome={outcome}"));
            assert_eq!(counted, times, "{outcome}: {seen:?}");
        }
        assert_eq!(values("holdline_wait_seconds", "outcome=timeout"), [1.0]);
        assert_eq!(values("holdline_wait_seconds", "outcome=cancelled"), [3.0]);
        assert_eq!(values("holdline_hold_seconds", "end=released"), [3.0]);
        // Who takes a lease up knows its name only, so its class is the one of the client's rule.
        let attached = "holdline_hold_seconds engine=memory,class=default,end=released";
        assert_eq!(seen.values(attached), [0.0]);
        assert_eq!(values("holdline_hold_seconds", "end=dropped"), [0.0]);
        assert_eq!(values("holdline_hold_seconds", "end=detached"), [0.0]);
        assert_eq!(values("holdline_hold_seconds", "end=lost").len(), 2);
        assert_eq!(count("holdline_lost_total", "reason=ran_out"), 1.0, "{seen:?}");
        assert_eq!(count("holdline_lost_total", "reason=revoked"), 1.0, "{seen:?}");
        for gauge in ["holdline_held", "holdline_waiting"] {
            assert_eq!(seen.values(&format!("{gauge} {labels}")), [0.0], "{gauge}: {seen:?}");
        }
        assert!(!format!("{seen:?}").contains("invoice:7"), "a name is no label: {seen:?}");
    });
}

#[test]
fn renewals_and_requests_are_timed() {
    with_recorder(async |seen: Recorded| {
        let (engine, clock) = engine();
        let faulty = Faulty::new(engine);
        let rule = |name: &holdline::LockName| Some(name.as_str()[..1].to_owned());
        let options = measured(&clock, 1).with_class_rule(rule);
        let client = Client::with_options(std::sync::Arc::new(faulty.clone()), options);
        let client = client.expect("a client");
        let lease = LockOptions::default().with_lease_duration(9 * S);
        let mutex = client.mutex_with("a/1", &lease).expect("fits");
        let guard = mutex.lock().await.expect("free");
        pass(&clock, 4 * S).await;
        let slack = seen.values("holdline_lease_slack_seconds engine=memory,class=a");
        assert!(slack.iter().all(|slack| (5.0..9.0).contains(slack)), "{seen:?}");
        for (op, times) in [("acquire", 1), ("renew", slack.len())] {
            let key = format!("holdline_store_op_seconds engine=memory,op={op},outcome=ok");
            assert!(times > 0 && seen.values(&key).len() == times, "{seen:?}");
        }
        faulty.line.judge(|_, _| Fate::Refused);
        let _ = guard.release().await;
        let key = "holdline_store_op_seconds engine=memory,op=release,outcome=error";
        assert!(!seen.values(key).is_empty(), "{seen:?}");
    });
}

#[test]
fn refusals_of_a_fence_are_counted() {
    with_recorder(async |seen: Recorded| {
        let rules = Rules::default().with_observer(holdline::metrics::fence_observer());
        let stock = FencedCell::new(10).with_rules(rules);
        let token = |number| Proof::exclusive(FencingToken::new(number).expect("a token"));
        stock.seal(&token(7)).expect("newer");
        stock.seal(&token(6)).expect_err("older");
        assert_eq!(seen.values("holdline_fenced_rejects_total reason=stale"), [1.0], "{seen:?}");
    });
}

#[test]
fn without_the_option_nothing_is_recorded() {
    with_recorder(async |seen: Recorded| {
        let (engine, clock) = engine();
        let client = Client::with_options(std::sync::Arc::new(engine), options(&clock, 1));
        let client = client.expect("a client");
        let mutex = client.mutex("a").expect("good");
        let _ = mutex.lock().await.expect("free").release().await;
        assert!(seen.all().is_empty(), "{seen:?}");
    });
}
