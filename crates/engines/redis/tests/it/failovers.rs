//! One address that leads to another server, or to a server that has forgotten: what a client
//! grants then. No client has a part in the failover, and no sentinel reports it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, AcquireRequest, Certainty, Engine, ErrorKind, FencingToken, Hold, LockError,
    Purpose, RenewReply,
};
use holdline_redis::{RedisEngine, RedisOptions, checkup};
use holdline_services::{FaultProxy, RedisConfig, RedisServer, Reply};

use crate::support::{HOLD, PATIENCE, ending, name, queue, raw, renew, request, take};

/// A quarantine that a slow machine does not outlast within a test, and one that a test waits for.
const LONG: &str = "max_lease_duration_ms=600000";
const SHORT: &str = "max_lease_duration_ms=2000&old_master_ms=0";
const SHORTEST: u64 = 2_000;

/// A master and its replica behind one address.
struct Pair {
    servers: [RedisServer; 2],
    address: FaultProxy,
}

impl Pair {
    fn start() -> Pair {
        let master = RedisServer::start(RedisConfig::default());
        let config = RedisConfig::default().with_replica_of(master.address());
        let replica = RedisServer::start(config);
        let address = FaultProxy::start(master.address());
        let pair = Pair { servers: [master, replica], address };
        pair.await_replicated();
        pair
    }

    fn await_replicated(&self) {
        let end = Instant::now() + PATIENCE;
        raw(&self.servers[0], &["SET", "mark", "1"]);
        while raw(&self.servers[1], &["GET", "mark"]).text().as_deref() != Some("1") {
            assert!(Instant::now() < end, "the replica does not follow");
            std::thread::sleep(Duration::from_millis(10)); // event: the replica follows
        }
    }

    /// From now on the replica receives nothing.
    fn hold_back(&self) {
        raw(&self.servers[1], &["CONFIG", "SET", "masterauth", "wrong"]);
        raw(&self.servers[1], &["CONFIG", "SET", "masteruser", "nobody"]);
        raw(&self.servers[0], &["CLIENT", "KILL", "TYPE", "replica"]);
    }

    /// Promotes the replica, and the address leads there.
    fn fail_over(&self) {
        raw(&self.servers[1], &["REPLICAOF", "NO", "ONE"]);
        self.lead_to(1);
    }

    fn lead_to(&self, server: usize) {
        self.address.set_upstream(self.servers[server].address());
        self.address.reset();
    }

    fn url(&self, parameters: &str) -> String {
        format!("redis://{}?{parameters}", self.address.address())
    }

    async fn client(&self, parameters: &str) -> RedisEngine {
        connect(&self.url(parameters)).await
    }
}

async fn connect(url: &str) -> RedisEngine {
    let options = RedisOptions::from_url(url).expect("a good URL");
    let options = options.with_command_timeout(PATIENCE).with_connect_timeout(PATIENCE);
    RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected")
}

fn is_quarantined(reply: &Result<AcquireReply, LockError>) -> bool {
    let kind = reply.as_ref().err().map(LockError::kind);
    matches!(kind, Some(ErrorKind::Quarantined { .. }))
}

async fn waits(engine: &RedisEngine, request: &AcquireRequest) {
    let end = Instant::now() + PATIENCE;
    loop {
        let reply = engine.try_acquire(request).await;
        if let Err(ErrorKind::Quarantined { left }) = reply.as_ref().map_err(LockError::kind) {
            assert!(Some(*left) <= engine.capabilities().quarantine, "{reply:?}");
            return;
        }
        let is_away = reply.as_ref().is_err_and(LockError::is_unavailable);
        assert!(is_away && Instant::now() < end, "{reply:?}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: it has connected again
    }
}

/// An operator knows that nothing is held.
fn end_quarantine(server: &RedisServer) {
    raw(server, &["HSET", "holdline:reign:1", "q", "0"]);
}

/// Asks until the quarantine is over.
async fn takes_after(engine: &RedisEngine, request: &AcquireRequest) -> FencingToken {
    let end = Instant::now() + PATIENCE;
    loop {
        match engine.try_acquire(request).await {
            Ok(AcquireReply::Granted { token, .. }) => return token,
            reply if is_quarantined(&reply) => {}
            Err(error) if error.is_unavailable() => {}
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < end, "the quarantine does not end");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: the quarantine ends
    }
}

/// A replica that lacks a grant is promoted. Neither a client that was there nor one that comes
/// after it takes the name; what the replica knows is renewed and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_grants_nothing_that_it_may_lack() {
    let pair = Pair::start();
    let holder = pair.client(LONG).await;
    let (known, ending_soon, lacking) = (request("a"), request("b"), request("c"));
    take(&holder, &known).await;
    take(&holder, &ending_soon).await;
    pair.await_replicated();
    pair.hold_back();
    let token = take(&holder, &lacking).await;
    pair.fail_over();
    let fresh = pair.client(LONG).await;
    let next = request("c");
    waits(&fresh, &next).await;
    waits(&holder, &request("d")).await;
    let kept = renew(&holder, &known, Purpose::Keep(HOLD)).await;
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    holder.release(&ending(&ending_soon, false)).await.expect("released");
    let lost = renew(&holder, &lacking, Purpose::Keep(HOLD)).await;
    assert!(matches!(lost, Ok(RenewReply::Unknown)), "{lost:?}");
    end_quarantine(&pair.servers[1]);
    let later = takes_after(&fresh, &next).await;
    assert!(later > token, "{later:?} after {token:?}");
}

