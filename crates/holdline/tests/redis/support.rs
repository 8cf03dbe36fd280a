//! What the tests share: servers, impatient clients, and a referee who sees every grant.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use holdline::{Client, Guard, Held, LockError, LockName, LockOptions, ReleaseOutcome};
use holdline_services::{RedisConfig, RedisServer, Reply};
use parking_lot::Mutex;

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

/// A URL with short deadlines: 400 ms for a command, 3 s for a connection.
pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("redis://{address}?command_timeout_ms=400&connect_timeout_ms=3000")
}

/// A client with short deadlines.
pub(crate) async fn client_at(address: SocketAddr) -> Client {
    client(&url_of(address)).await
}

pub(crate) async fn client(url: &str) -> Client {
    Client::connect(url).await.expect("connected")
}

/// A lease of so many milliseconds.
pub(crate) fn lease(millis: u64) -> LockOptions {
    LockOptions::default().with_lease_duration(Duration::from_millis(millis))
}

/// The lease of those who are renewed often and are to survive what happens to others.
pub(crate) fn patient() -> LockOptions {
    lease(6_000).with_renew_interval(Duration::from_millis(300)).with_wait(LONG)
}

/// Takes a name.
pub(crate) async fn take(client: &Client, name: &str, options: &LockOptions) -> Guard {
    let mutex = client.mutex_with(name, options).expect("a good lock");
    soon("the lock", mutex.lock_owned()).await.expect("the lock")
}

/// Asks once.
pub(crate) async fn try_take(
    client: &Client,
    name: &str,
    options: &LockOptions,
) -> Result<Guard, LockError> {
    let mutex = client.mutex_with(name, options).expect("a good lock");
    soon("an answer", mutex.try_lock()).await
}

/// Waits until the server answers a client again.
pub(crate) async fn reached(client: &Client) {
    let name = LockName::new("reached").expect("a good name");
    let asked = async {
        while client.inspect(&name).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await; // event: asked until answered
        }
    };
    soon("an answer", asked).await;
}

/// Releases, and must have held without doubt.
pub(crate) async fn let_go(guard: Guard) {
    let outcome = soon("the release", guard.release()).await;
    assert!(matches!(outcome, ReleaseOutcome::Released { confirmed: true, .. }), "{outcome:?}");
}

/// Waits until a lease was renewed once more.
pub(crate) async fn renewed(guard: &Guard) {
    let before = guard.valid_until();
    until("a renewal", || guard.valid_until() > before).await;
}

/// Fails the test when what must happen does not.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, work).await {
        Ok(done) => done,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + LONG;
    while !so() {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: looked for until it is seen
    }
}

/// Waits until so many wait for a name.
pub(crate) async fn queued(server: &RedisServer, name: &str, count: usize) {
    let line = format!("holdline:{{{name}}}:1q");
    let mut raw = server.raw();
    let wanted = i64::try_from(2 * count).expect("few");
    until("they are queued", || {
        raw.send(&["ZCARD", &line]).expect("an answer").integer() == Some(wanted)
    })
    .await;
}

/// What the server says behind the engine's back.
pub(crate) fn behind(server: &RedisServer, line: &str) -> Reply {
    server.raw().say(line).expect("the server answers")
}

/// The server's connections by their fields, ours only.
pub(crate) fn connections(server: &RedisServer) -> Vec<String> {
    let list = behind(server, "CLIENT LIST").text().unwrap_or_default();
    let ours = list.lines().filter(|line| line.contains(" name=holdline-"));
    let id =
        |line: &str| line.split(' ').find_map(|part| part.strip_prefix("id=").map(str::to_owned));
    ours.filter_map(id).collect()
}

/// All keys of the server but the counter and tombstones, which end by themselves.
pub(crate) fn leftovers(server: &RedisServer) -> Vec<String> {
    let mut raw = server.raw();
    let keys = raw.say("KEYS *").expect("an answer");
    let keys: Vec<String> = keys.items().expect("a list").iter().filter_map(Reply::text).collect();
    let left = |key: &String| {
        let ends = raw.send(&["PTTL", key]).expect("an answer").integer();
        assert!(key == "holdline:fence" || ends != Some(-1), "{key} never ends");
        key != "holdline:fence" && !key.contains(":1t:")
    };
    keys.into_iter().filter(left).collect()
}

/// Waits until nothing is left of any lock, sooner than any lease or place would end by itself
/// only if `clients` have given up all that they had.
pub(crate) async fn clean(server: &RedisServer, clients: &[&Client]) {
    for client in clients {
        let report = soon("a shutdown", client.shutdown(LONG)).await;
        assert!(report.is_clean(), "{report:?}");
    }
    until(&format!("nothing is left of {:?}", leftovers(server)), || leftovers(server).is_empty())
        .await;
}

/// Sees the grants of one exclusive name: nobody believes beside another, tokens grow.
#[derive(Default)]
pub(crate) struct Referee(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    held: Vec<Held>,
    last: u64,
    grants: usize,
}

impl Referee {
    /// Notes a new grant.
    pub(crate) fn granted(&self, guard: &Guard) {
        let mut seen = self.0.lock();
        seen.held.retain(Held::is_valid);
        assert!(seen.held.is_empty(), "two believe: {:?} and {guard:?}", seen.held);
        let token = guard.fencing_token().get();
        assert!(token > seen.last, "token {token} after {}", seen.last);
        seen.last = token;
        seen.grants += 1;
        seen.held.push(guard.held());
    }

    /// How many grants there were.
    pub(crate) fn grants(&self) -> usize {
        self.0.lock().grants
    }
}
