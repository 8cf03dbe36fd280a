//! What moves a client to the new master, and which requests continue while sentinels are asked. No
//! poll happens within these tests.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::asking::{HOLD, let_go, queue, renew, request, take};
use holdline_conformance::clock::WithoutPolls;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, ErrorKind, ListRequest, Purpose, RenewReply,
};
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{
    Fault, FaultProxy, Frames, Reply, Sentinel, SentinelConfig, SentinelGroup, Traffic,
};

use crate::support::url;

/// The time limit of an expected event, on any machine.
const LIMIT: Duration = Duration::from_secs(60);
const QUESTION: &str = "GET-MASTER-ADDR-BY-NAME";

/// A group whose sentinels fail over on command only.
fn calm() -> SentinelGroup {
    let group =
        SentinelGroup::start(&SentinelConfig::default().with_down_after(Duration::from_secs(600)));
    group.settle(0);
    group
}

async fn connect(url: &str) -> RedisEngine {
    let options = RedisOptions::from_url(url).expect("a good URL");
    RedisEngine::connect(&options, Arc::new(WithoutPolls)).await.expect("connected")
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, work).await;
    done.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"))
}

/// Waits until a sentinel has a subscriber.
async fn await_listener(sentinel: &Sentinel) {
    let end = Instant::now() + LIMIT;
    loop {
        let reported = sentinel.say(&["CLIENT", "LIST"]).and_then(|reported| reported.text());
        let mut listening = reported.iter().flat_map(|reported| reported.lines());
        if listening.any(|line| line.contains(" name=holdline-") && line.contains(" sub=1 ")) {
            return;
        }
        assert!(Instant::now() < end, "nobody listens: {reported:?}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: looked for until seen
    }
}

/// The old master is healthy, serves the client, and does not know that it was replaced: neither a
/// closed connection nor an error reports it to the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_message_alone_moves_a_client() {
    let group = calm();
    let engine = connect(&url(&group, "&connect_timeout_ms=10000")).await;
    take(&engine, &request("a")).await;
    for sentinel in group.sentinels() {
        await_listener(sentinel).await;
    }
    let deaf = "ACL SETUSER observer -replicaof -slaveof";
    let reply = group.servers()[0].raw().say(deaf).expect("an answer");
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    let promoted = group.fail_over();
    let moved = async {
        loop {
            // The new master grants nothing yet; the old one would.
            match engine.try_acquire(&request("b")).await {
                Err(error) if matches!(error.kind(), ErrorKind::Quarantined { .. }) => return,
                Ok(AcquireReply::Granted { .. } | AcquireReply::Queued { .. }) => {}
                Err(error) if is_between(error.kind()) => {}
                other => panic!("{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // event: asked until it has moved
        }
    };
    soon("the client moves", moved).await;
    assert!(group.servers()[0].is_master(), "the old one has not been demoted");
    assert!(group.servers()[promoted].is_master());
}

/// Returns whether this is the error of a connection that is being closed.
fn is_between(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoQuorum { .. } | ErrorKind::Unavailable { .. })
}

/// Two sentinels are stopped during the connect, and the third does not answer, until the proxy is
/// thawed: no time limit ends this. Clients with a connection to the master are served meanwhile,
/// also if they need the number of replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connected_clients_do_not_wait_for_hanging_sentinels() {
    let group = calm();
    let proxies: Vec<FaultProxy> =
        group.sentinels().iter().map(|one| FaultProxy::start(one.address())).collect();
    let hosts: Vec<String> = proxies.iter().map(|proxy| proxy.address().to_string()).collect();
    let url = format!(
        "redis+sentinel://{}/{}?replicas=all&command_timeout_ms=60000&connect_timeout_ms=60000",
        hosts.join(","),
        SentinelGroup::SERVICE
    );
    let engine = connect(&url).await;
    let (held, waits) = (request("a"), request("a"));
    take(&engine, &held).await;
    queue(&engine, &waits).await;
    for at in [1, 2] {
        group.sentinels()[at].stop();
        proxies[at].forget();
        proxies[at].reset();
        proxies[at].await_event(|event| event.is_frame(Traffic::Requests, "HELLO"));
    }
    let last = proxies[0].events().iter().map(|event| event.connection).max();
    proxies[0].inject(Frames::replies().containing(QUESTION), Fault::Hold);
    proxies[0].reset();
    // A new subscription asks, since it may have missed a message.
    proxies[0].await_event(|event| {
        Some(event.connection) > last && event.is_frame(Traffic::Requests, QUESTION)
    });
    soon("those who are served", served(&engine, &held, &waits)).await;
    for at in [1, 2] {
        group.sentinels()[at].cont();
    }
    proxies[0].pass();
    take(&engine, &request("d")).await;
}

/// A holder, a waiter, a new contender and two inspections.
async fn served(engine: &RedisEngine, held: &AcquireRequest, waits: &AcquireRequest) {
    let kept = renew(engine, held, Purpose::Keep(HOLD)).await;
    assert!(matches!(kept, Ok(RenewReply::Renewed { .. })), "{kept:?}");
    let shown = engine.inspect(&held.name).await.expect("shown");
    assert_eq!((shown.holder_count, shown.queue_length), (1, 1), "{shown:?}");
    let newcomer = request("b");
    take(engine, &newcomer).await;
    let listed = engine.list(&ListRequest { prefix: String::new(), after: None, limit: 9 }).await;
    assert_eq!(listed.expect("listed").names.len(), 2);
    let_go(engine, &newcomer).await;
    let mut watch = engine.watch(&waits.name, waits.lease_id);
    let_go(engine, held).await;
    poll_fn(|context| watch.as_mut().poll_next(context)).await.expect("a hint");
    take(engine, &AcquireRequest { known: true, ..waits.clone() }).await;
}