/// The former master hands over in the quarantine: the token is above those that were lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_off_in_the_quarantine_has_a_token_above_the_lost_ones() {
    let pair = Pair::start();
    let holder = pair.client(LONG).await;
    let (held, waits_here) = (request("a"), request("a"));
    take(&holder, &held).await;
    queue(&holder, &waits_here).await;
    pair.await_replicated();
    pair.hold_back();
    let lost = take(&holder, &request("b")).await;
    pair.fail_over();
    let fresh = pair.client(LONG).await;
    waits(&fresh, &request("b")).await;
    fresh.release(&ending(&held, false)).await.expect("released");
    let value = raw(&pair.servers[1], &["GET", "holdline:{a}"]).text().expect("handed over");
    let token: u64 = value[67..83].parse().expect("a token");
    assert!(token > lost.get(), "{token} after {lost:?}");
}

/// A client that outlives the failover connects last: others that know nothing came before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_demoted_and_promoted_again_starts_anew() {
    let pair = Pair::start();
    let first = pair.client(LONG).await;
    take(&first, &request("a")).await;
    let [one, other] = &pair.servers;
    raw(other, &["REPLICAOF", "NO", "ONE"]);
    let port = other.address().port().to_string();
    raw(one, &["REPLICAOF", "127.0.0.1", &port]);
    pair.lead_to(1);
    other.settle();
    pair.address.reset();
    takes_after(&first, &request("b")).await;
    raw(one, &["REPLICAOF", "NO", "ONE"]);
    pair.lead_to(0);
    let fresh = pair.client(LONG).await;
    waits(&fresh, &request("c")).await;
    waits(&first, &request("c")).await;
}

/// The address leads to a replica. Reading goes on there; nothing is granted, and the message names
/// the setting. Its promotion is noticed by the connected client, and starts a quarantine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_refused_and_its_promotion_is_noticed() {
    for protocol in ["resp3", "resp2"] {
        let pair = Pair::start();
        // It would accept the writes, and lose them.
        raw(&pair.servers[1], &["CONFIG", "SET", "replica-read-only", "no"]);
        pair.lead_to(1);
        let client = pair.client(&format!("{LONG}&protocol={protocol}")).await;
        assert!(!client.inspect(&name("a")).await.expect("a reply").is_held());
        let error = client.try_acquire(&request("a")).await.expect_err("a replica");
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{protocol}: {error:?}");
        assert_eq!(error.certainty(), Certainty::NotApplied);
        assert!(error.to_string().contains("as the host in the URL"), "{error}");
        let keys = raw(&pair.servers[1], &["KEYS", "holdline*"]);
        assert_eq!(keys.items().map(<[Reply]>::len), Some(0), "{keys:?}");
        raw(&pair.servers[1], &["REPLICAOF", "NO", "ONE"]);
        let end = Instant::now() + PATIENCE;
        let request = request("a");
        loop {
            let reply = client.try_acquire(&request).await;
            if is_quarantined(&reply) {
                break;
            }
            assert!(reply.is_err() && Instant::now() < end, "{reply:?}");
            tokio::time::sleep(Duration::from_millis(10)).await; // event: it has noticed
        }
    }
}

/// A backup from before a grant is what the server starts with.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_with_an_old_file_grants_nothing_that_it_may_lack() {
    let server = RedisServer::start(RedisConfig::default());
    let url = format!("{}?{LONG}", server.url());
    let holder = connect(&url).await;
    let (kept, lost) = (request("a"), request("b"));
    take(&holder, &kept).await;
    raw(&server, &["SAVE"]);
    let token = take(&holder, &lost).await;
    server.kill();
    server.restart();
    let fresh = connect(&url).await;
    let next = request("b");
    waits(&fresh, &next).await;
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let found = checkup(&options, Arc::new(MachineClock)).await.expect("good options");
    let finding = found.findings().iter().find(|finding| finding.check() == "failover");
    let finding = finding.expect("the finding");
    assert!(finding.found().contains("restarted or promoted"), "{finding:?}");
    let renewed = renew(&fresh, &kept, Purpose::Keep(HOLD)).await;
    assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })), "{renewed:?}");
    end_quarantine(&server);
    let later = takes_after(&fresh, &next).await;
    assert!(later > token, "{later:?} after {token:?}");
}

