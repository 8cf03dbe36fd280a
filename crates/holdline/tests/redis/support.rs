//! What the tests share: servers, impatient clients, and a referee who sees every grant.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use holdline::fence::{Fenced, FencedCell, Proof};
use holdline::observer::Subject;
use holdline::{
    Client, ClientOptions, Guard, Held, LockError, LockName, LockOptions, Observer, ReleaseOutcome,
};
use holdline_services::{RedisConfig, RedisServer, Reply};
use parking_lot::Mutex;

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// How often a scenario begins anew that a machine which stands still can spoil.
const TRIES: usize = 5;

pub(crate) fn server() -> RedisServer {
    RedisServer::start(RedisConfig::default())
}

/// A URL with deadlines that are short beside [`patient`] leases and long beside what a busy
/// machine needs for an answer: 4 s for a command, 10 s for a connection.
pub(crate) fn url_of(address: SocketAddr) -> String {
    format!("redis://{address}?command_timeout_ms=4000&connect_timeout_ms=10000")
}

/// A URL with deadlines so short that a busy machine misses them now and then: for those who take
/// a failed attempt as it comes.
pub(crate) fn hasty_url_of(address: SocketAddr) -> String {
    format!("redis://{address}?command_timeout_ms=400&connect_timeout_ms=3000")
}

/// A client with the deadlines of [`url_of`].
pub(crate) async fn client_at(address: SocketAddr) -> Client {
    client(&url_of(address)).await
}

pub(crate) async fn client(url: &str) -> Client {
    Client::connect(url).await.expect("connected")
}

/// The parameters of those who do not wait long for an answer.
pub(crate) const HASTY: &str = "command_timeout_ms=500&connect_timeout_ms=1000";

/// How often waiters were notified that no master accepts their requests.
#[derive(Default)]
pub(crate) struct Outages(AtomicUsize);

impl Observer for Outages {
    fn without_store(&self, _: Subject<'_>, _: &LockError) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Outages {
    /// A client that notes them.
    pub(crate) async fn client(self: &Arc<Outages>, url: &str) -> Client {
        let options = ClientOptions::default().with_observer(self.clone());
        Client::connect_with(url, options).await.expect("connected")
    }

    /// Waits until there were more than a client without any answer makes before it gives up.
    pub(crate) async fn await_some(&self) {
        until("a wait goes on", || self.0.load(Ordering::SeqCst) > 4).await;
    }
}

/// A lease of this many milliseconds.
pub(crate) fn lease(millis: u64) -> LockOptions {
    LockOptions::default().with_lease_duration(Duration::from_millis(millis))
}

/// The lease of those who are renewed often and are to survive what happens to others.
pub(crate) fn patient() -> LockOptions {
    lease(20_000).with_renew_interval(Duration::from_millis(300)).with_wait(LONG)
}

/// Takes a name.
pub(crate) async fn take(client: &Client, name: &str, options: &LockOptions) -> Guard {
    let mutex = client.mutex_with(name, options).expect("a good lock");
    for _ in 0..TRIES {
        match soon("the lock", mutex.lock()).await {
            Ok(guard) => return guard,
            // A short lease, and a machine that stood still: nobody is to believe it.
            Err(error) if error.to_string().contains("had expired when its answer arrived") => {}
            Err(error) => panic!("no lock: {error:?}"),
        }
    }
    panic!("the lease had expired {TRIES} times when its answer arrived");
}

/// Runs a scenario that returns how long it took, until it once took less than `bound`: a machine
/// that stands still for a while spoils a try, a fault all of them.
pub(crate) async fn within(bound: Duration, mut scenario: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..TRIES {
        took.push(scenario().await);
        if took.last().is_some_and(|took| *took < bound) {
            return;
        }
    }
    panic!("never within {bound:?}: {took:?}");
}

/// Runs a scenario until it returns that nothing has spoilt it.
pub(crate) async fn unspoilt(what: &str, mut scenario: impl AsyncFnMut() -> bool) {
    for _ in 0..TRIES {
        if scenario().await {
            return;
        }
    }
    panic!("spoilt {TRIES} times: {what}");
}

/// The holder's end of a lease comes before the server's: asked of both once no renewal arrives any
/// more. It compares two moments and not how much is left, so nothing hangs on when they are asked.
pub(crate) fn is_valid_no_longer_than_kept(guard: &Guard, server: &RedisServer) {
    let asked = Instant::now();
    let believed_until = asked + guard.remaining();
    let kept = behind(server, &format!("PTTL holdline:{{{}}}", guard.name().as_str()));
    let kept = kept.integer().and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
    let kept_until = Instant::now() + Duration::from_millis(kept);
    let (believed, kept) = (believed_until - asked, kept_until - asked);
    assert!(believed < kept, "believed for {believed:?}, kept for {kept:?}");
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
        while client.admin().inspect(&name).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await; // event: asked until answered
        }
    };
    soon("an answer", asked).await;
}

