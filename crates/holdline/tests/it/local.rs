//! The same on the engine of this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdline::admin::Operation;
use holdline::clock::Moment;
use holdline::{Client, Keep, LockOptions, LostReason, ReleaseOutcome, RiskReason, blocking};
use rustix::fd::AsFd;

use crate::support::{eventually, locked, name, soon};

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = format!("holdline-it-{}-{number}", std::process::id());
        Scratch(Path::new(env!("CARGO_TARGET_TMPDIR")).join(own))
    }

    fn url(&self) -> String {
        format!("local://{}", self.0.display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn a_release_into_a_removed_store_is_lost() {
    let scratch = Scratch::new();
    let client = Client::connect(&scratch.url()).await.expect("opens");
    let options = LockOptions::default().with_keep(Keep::Live);
    let mutex = client.mutex_with("a", &options).expect("fits");
    let guard = mutex.lock().await.expect("free");
    std::fs::remove_dir_all(&scratch.0).expect("removed");
    let outcome = soon(guard.release()).await;
    let ReleaseOutcome::Lost { reason: LostReason::StoreGone(_) } = outcome else {
        panic!("{outcome:?}");
    };
}

#[tokio::test]
async fn a_guard_of_a_store_that_was_removed_does_not_hold_up_the_shutdown() {
    let scratch = Scratch::new();
    let client = Client::connect(&scratch.url()).await.expect("opens");
    let guard = client.mutex("a").expect("good").lock().await.expect("free");
    std::fs::remove_dir_all(&scratch.0).expect("removed");
    drop(guard);
    let limit = Duration::from_secs(3_600);
    assert!(soon(client.shutdown(limit)).await.is_clean(), "nothing is there to be given up");
}

#[tokio::test]
async fn a_fixed_lease_notices_a_revoke_right_after_its_grant() {
    let scratch = Scratch::new();
    let client = Client::connect(&scratch.url()).await.expect("opens");
    // Others wait here already, so hints are read and given to those who watch, and nobody else.
    let _others = client.admin().engine().watch(&name("b"), client.leases().draw_id());
    let fixed = LockOptions::default().with_keep(Keep::Fixed);
    let guard = client.mutex_with("a", &fixed).expect("fits").lock().await.expect("free");
    let revoke = Operation::Revoke {
        name: name("a"),
        token: guard.fencing_token(),
        reason: "maintenance".into(),
        now: false,
    };
    client.admin().operate(&revoke).await.expect("revoked");
    let at_risk = tokio::time::timeout(Duration::from_secs(15), guard.at_risk()).await;
    let risk = at_risk.expect("long before it runs out");
    assert!(matches!(&risk, RiskReason::Revoked(reason) if reason == "maintenance"), "{risk:?}");
}

#[tokio::test]
async fn two_clients_hand_a_name_over() {
    let scratch = Scratch::new();
    let one = Client::connect(&scratch.url()).await.expect("opens");
    let two = Client::connect(&scratch.url()).await.expect("opens");
    assert_eq!(one.capabilities().identity, two.capabilities().identity);
    let first = one.mutex("a").expect("good").lock().await.expect("free");
    let waiter = tokio::spawn(locked(two.mutex("a").expect("good")));
    let queued = || async { one.admin().inspect(&name("a")).await.expect("answers").queue_length };
    soon(async {
        while queued().await == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let token = first.fencing_token();
    assert!(matches!(first.release().await, ReleaseOutcome::Released { confirmed: true, .. }));
    let second = soon(waiter).await.expect("no panic").expect("handed over");
    assert!(second.fencing_token() > token);
    drop(second);
    let report = two.shutdown(Duration::from_secs(10)).await;
    assert!(report.is_clean(), "{report:?}");
    assert!(!one.admin().inspect(&name("a")).await.expect("answers").is_held());
}

#[test]
fn a_live_grant_has_an_anchor_to_inherit_and_ends_with_its_guard() {
    let scratch = Scratch::new();
    let client = blocking::Client::connect(&scratch.url()).expect("opens");
    let live = LockOptions::default().with_keep(Keep::Live);
    let mutex = client.mutex_with("a", &live).expect("local can");
    let guard = mutex.lock().expect("free");
    assert!(guard.is_valid());
    assert_eq!(guard.valid_until(), Moment::NEVER);
    // A child inherits the anchor as its input.
    let anchor = guard.anchor().expect("a live grant has one").descriptor();
    let anchor = anchor.as_fd().try_clone_to_owned().expect("a descriptor");
    let mut child =
        Command::new("sleep").arg("60").stdin(Stdio::from(anchor)).spawn().expect("runs");
    let held = || client.admin().inspect(&name("a")).expect("answers").is_held();
    assert!(held());
    let outcome = guard.release();
    assert!(outcome.is_released() && !held(), "its guard ends it all the same");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn dropped_guards_and_attempts_leave_nothing() {
    let scratch = Scratch::new();
    let client = blocking::Client::connect(&scratch.url()).expect("opens");
    let mutex = client.as_async().mutex("a").expect("good");
    let first = client.mutex("a").expect("good").lock().expect("free");
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..100 {
        let mut waiting = Box::pin(mutex.lock());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    drop(first);
    eventually("nobody holds or waits", || {
        let seen = client.admin().inspect(&name("a")).expect("answers");
        !seen.is_held() && seen.queue_length == 0
    });
    assert!(client.shutdown(Duration::from_secs(10)).is_clean());
}

#[tokio::test]
async fn wrong_urls_get_the_engines_error() {
    let scratch = Scratch::new();
    let url = format!("{}?max_waiter=5", scratch.url());
    let error = Client::connect(&url).await.expect_err("no such parameter").to_string();
    assert!(error.contains("max_waiters"), "{error}");
}
