//! `doctor` on misconfigured clusters, one fault at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Finding, Health};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{RedisCluster, RedisConfig, Reply};

use crate::support::{LONG, calm, options};

async fn run_checkup(cluster: &RedisCluster) -> Checkup {
    run_checkup_as(&options(cluster, "connect_timeout_ms=3000&command_timeout_ms=3000")).await
}

async fn run_checkup_as(options: &RedisOptions) -> Checkup {
    checkup(options, Arc::new(MachineClock)).await.expect("good options")
}

fn of<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    found.unwrap_or_else(|| panic!("{check} is missing in {checkup:?}"))
}

fn expect_finding(found: &Checkup, check: &str, health: Health, fix: &str) {
    let finding = of(found, check);
    assert_eq!(finding.health(), health, "{found:?}");
    assert!(finding.fix().unwrap_or_default().contains(fix), "{finding:?}");
}

fn on_all(cluster: &RedisCluster, line: &str) {
    (0..cluster.nodes().len()).for_each(|node| drop(cluster.command(node, line)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_weakness_of_a_cluster_is_reported_with_its_fix() {
    let cluster = RedisCluster::start(&calm());
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "node-timeout", Health::Warning, "15000 or less");
    expect_finding(&found, "full-coverage", Health::Warning, "cluster-require-full-coverage no");
    expect_finding(&found, "persistence", Health::Warning, "appendonly yes");
    for line in [
        "CONFIG SET cluster-node-timeout 15000",
        "CONFIG SET cluster-require-full-coverage no",
        "CONFIG SET appendonly yes",
        "CONFIG SET appendfsync always",
    ] {
        on_all(&cluster, line);
    }
    let found = run_checkup(&cluster).await;
    let well = [
        "reachable",
        "state",
        "slots",
        "masters",
        "replicas",
        "node-timeout",
        "full-coverage",
        "moving",
        "server",
        "eviction",
        "memory",
        "persistence",
        "messages",
        "idle",
        "clock",
        "rights",
        "keys",
    ];
    for check in well {
        assert_eq!(of(&found, check).health(), Health::Ok, "{found:?}");
    }
    // Each node is configured differently in turn.
    cluster.command(1, "CONFIG SET cluster-node-timeout 16000");
    cluster.command(1, "CONFIG SET maxmemory-policy allkeys-lru");
    cluster.command(1, "CONFIG SET timeout 10");
    cluster.command(1, "ACL SETUSER narrow on >CANARY ~* &* +@all -cluster|info -setrange");
    cluster.begin_move(1, 0, 2);
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "node-timeout", Health::Warning, "the same cluster-node-timeout");
    expect_finding(&found, "moving", Health::Warning, "redis-cli --cluster fix");
    let address = cluster.nodes()[1].address().to_string();
    for check in ["eviction", "idle"] {
        let ill = |one: &&Finding| one.check() == check && one.health() != Health::Ok;
        let ill = found.findings().iter().find(ill).expect("a reply");
        assert!(ill.found().contains(&address), "{ill:?}");
    }
    for node in 0..3 {
        cluster.command(node, "ACL SETUSER narrow on >CANARY ~* &* +@all -cluster|info -setrange");
    }
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://narrow:CANARY@");
    let narrow = RedisOptions::from_url(&url).expect("a good URL");
    let found = run_checkup_as(&narrow).await;
    expect_finding(&found, "rights", Health::Error, "docs/redis-cluster.md");
    assert!(of(&found, "rights").found().contains("CLUSTER INFO"), "{found:?}");
    assert!(!format!("{found:?}").contains("CANARY"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_parts_of_a_cluster_are_reported() {
    let cluster = RedisCluster::start(&calm().with_size(2, 0));
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "masters", Health::Warning, "three masters");
    expect_finding(&found, "replicas", Health::Warning, &cluster.nodes()[1].address().to_string());
    cluster.command(0, "CLUSTER DELSLOTS 7");
    cluster.command(1, "CLUSTER DELSLOTS 7");
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "slots", Health::Error, "redis-cli --cluster fix");
    expect_finding(&found, "state", Health::Error, "slots without a master");
    cluster.command(0, "CLUSTER ADDSLOTS 7");
    cluster.await_well();
    cluster.nodes()[1].kill();
    let found = run_checkup(&cluster).await;
    let address = cluster.nodes()[1].address().to_string();
    expect_finding(&found, "reachable", Health::Error, &address);
    cluster.nodes()[0].kill();
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "reachable", Health::Error, "do what the error says");
    let checks: Vec<&str> = found.findings().iter().map(Finding::check).collect();
    assert_eq!(checks, ["reachable"]);
}

/// Repeats the checkup until it finds something: nodes detect changes with a delay.
async fn until_found(
    cluster: &RedisCluster,
    check: &str,
    so: impl Fn(&Finding) -> bool,
) -> Checkup {
    let end = Instant::now() + LONG;
    loop {
        let found = run_checkup(cluster).await;
        if so(of(&found, check)) {
            return found;
        }
        assert!(Instant::now() < end, "{found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await; // event: looked for until found
    }
}

/// A replica that does not follow may take over nevertheless, and grant again what it missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_a_cluster_that_do_not_follow_are_reported() {
    let cluster = RedisCluster::start(&calm());
    let place = |node: usize| cluster.nodes()[node].address().to_string();
    let found = run_checkup(&cluster).await;
    for check in ["replicas", "links", "alike", "clocks"] {
        assert_eq!(of(&found, check).health(), Health::Ok, "{found:?}");
    }
    assert_eq!(of(&found, "replicas").found(), "1, 1, 1");
    let [behind, cut] = [0, 1].map(|master| cluster.replica_of(master));
    // It receives the stream, and applies none of it.
    cluster.command(behind, "CLIENT PAUSE 600000 WRITE");
    let of_first = (0..).map(|at| format!("fill:{at}"));
    let key = of_first.map(|key| (cluster.owner(cluster.slot_of(&key), 0), key));
    let (_, key) = key.into_iter().find(|(owner, _)| *owner == Some(0)).expect("one of many");
    let fill = "for i = 1, 30 do redis.call('SET', KEYS[1], string.rep('x', 100000)) end";
    let reply = cluster.nodes()[0].raw().send(&["EVAL", fill, "1", &key]).expect("an answer");
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "links", Health::Warning, "the network");
    let links = of(&found, "links").found();
    assert!(links.starts_with(&format!("{} is ", place(behind))), "{links}");
    assert!(links.ends_with("KiB behind"), "{links}");
    cluster.command(behind, "CLIENT UNPAUSE");
    until_found(&cluster, "links", |links| links.health() == Health::Ok).await;
    cluster.command(cut, "CONFIG SET masteruser nobody");
    cluster.command(cut, "CONFIG SET masterauth wrong");
    cluster.command(1, "CLIENT KILL TYPE replica");
    let found = until_found(&cluster, "links", |links| links.health() != Health::Ok).await;
    expect_finding(&found, "links", Health::Warning, "masterauth");
    let reported = format!("{} does not reach its master", place(cut));
    assert_eq!(of(&found, "links").found(), reported);
    // It runs, and does not follow.
    expect_finding(&found, "replicas", Health::Ok, "");
    cluster.command(behind, "CONFIG SET maxmemory-policy allkeys-lru");
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "alike", Health::Warning, "use the same value");
    let reported = format!("{} differs in maxmemory-policy", place(behind));
    assert_eq!(of(&found, "alike").found(), reported);
}

