//! Nodes that reject requests for a while, and the replies of a replica, on real nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::asking::{let_go, queue, request, take};
use holdline_conformance::clock::{MachineClock, WithoutPolls};
use holdline_core::{AcquireReply, AcquireRequest, Certainty, Engine, ErrorKind};
use holdline_redis::{ClusterEngine, RedisOptions};
use holdline_services::{RedisCluster, RedisConfig, RedisServer, Reply};

use crate::support::{LONG, calm, options};

async fn connect(options: &RedisOptions) -> ClusterEngine {
    ClusterEngine::connect(options, Arc::new(MachineClock)).await.expect("the cluster is there")
}

/// An engine with limits longer than any step of a test.
async fn patient(cluster: &RedisCluster) -> ClusterEngine {
    connect(&options(cluster, "command_timeout_ms=60000&connect_timeout_ms=60000")).await
}

fn owner(cluster: &RedisCluster, name: &str) -> usize {
    cluster.owner(cluster.slot_of(&format!("holdline:{{{name}}}")), 0).expect("somebody serves it")
}

/// Returns a name that this node serves.
fn name_of(cluster: &RedisCluster, node: usize) -> String {
    let mut names = (0..).map(|number| format!("n{number}"));
    names.find(|name| owner(cluster, name) == node).expect("one of many")
}

fn refuses(node: &RedisServer, line: &str, code: &str) -> bool {
    let reported = node.raw().say(line).expect("an answer");
    reported.error().is_some_and(|words| words.starts_with(code))
}

async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await; // event: looked for until it is seen
    }
}

/// Returns how often a node has replied with this error.
fn refusals(node: &RedisServer, code: &str) -> u64 {
    let reported = node.raw().say("INFO errorstats").expect("an answer").text().expect("text");
    let line = format!("errorstat_{code}:count=");
    let count = reported.lines().find_map(|reported| reported.strip_prefix(&line));
    count.map_or(0, |count| count.trim().parse().expect("a number"))
}

/// Sends an acquire in a task of its own.
fn asks(
    engine: &ClusterEngine,
    asked: &AcquireRequest,
) -> tokio::task::JoinHandle<Result<AcquireReply, holdline_core::LockError>> {
    let (engine, asked) = (engine.clone(), asked.clone());
    tokio::spawn(async move { engine.try_acquire(&asked).await })
}

/// `BUSY` is reported as not applied at the limit; a request with a longer limit waits through it.
/// Names of other nodes are granted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_master_is_retried_and_the_others_serve() {
    let cluster = RedisCluster::start(&calm().with_size(3, 0));
    let (patient, node) = (patient(&cluster).await, &cluster.nodes()[1]);
    let hasty = connect(&options(&cluster, "command_timeout_ms=4000")).await;
    let [busy, other] = [1, 2].map(|node| name_of(&cluster, node));
    for engine in [&patient, &hasty] {
        let asked = request(&busy);
        take(engine, &asked).await;
        let_go(engine, &asked).await;
    }
    cluster.command(1, "CONFIG SET busy-reply-threshold 10");
    let mut script = node.raw();
    script.write(&["EVAL", "while true do end", "0"]).expect("sent");
    until("it is busy", || refuses(node, "DBSIZE", "BUSY")).await;
    let asked = request(&busy);
    let granted = asks(&patient, &asked);
    let error = hasty.try_acquire(&request(&busy)).await.expect_err("it answers nobody else");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    assert!(error.to_string().contains("busy with a script"), "{error}");
    take(&hasty, &request(&other)).await;
    node.raw().say("SCRIPT KILL").expect("an answer");
    script.read().expect("an answer");
    let granted = granted.await.expect("no panic");
    assert!(matches!(granted, Ok(AcquireReply::Granted { .. })), "{granted:?}");
    queue(&hasty, &request(&busy)).await;
}

/// A node that loads its data replies `LOADING` to commands without keys. To commands with keys it
/// replies that the cluster is down, since it has not joined it yet. Both are retried.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_loads_its_data_is_retried() {
    // It serves its connections after each 1024 keys: five times a second, for about 2 s.
    let slow = RedisConfig::default().with_appendonly("always").with_line("key-load-delay 200");
    let config = calm().with_size(3, 0).with_servers(slow.with_start_while_loading());
    let cluster = RedisCluster::start(&config);
    let (engine, node) = (patient(&cluster).await, &cluster.nodes()[1]);
    let name = name_of(&cluster, 1);
    let held = request(&name);
    let token = take(&engine, &held).await;
    let fill = "for i = 1, 10000 do redis.call('SET', KEYS[1] .. i, 1) end";
    let filled = node.raw().send(&["EVAL", fill, "1", &format!("{{{name}}}")]).expect("an answer");
    assert!(!matches!(filled, Reply::Error(_)), "{filled:?}");
    node.restart();
    assert!(refuses(node, "DBSIZE", "LOADING"), "it loads");
    let waits = request(&name);
    let queued = asks(&engine, &waits).await.expect("no panic");
    assert!(matches!(queued, Ok(AcquireReply::Queued { .. })), "nothing is lost: {queued:?}");
    assert!(!refuses(node, "DBSIZE", "LOADING"), "it has loaded");
    assert!(refusals(node, "CLUSTERDOWN") > 0, "it was asked before it was ready");
    let_go(&engine, &held).await;
    let next = take(&engine, &AcquireRequest { known: true, ..waits }).await;
    assert!(next > token, "{next:?} after {token:?}");
}

/// A replica replies `MOVED` to our calls, and `MASTERDOWN` only to a reader (7.0.15). So a client
/// that takes it for the master is redirected, even if it has lost its own master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_became_a_replica_redirects_calls() {
    let cluster = RedisCluster::start(&calm());
    let url = options(&cluster, "command_timeout_ms=60000&connect_timeout_ms=60000");
    // No poll reports the change.
    let engine = ClusterEngine::connect(&url, Arc::new(WithoutPolls)).await.expect("there");
    let (old, name) = (&cluster.nodes()[1], name_of(&cluster, 1));
    let key = format!("holdline:{{{name}}}");
    let (held, next) = (request(&name), request(&name));
    let token = take(&engine, &held).await;
    cluster.await_replicated();
    let new = cluster.replica_of(1);
    cluster.fail_over(new, cluster.slot_of(&key), &[0, 1, 2]);
    until("it is a replica", || !old.is_master()).await;
    cluster.command(1, "CONFIG SET replica-serve-stale-data no");
    cluster.command(1, "CONFIG SET masteruser nobody");
    cluster.command(1, "CONFIG SET masterauth wrong");
    cluster.command(new, "CLIENT KILL TYPE replica");
    let mut reader = old.raw();
    reader.say("READONLY").expect("an answer");
    until("it has lost its master", || {
        let reported = reader.say(&format!("GET {key}")).expect("an answer");
        reported.error().is_some_and(|words| words.starts_with("MASTERDOWN"))
    })
    .await;
    let before = ["MOVED", "READONLY", "MASTERDOWN"].map(|code| refusals(old, code));
    let_go(&engine, &held).await;
    assert!(take(&engine, &next).await > token);
    let after = ["MOVED", "READONLY", "MASTERDOWN"].map(|code| refusals(old, code));
    assert!(after[0] > before[0], "it was asked: {before:?}, {after:?}");
    assert_eq!(after[1..], before[1..], "it says nothing else");
}
