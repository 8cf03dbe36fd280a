//! Clients of the library, and a checker that sees every grant.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdline::{Client, Guard, Held, LockError, LockName, LockOptions, ReleaseOutcome};
use holdline_services::PostgresServer;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::support::{LIMIT, connect, eventually};

/// A client of this URL with deadlines that a busy machine keeps.
pub(crate) async fn client_at(url: &str) -> Client {
    let joint = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{joint}command_timeout_ms=5000&connect_timeout_ms=10000");
    Client::with_options(
        Arc::new(connect(&url).await.expect("connected")),
        holdline::ClientOptions::default(),
    )
    .expect("a client")
}

pub(crate) async fn client(server: &PostgresServer) -> Client {
    client_at(&server.url()).await
}

/// The way in that no network is on.
pub(crate) fn by_socket(server: &PostgresServer) -> String {
    let (directory, port) = (server.directory().display(), server.address().port());
    format!("postgres://postgres@/postgres?host={directory}&port={port}")
}

/// A lease of this many milliseconds.
pub(crate) fn lease(millis: u64) -> LockOptions {
    LockOptions::default().with_lease_duration(Duration::from_millis(millis)).with_wait(LIMIT)
}

/// The lease of those who are to survive what happens to others.
pub(crate) fn waiting_renewals() -> LockOptions {
    lease(30_000).with_renew_interval(Duration::from_millis(500))
}

/// Takes a name.
pub(crate) async fn take(client: &Client, name: &str, options: &LockOptions) -> Guard {
    let mutex = client.mutex_with(name, options).expect("a good lock");
    soon("the lock", mutex.lock()).await.expect("the lock")
}

/// Takes a name in a task, and returns when it is queued.
pub(crate) async fn queued(
    server: &PostgresServer,
    client: &Client,
    name: &'static str,
) -> JoinHandle<Guard> {
    let client = client.clone();
    let waiting = tokio::spawn(async move { take(&client, name, &waiting_renewals()).await });
    let ask = format!("select count(*) from holdline.waiters where name = '{name}'");
    eventually("it is queued", || server.sql(&ask) == ["1"]).await;
    waiting
}

/// Asks once.
pub(crate) async fn try_take(client: &Client, name: &str) -> Result<Guard, LockError> {
    let mutex = client.mutex_with(name, &waiting_renewals()).expect("a good lock");
    soon("an answer", mutex.try_lock()).await
}

/// Releases, and must have held.
pub(crate) async fn release(guard: Guard) {
    let outcome = soon("the release", guard.release()).await;
    assert!(matches!(outcome, ReleaseOutcome::Released { .. }), "{outcome:?}");
}

/// Waits until a lease was renewed once more.
pub(crate) async fn renewed(guard: &Guard) {
    let before = guard.valid_until();
    eventually("a renewal", || guard.valid_until() > before).await;
}

/// Waits until the server answers a client again.
pub(crate) async fn reached(client: &Client) {
    let name = LockName::new("reached").expect("a good name");
    soon("an answer", async { while client.admin().inspect(&name).await.is_err() {} }).await;
}

/// Waits until nobody holds and nobody waits.
pub(crate) async fn clean(server: &PostgresServer, clients: &[&Client]) {
    for client in clients {
        let report = soon("a shutdown", client.shutdown(LIMIT)).await;
        assert!(report.is_clean(), "{report:?}");
    }
    nothing_left(server).await;
}

/// Waits until nobody holds and nobody waits.
pub(crate) async fn nothing_left(server: &PostgresServer) {
    let ask = "select (select count(*) from holdline.names \
            where (holder).token is not null or shared > 0) \
        + (select count(*) from holdline.waiters)";
    eventually("nothing is left", || server.sql(ask) == ["0"]).await;
}

/// Fails the test when what must happen does not.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done,
        Err(_) => panic!("not within {LIMIT:?}: {what}"),
    }
}

/// Sees the grants of one exclusive name: at most one is valid, and tokens grow.
#[derive(Default)]
pub(crate) struct Referee(Mutex<(Vec<Held>, u64)>);

impl Referee {
    /// Notes a new grant.
    pub(crate) fn granted(&self, guard: &Guard) {
        let mut seen = self.0.lock();
        let (held, last) = &mut *seen;
        held.retain(Held::is_valid);
        assert!(held.is_empty(), "two are valid: {held:?} and {guard:?}");
        let token = guard.fencing_token().get();
        assert!(token > *last, "token {token} after {last}");
        *last = token;
        held.push(guard.held());
    }
}
