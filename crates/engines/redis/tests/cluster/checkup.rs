//! What `doctor` finds on a cluster that is set up wrong, in one way after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Finding, Health};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::{RedisCluster, RedisConfig, Reply};

use crate::support::{LONG, calm, options};

async fn look(cluster: &RedisCluster) -> Checkup {
    look_as(&options(cluster, "connect_timeout_ms=3000&command_timeout_ms=3000")).await
}

async fn look_as(options: &RedisOptions) -> Checkup {
    checkup(options, Arc::new(MachineClock)).await.expect("good options")
}

fn of<'a>(checkup: &'a Checkup, check: &str) -> &'a Finding {
    let found = checkup.findings().iter().find(|finding| finding.check() == check);
    found.unwrap_or_else(|| panic!("{check} is missing in {checkup:?}"))
}

fn says(found: &Checkup, check: &str, health: Health, fix: &str) {
    let finding = of(found, check);
    assert_eq!(finding.health(), health, "{found:?}");
    assert!(finding.fix().unwrap_or_default().contains(fix), "{finding:?}");
}

fn on_all(cluster: &RedisCluster, line: &str) {
    (0..cluster.nodes().len()).for_each(|node| drop(cluster.tell(node, line)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_weakness_of_a_cluster_is_told_with_its_fix() {
    let cluster = RedisCluster::start(&calm());
    let found = look(&cluster).await;
    says(&found, "node-timeout", Health::Warning, "15000 or less");
    says(&found, "full-coverage", Health::Warning, "cluster-require-full-coverage no");
    says(&found, "persistence", Health::Warning, "appendonly yes");
    for line in [
        "CONFIG SET cluster-node-timeout 15000",
        "CONFIG SET cluster-require-full-coverage no",
        "CONFIG SET appendonly yes",
        "CONFIG SET appendfsync always",
    ] {
        on_all(&cluster, line);
    }
    let found = look(&cluster).await;
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
    // One node after another is set up in another way.
    cluster.tell(1, "CONFIG SET cluster-node-timeout 16000");
    cluster.tell(1, "CONFIG SET maxmemory-policy allkeys-lru");
    cluster.tell(1, "CONFIG SET timeout 10");
    cluster.tell(1, "ACL SETUSER narrow on >CANARY ~* &* +@all -cluster|info -setrange");
    cluster.begin_move(1, 0, 2);
    let found = look(&cluster).await;
    says(&found, "node-timeout", Health::Warning, "the same cluster-node-timeout");
    says(&found, "moving", Health::Warning, "redis-cli --cluster fix");
    let address = cluster.nodes()[1].address().to_string();
    for check in ["eviction", "idle"] {
        let ill = |one: &&Finding| one.check() == check && one.health() != Health::Ok;
        let ill = found.findings().iter().find(ill).expect("told");
        assert!(ill.found().contains(&address), "{ill:?}");
    }
    for node in 0..3 {
        cluster.tell(node, "ACL SETUSER narrow on >CANARY ~* &* +@all -cluster|info -setrange");
    }
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://narrow:CANARY@");
    let narrow = RedisOptions::from_url(&url).expect("a good URL");
    let found = look_as(&narrow).await;
    says(&found, "rights", Health::Error, "docs/redis-cluster.md");
    assert!(of(&found, "rights").found().contains("CLUSTER INFO"), "{found:?}");
    assert!(!format!("{found:?}").contains("CANARY"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_lacks_is_told() {
    let cluster = RedisCluster::start(&calm().with_size(2, 0));
    let found = look(&cluster).await;
    says(&found, "masters", Health::Warning, "three masters");
    says(&found, "replicas", Health::Warning, &cluster.nodes()[1].address().to_string());
    cluster.tell(0, "CLUSTER DELSLOTS 7");
    cluster.tell(1, "CLUSTER DELSLOTS 7");
    let found = look(&cluster).await;
    says(&found, "slots", Health::Error, "redis-cli --cluster fix");
    says(&found, "state", Health::Error, "slots that nobody serves");
    cluster.tell(0, "CLUSTER ADDSLOTS 7");
    cluster.await_well();
    cluster.nodes()[1].kill();
    let found = look(&cluster).await;
    let address = cluster.nodes()[1].address().to_string();
    says(&found, "reachable", Health::Error, &address);
    cluster.nodes()[0].kill();
    let found = look(&cluster).await;
    says(&found, "reachable", Health::Error, "do what the error says");
    let checks: Vec<&str> = found.findings().iter().map(Finding::check).collect();
    assert_eq!(checks, ["reachable"]);
}

/// Looks until something is found: nodes notice by and by.
async fn until_found(
    cluster: &RedisCluster,
    check: &str,
    so: impl Fn(&Finding) -> bool,
) -> Checkup {
    let end = Instant::now() + LONG;
    loop {
        let found = look(cluster).await;
        if so(of(&found, check)) {
            return found;
        }
        assert!(Instant::now() < end, "{found:?}");
        tokio::time::sleep(Duration::from_millis(100)).await; // event: looked for until found
    }
}

/// A replica that does not follow may take over all the same, and grants again what it lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_of_a_cluster_that_do_not_follow_are_told() {
    let cluster = RedisCluster::start(&calm());
    let place = |node: usize| cluster.nodes()[node].address().to_string();
    let found = look(&cluster).await;
    for check in ["replicas", "links", "alike", "clocks"] {
        assert_eq!(of(&found, check).health(), Health::Ok, "{found:?}");
    }
    assert_eq!(of(&found, "replicas").found(), "1, 1, 1");
    let [behind, cut] = [0, 1].map(|master| cluster.replica_of(master));
    // It takes in what comes, and carries out none of it.
    cluster.tell(behind, "CLIENT PAUSE 600000 WRITE");
    let of_first = (0..).map(|at| format!("fill:{at}"));
    let key = of_first.map(|key| (cluster.owner(cluster.slot_of(&key), 0), key));
    let (_, key) = key.into_iter().find(|(owner, _)| *owner == Some(0)).expect("one of many");
    let fill = "for i = 1, 30 do redis.call('SET', KEYS[1], string.rep('x', 100000)) end";
    let reply = cluster.nodes()[0].raw().send(&["EVAL", fill, "1", &key]).expect("an answer");
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    let found = look(&cluster).await;
    says(&found, "links", Health::Warning, "the network");
    let links = of(&found, "links").found();
    assert!(links.starts_with(&format!("{} is ", place(behind))), "{links}");
    assert!(links.ends_with("KiB behind"), "{links}");
    cluster.tell(behind, "CLIENT UNPAUSE");
    until_found(&cluster, "links", |links| links.health() == Health::Ok).await;
    cluster.tell(cut, "CONFIG SET masteruser nobody");
    cluster.tell(cut, "CONFIG SET masterauth wrong");
    cluster.tell(1, "CLIENT KILL TYPE replica");
    let found = until_found(&cluster, "links", |links| links.health() != Health::Ok).await;
    says(&found, "links", Health::Warning, "masterauth");
    let told = format!("{} does not reach its master", place(cut));
    assert_eq!(of(&found, "links").found(), told);
    // It is there, and does not follow.
    says(&found, "replicas", Health::Ok, "");
    cluster.tell(behind, "CONFIG SET maxmemory-policy allkeys-lru");
    let found = look(&cluster).await;
    says(&found, "alike", Health::Warning, "as it is at the master");
    let told = format!("{} differs in maxmemory-policy", place(behind));
    assert_eq!(of(&found, "alike").found(), told);
}

/// Over a failover tokens go on from the clock of the replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_of_a_cluster_that_are_apart_are_told() {
    let servers = RedisConfig::default().with_clock();
    let cluster = RedisCluster::start(&calm().with_servers(servers));
    assert_eq!(of(&look(&cluster).await, "clocks").health(), Health::Ok);
    let replica = &cluster.nodes()[cluster.replica_of(1)];
    replica.clock().step_back(Duration::from_secs(20));
    replica.await_clock();
    let found = look(&cluster).await;
    says(&found, "clocks", Health::Warning, "slewed");
    assert!(of(&found, "clocks").found().starts_with("6 of 6 servers"), "{found:?}");
    says(&found, "clock", Health::Ok, "");
    // A failover takes as long as the node timeout at least.
    cluster.tell(0, "CONFIG SET cluster-node-timeout 15000");
    says(&look(&cluster).await, "clocks", Health::Error, "fencing tokens may fall");
}

/// Gone unnoticed yet, found dead by the others, and one of two: each leaves less than there is to
/// be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_without_a_living_replica_are_told() {
    let cluster = RedisCluster::start(&calm().with_size(3, 2));
    assert_eq!(of(&look(&cluster).await, "replicas").found(), "2, 2, 2");
    let place = |node: usize| cluster.nodes()[node].address().to_string();
    // Nobody finds it dead: the nodes go on naming it.
    let [first, second] = [3, 6];
    cluster.nodes()[first].kill();
    let found = look(&cluster).await;
    says(&found, "replicas", Health::Warning, &format!("CLUSTER FORGET): {}", place(first)));
    assert_eq!(of(&found, "replicas").found(), "1, 2, 2");
    says(&found, "links", Health::Warning, "");
    assert!(of(&found, "links").found().contains("does not answer"), "{found:?}");
    cluster.nodes()[second].stop();
    let found = look(&cluster).await;
    says(&found, "replicas", Health::Warning, &format!("give {} a replica", place(0)));
    assert_eq!(of(&found, "replicas").found(), "0, 2, 2");
    cluster.nodes()[second].cont();
    // Found dead, it is named as one of its master's no longer. Nobody is to take over meanwhile.
    let others = || (0..9).filter(|node| *node != first);
    for node in others() {
        cluster.tell(node, "CONFIG SET cluster-replica-no-failover yes");
        cluster.tell(node, "CONFIG SET cluster-node-timeout 1000");
    }
    let is_unnamed = |links: &Finding| links.health() == Health::Ok;
    let found = until_found(&cluster, "links", is_unnamed).await;
    says(&found, "replicas", Health::Warning, &format!("CLUSTER FORGET): {}", place(first)));
    let id = known_id(&cluster, &place(first));
    for node in others() {
        cluster.tell(node, &format!("CLUSTER FORGET {id}"));
    }
    until_found(&cluster, "replicas", |replicas| replicas.health() == Health::Ok).await;
}

/// The id of a node that does not tell it any more.
fn known_id(cluster: &RedisCluster, place: &str) -> String {
    let nodes = cluster.tell(0, "CLUSTER NODES").text().expect("text");
    let line = nodes.lines().find(|line| line.contains(&format!(" {place}@")));
    line.and_then(|line| line.split(' ').next()).expect("it is known").to_owned()
}
