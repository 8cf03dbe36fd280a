//! What `doctor` finds on a cluster that is set up wrong, in one way after another.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Checkup, Finding, Health};
use holdline_redis::{RedisOptions, checkup};
use holdline_services::RedisCluster;

use crate::support::{calm, options};

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