/// After a failover, tokens continue from the clock of the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_a_cluster_that_differ_are_reported() {
    let servers = RedisConfig::default().with_clock();
    let cluster = RedisCluster::start(&calm().with_servers(servers));
    assert_eq!(of(&run_checkup(&cluster).await, "clocks").health(), Health::Ok);
    let replica = &cluster.nodes()[cluster.replica_of(1)];
    replica.clock().step_back(Duration::from_secs(20));
    replica.await_clock();
    let found = run_checkup(&cluster).await;
    expect_finding(&found, "clocks", Health::Warning, "slewed");
    assert!(of(&found, "clocks").found().starts_with("6 of 6 servers"), "{found:?}");
    expect_finding(&found, "clock", Health::Ok, "");
    // A failover takes at least the node timeout.
    cluster.command(0, "CONFIG SET cluster-node-timeout 15000");
    expect_finding(
        &run_checkup(&cluster).await,
        "clocks",
        Health::Error,
        "fencing tokens may decrease",
    );
}

/// A replica that is gone but not detected, one that is marked as failed, and one of two: each
/// leaves a master with too few replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_without_a_live_replica_are_reported() {
    let cluster = RedisCluster::start(&calm().with_size(3, 2));
    assert_eq!(of(&run_checkup(&cluster).await, "replicas").found(), "2, 2, 2");
    let place = |node: usize| cluster.nodes()[node].address().to_string();
    // No node marks it as failed: they still list it.
    let [first, second] = [3, 6];
    cluster.nodes()[first].kill();
    let found = run_checkup(&cluster).await;
    expect_finding(
        &found,
        "replicas",
        Health::Warning,
        &format!("CLUSTER FORGET): {}", place(first)),
    );
    assert_eq!(of(&found, "replicas").found(), "1, 2, 2");
    expect_finding(&found, "links", Health::Warning, "");
    assert!(of(&found, "links").found().contains("does not answer"), "{found:?}");
    cluster.nodes()[second].stop();
    let found = run_checkup(&cluster).await;
    expect_finding(
        &found,
        "replicas",
        Health::Warning,
        &format!("give {} a working replica", place(0)),
    );
    assert_eq!(of(&found, "replicas").found(), "0, 2, 2");
    cluster.nodes()[second].cont();
    // Marked as failed, it is no longer listed with its master. No replica may take over meanwhile.
    let others = || (0..9).filter(|node| *node != first);
    for node in others() {
        cluster.command(node, "CONFIG SET cluster-replica-no-failover yes");
        cluster.command(node, "CONFIG SET cluster-node-timeout 1000");
    }
    let is_unnamed = |links: &Finding| links.health() == Health::Ok;
    let found = until_found(&cluster, "links", is_unnamed).await;
    expect_finding(
        &found,
        "replicas",
        Health::Warning,
        &format!("CLUSTER FORGET): {}", place(first)),
    );
    let id = known_id(&cluster, &place(first));
    for node in others() {
        cluster.command(node, &format!("CLUSTER FORGET {id}"));
    }
    until_found(&cluster, "replicas", |replicas| replicas.health() == Health::Ok).await;
}

/// Returns the id of a node that no longer answers.
fn known_id(cluster: &RedisCluster, place: &str) -> String {
    let nodes = cluster.command(0, "CLUSTER NODES").text().expect("text");
    let line = nodes.lines().find(|line| line.contains(&format!(" {place}@")));
    line.and_then(|line| line.split(' ').next()).expect("it is known").to_owned()
}
