//! Contenders of the tests on real servers, and waiting for what must happen.

use std::future::Future;
use std::time::Duration;

use holdline::{Client, ErrorKind, Guard, LockName, LockOptions, ReleaseOutcome};
use tokio::task::JoinHandle;

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A lease of so many seconds.
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

/// Releases, until the cluster has confirmed it.
pub(crate) async fn let_go(guard: Guard) {
    let outcome = soon("the release", guard.release()).await;
    assert!(matches!(outcome, ReleaseOutcome::Released { .. }), "{outcome:?}");
}

/// Waits until a lease was renewed so many times more.
pub(crate) async fn renewed(guard: &Guard, times: usize) {
    for _ in 0..times {
        let before = guard.valid_until();
        until("a renewal", async || guard.valid_until() > before).await;
    }
}

/// Waits until so many wait for a name.
pub(crate) async fn queued(client: &Client, name: &str, count: usize) {
    let name = LockName::new(name).expect("a good name");
    until("they are queued", async || {
        let shown = client.inspect(&name).await;
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