/// Releases, and must have held without doubt.
pub(crate) async fn let_go(guard: Guard) {
    let what = format!("{guard:?}");
    let outcome = soon("the release", guard.release()).await;
    let released = matches!(outcome, ReleaseOutcome::Released { confirmed: true, .. });
    assert!(released, "{what}: {outcome:?}");
}

/// Waits until a lease was renewed once more.
pub(crate) async fn renewed(guard: &Guard) {
    let before = guard.valid_until();
    until("a renewal", || {
        is_not_lost(guard);
        guard.valid_until() > before
    })
    .await;
}

/// What is waited for of a holder does not come any more once it has lost its lease.
pub(crate) fn is_not_lost(guard: &Guard) {
    assert!(guard.is_valid(), "lost: {:?}, {guard:?}", guard.lost().now_or_never());
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

/// Waits until this many wait for a name.
pub(crate) async fn queued(server: &RedisServer, name: &str, count: usize) {
    let line = format!("holdline:{{{name}}}:1q");
    let mut raw = server.raw();
    let wanted = i64::try_from(2 * count).expect("few");
    until("they are queued", || {
        raw.send(&["ZCARD", &line]).expect("an answer").integer() == Some(wanted)
    })
    .await;
}

/// The lease ids in the line of a name, in order.
pub(crate) fn line(server: &RedisServer, name: &str) -> Vec<String> {
    let key = format!("holdline:{{{name}}}:1q");
    let members = server.raw().send(&["ZRANGE", &key, "0", "-1"]).expect("an answer");
    let members = members.items().expect("a list").iter().filter_map(|member| member.text());
    members.filter_map(|member| member.strip_prefix('p').map(str::to_owned)).collect()
}

/// Asserts that waiters that kept their positions were served in order; returns whether all kept
/// them. If the machine stands still, a hand-off may not be extended in time or a heartbeat may
/// be missed: such a waiter queues anew, with a new id.
pub(crate) fn kept_their_positions(served: &[String], line: &[String]) -> bool {
    let kept: Vec<&String> = served.iter().filter(|id| line.contains(id)).collect();
    let wanted: Vec<&String> = line.iter().filter(|id| served.contains(id)).collect();
    assert_eq!(kept, wanted, "in the order of the queue");
    kept.len() == line.len() && served.len() == line.len()
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

/// All keys of the server but the counter, the master term, and tombstones, which end by
/// themselves.
pub(crate) fn leftovers(server: &RedisServer) -> Vec<String> {
    let mut raw = server.raw();
    let keys = raw.say("KEYS *").expect("an answer");
    let keys: Vec<String> = keys.items().expect("a list").iter().filter_map(Reply::text).collect();
    let left = |key: &String| {
        let ends = raw.send(&["PTTL", key]).expect("an answer").integer();
        let stays = key == "holdline:fence" || key == "holdline:reign:1";
        assert!(stays || ends != Some(-1), "{key} never ends");
        !stays && !key.contains(":1t:")
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

/// The resource knows the later holder: it refuses the earlier one, whatever that believes.
pub(crate) fn the_resource_refuses(late: &Guard, newer: &Guard) {
    let [late, newer] = [late, newer].map(|guard| Proof::exclusive_of(guard).expect("exclusive"));
    let cell = FencedCell::new(0);
    cell.check_and_write(&late, |value| {
        *value = 1;
        Ok(())
    })
    .expect("nobody else has come yet");
    cell.seal(&newer).expect("newer");
    let refused = cell.check_and_write(&late, |value| {
        *value = 2;
        Ok(())
    });
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(cell.into_inner(), 1);
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