/// It ends by itself after the longest lease, and what is left outlives the client that measured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quarantine_after_a_restart_ends_by_itself() {
    let server = RedisServer::start(RedisConfig::default().with_appendonly("always"));
    let url = format!("{}?{SHORT}", server.url());
    let hold = Hold::Leased(Duration::from_millis(SHORTEST));
    let asked = AcquireRequest { hold, ..request("a") };
    take(&connect(&url).await, &asked).await;
    server.restart();
    let next = AcquireRequest { hold, ..request("a") };
    let since = Instant::now();
    takes_after(&connect(&url).await, &next).await;
    assert!(since.elapsed() >= Duration::from_millis(SHORTEST), "{:?}", since.elapsed());
    take(&connect(&url).await, &AcquireRequest { hold, ..request("b") }).await;
}

/// Nothing is recorded on an empty server. It grants at once to clients that knew no other run; one
/// that did makes it wait, for all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_server_grants_unless_a_client_knew_another_run() {
    let server = RedisServer::start(RedisConfig::default());
    let url = format!("{}?{LONG}", server.url());
    let there_before = connect(&url).await;
    take(&there_before, &request("a")).await;
    server.kill();
    server.restart();
    waits(&there_before, &request("a")).await;
    waits(&connect(&url).await, &request("a")).await;
    drop(there_before);
    server.kill();
    server.restart();
    take(&connect(&url).await, &request("a")).await;
}

/// `quarantine=off` neither begins nor heeds a quarantine; a replica is refused all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_without_a_quarantine_grants_at_once() {
    let pair = Pair::start();
    let client = pair.client(LONG).await;
    take(&client, &request("a")).await;
    pair.await_replicated();
    pair.fail_over();
    waits(&client, &request("b")).await;
    let careless = pair.client("quarantine=off").await;
    assert_eq!(careless.capabilities().quarantine, None);
    take(&careless, &request("b")).await;
    pair.lead_to(0);
    raw(&pair.servers[0], &["REPLICAOF", "127.0.0.1", "1"]);
    let error = pair.client("quarantine=off").await.try_acquire(&request("c")).await;
    let error = error.expect_err("a replica");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error:?}");
}

/// Where `INFO` is refused nobody can see a failover: locks work, and nothing waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_to_say_who_it_is_grants() {
    let config = RedisConfig::default().with_user("few on >x ~* &* +@all -info -role");
    let server = RedisServer::start(config);
    let url = format!("redis://few:x@{}?{LONG}", server.address());
    take(&connect(&url).await, &request("a")).await;
    server.kill();
    server.restart();
    take(&connect(&url).await, &request("a")).await;
}

/// The term cannot be recorded while the memory is full. The server grants nothing, and does so
/// again when it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_record_its_term_grants_nothing() {
    let server = RedisServer::start(RedisConfig::default());
    raw(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    let client = connect(&server.url()).await;
    let error = client.try_acquire(&request("a")).await.expect_err("no memory");
    assert!(error.to_string().contains("maxmemory"), "{error}");
    raw(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    server.settle();
    let end = Instant::now() + PATIENCE;
    while let Err(error) = client.try_acquire(&request("a")).await {
        assert!(Instant::now() < end, "{error:?}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: it has asked again
    }
}

/// With `replicas=1` a grant counts when the replica has it; the quarantine stays, as nobody knows
/// which clients wait for replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_counts_is_on_the_replica() {
    let pair = Pair::start();
    let client = pair.client(&format!("{LONG}&replicas=1")).await;
    let kept = request("a");
    take(&client, &kept).await;
    pair.fail_over();
    let fresh = pair.client(LONG).await;
    waits(&fresh, &request("b")).await;
    let held = renew(&fresh, &kept, Purpose::Keep(HOLD)).await;
    assert!(matches!(held, Ok(RenewReply::Renewed { .. })), "{held:?}");
    // The replica has no replica: nothing counts there.
    end_quarantine(&pair.servers[1]);
    let options = RedisOptions::from_url(&pair.url("replicas=1")).expect("a good URL");
    let options = options.with_command_timeout(Duration::from_secs(4));
    let alone = RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected");
    let error = alone.try_acquire(&request("b")).await.expect_err("no replica");
    assert_eq!(error.certainty(), Certainty::Unknown, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
}
