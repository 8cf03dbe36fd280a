//! What the tests share: clients, and waiting for what must happen.

use std::future::Future;
use std::time::Duration;

use holdline::{Client, ErrorKind, Guard, LockError, LockName, LockOptions, ReleaseOutcome};
use holdline_services::EtcdCluster;
use tokio::task::JoinHandle;

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A client with short deadlines, so that a member that stands still is soon left.
pub(crate) async fn client(url: &str) -> Client {
    try_client(url).await.expect("connected")
}

pub(crate) async fn try_client(url: &str) -> Result<Client, LockError> {
    Client::connect(&format!("{url}?command_timeout_ms=3000&connect_timeout_ms=3000")).await
}

/// A client that asks this member first, and then the others.
pub(crate) async fn first_at(cluster: &EtcdCluster, member: usize) -> Client {
    let hosts = [0, 1, 2].map(|on| cluster.address((member + on) % 3).to_string());
    client(&format!("etcd://{}", hosts.join(","))).await
}

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

/// Tries a name until it is told that too few members agree; at first it may ask one that has not
/// noticed yet.
pub(crate) async fn refused_by_too_few(client: &Client, name: &str) {
    let mutex = client.mutex_with(name, &lease(5)).expect("a good lock");
    until("too few", async || {
        let refused = mutex.try_lock().await.expect_err("no majority");
        matches!(refused.kind(), ErrorKind::NoQuorum { .. })
    })
    .await;
}

/// Tries a name until it is told that nobody answers.
pub(crate) async fn unanswered(client: &Client, name: &str) {
    let mutex = client.mutex_with(name, &lease(5)).expect("a good lock");
    until("no answer", async || {
        let refused = mutex.try_lock().await.expect_err("nobody answers");
        matches!(refused.kind(), ErrorKind::Unavailable { .. })
    })
    .await;
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
