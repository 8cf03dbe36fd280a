//! Contenders of the tests on real servers, and waiting for what must happen.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use futures_util::FutureExt;
use holdline::admin::ListRequest;
use holdline::{Client, ErrorKind, Guard, Keep, LockError, LockName, LockOptions, ReleaseOutcome};
use tokio::task::JoinHandle;

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A lease of this many seconds.
pub(crate) fn lease(seconds: u64) -> LockOptions {
    LockOptions::default().with_lease_duration(Duration::from_secs(seconds))
}

/// The lease of those who are to survive what happens to the members.
pub(crate) fn patient() -> LockOptions {
    lease(30).with_renew_interval(Duration::from_millis(500)).with_wait(LONG)
}

/// Takes a name; asks again where the members had no leader for longer than an attempt asks.
pub(crate) async fn take(client: &Client, name: &str, options: &LockOptions) -> Guard {
    let mutex = client.mutex_with(name, options).expect("a good lock");
    let taken = async {
        loop {
            match mutex.lock().await {
                Ok(guard) => return guard,
                Err(error) => {
                    let away = matches!(error.kind(), ErrorKind::Unavailable { .. });
                    assert!(away, "no lock: {error:?}");
                }
            }
        }
    };
    soon("the lock", taken).await
}

/// Takes a name in a task.
pub(crate) fn taking(client: &Client, name: &'static str) -> JoinHandle<Guard> {
    let client = client.clone();
    tokio::spawn(async move { take(&client, name, &patient()).await })
}

/// The guards that are lost still exist, as in a task that hangs, and the session goes on with
/// another lock.
pub(crate) async fn lost_guards_free_the_name(one: &Client, other: &Client) {
    let _kept = take(one, "kept", &lease(10)).await;
    let fixed = lease(10).with_keep(Keep::Fixed);
    let limited = lease(10).with_max_hold(Duration::from_secs(2));
    for (name, options) in [("fixed", fixed), ("limited", limited)] {
        let hangs = take(one, name, &options).await;
        let token = hangs.fencing_token();
        soon("the loss", hangs.lost()).await;
        let next = take(other, name, &lease(10).with_wait(LONG)).await;
        assert!(next.fencing_token() > token);
        let_go(next).await;
    }
}

/// Releases, until the cluster has confirmed it.
pub(crate) async fn let_go(guard: Guard) {
    let outcome = soon("the release", guard.release()).await;
    assert!(matches!(outcome, ReleaseOutcome::Released { .. }), "{outcome:?}");
}

/// Waits until a lease was renewed this many times more.
pub(crate) async fn renewed(guard: &Guard, times: usize) {
    for _ in 0..times {
        let before = guard.valid_until();
        until("a renewal", async || guard.valid_until() > before).await;
    }
}

/// Waits until this many wait for a name.
pub(crate) async fn queued(client: &Client, name: &str, count: usize) {
    let name = LockName::new(name).expect("a good name");
    until("they are queued", async || {
        let shown = client.admin().inspect(&name).await;
        shown.is_ok_and(|shown| shown.queue_length == count)
    })
    .await;
}

/// Fails the test when what must happen does not.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, work).await {
        Ok(done) => done,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + LONG;
    while !so().await {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: looked for until it is seen
    }
}

/// Releases one guard, drops another and asks for a third name: all without waiting for anything.
pub(crate) fn misuse(client: &Client, released: Guard, dropped: Guard) -> String {
    let outcome = released.release().now_or_never();
    drop(dropped);
    let mutex = client.mutex_with("c", &patient()).expect("a good lock");
    let asked = mutex.try_lock().now_or_never();
    match (outcome, asked) {
        (Some(ReleaseOutcome::Released { confirmed: false, .. }), Some(Err(error))) => {
            error.to_string()
        }
        other => format!("{other:?}"),
    }
}

/// What is typed must be refused.
pub(crate) fn invalid(outcome: Result<impl Sized, LockError>, what: &str) {
    let Err(error) = outcome else { panic!("accepted: {what}") };
    assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{what}: {error:?}");
}

/// Leases that no engine of servers gives are refused.
pub(crate) async fn durations_out_of_range_are_invalid(client: &Client) {
    for lease in [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(31), Duration::MAX]
    {
        let options = LockOptions::default().with_lease_duration(lease);
        let outcome = match client.mutex_with("a", &options) {
            Ok(mutex) => soon("an answer", mutex.try_lock()).await.map(drop),
            Err(error) => Err(error),
        };
        invalid(outcome, &format!("{lease:?}"));
    }
}

/// Takes all names at once: each is a lock, and is shown as it was written.
pub(crate) async fn all_are_locks_of_their_own(client: &Client, names: &[&str]) {
    let mut guards = Vec::new();
    for name in names {
        guards.push(take(client, name, &patient()).await);
    }
    let tokens: BTreeSet<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    assert_eq!(tokens.len(), names.len(), "no two of them are one lock");
    let request = ListRequest { limit: 1_000, ..ListRequest::default() };
    let listed = soon("a list", client.admin().list(&request)).await.expect("an answer").names;
    let listed: BTreeSet<String> =
        listed.iter().map(|shown| shown.name.as_str().to_owned()).collect();
    assert_eq!(listed, names.iter().map(|name| (*name).to_owned()).collect(), "byte for byte");
    for guard in guards {
        let_go(guard).await;
    }
}
