//! Wrong input: each error names the fix, and nothing is written.

use std::sync::Arc;

use holdline_conformance::asking::{name, request, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, Engine, ErrorKind, LatchCommand, LockError};
use holdline_redis::{ClusterEngine, RedisEngine, RedisOptions, connect};
use holdline_services::{ClusterConfig, RedisCluster, RedisConfig, RedisServer, Reply};

async fn failure(url: &str) -> LockError {
    let options = RedisOptions::from_url(url).expect("a good URL");
    let error = match connect(&options, Arc::new(MachineClock)).await {
        Ok(_) => panic!("connected: {url}"),
        Err(error) => error,
    };
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error:?}");
    assert!(!error.to_string().contains("CANARY"), "{error}");
    error
}

async fn refused(url: &str, says: &[&str]) {
    let error = failure(url).await;
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error:?}");
    let reported = error.to_string();
    assert!(says.iter().all(|part| reported.contains(part)), "{reported}");
}

fn is_empty(server: &RedisServer) {
    let keys = server.raw().say("KEYS *").expect("an answer");
    assert_eq!(keys.items().map(<[Reply]>::len), Some(0), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_url_is_reported_with_the_fix() {
    let servers = RedisConfig::default()
        .with_password("CANARY-right")
        .with_user("narrow on >CANARY-narrow ~* &* +@all -cluster");
    let cluster =
        RedisCluster::start(&ClusterConfig::default().with_size(1, 0).with_servers(servers));
    let alone = RedisServer::start(RedisConfig::default());
    let node = &cluster.nodes()[0];
    // A single server in place of a cluster, and the reverse.
    let server = format!("redis-cluster://{}", alone.address());
    refused(&server, &["no Redis Cluster", "`redis://`"]).await;
    for dialect in ["native", "plain"] {
        let url = format!("{}?dialect={dialect}", node.url());
        refused(&url, &["node of a Redis Cluster", "`redis-cluster://`"]).await;
    }
    // Users and rights.
    let address = node.address();
    refused(&format!("redis-cluster://{address}"), &["requires a password"]).await;
    refused(&format!("redis-cluster://:CANARY-wrong@{address}"), &["password is wrong"]).await;
    let narrow = format!("redis-cluster://narrow:CANARY-narrow@{address}");
    refused(&narrow, &["its ACL lacks +cluster"]).await;
    // No server answers; if one of two does, that one serves.
    let nobody = failure("redis-cluster://127.0.0.1:1,127.0.0.1:2?connect_timeout_ms=2000").await;
    assert!(matches!(nobody.kind(), ErrorKind::Unavailable { .. }), "{nobody:?}");
    assert!(nobody.to_string().contains("nobody listens there"), "{nobody}");
    is_empty(node);
    is_empty(&alone);
    let one = cluster
        .url()
        .replace("redis-cluster://", "")
        .replace(&address.to_string(), &format!("127.0.0.1:1,{address}"));
    let options = RedisOptions::from_url(&format!("redis-cluster://{one}")).expect("a good URL");
    let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("there");
    take(&engine, &request("a")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_is_reported_and_left() {
    let cluster = RedisCluster::start(&ClusterConfig::default().with_size(1, 0));
    let options = RedisOptions::from_url(&cluster.url()).expect("a good URL");
    let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("there");
    let mut raw = cluster.nodes()[0].raw();
    raw.say("SET holdline:{a} mine").expect("written");
    raw.say("SET holdline:fence:{b} mine").expect("written");
    for name in ["a", "b"] {
        let error = engine.try_acquire(&request(name)).await.expect_err("foreign");
        assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error:?}");
    }
    for key in ["holdline:{a}", "holdline:fence:{b}"] {
        let reply = raw.send(&["GET", key]).expect("an answer");
        assert_eq!(reply.text().as_deref(), Some("mine"));
        let reply = raw.send(&["PTTL", key]).expect("an answer");
        assert_eq!(reply.integer(), Some(-1), "{key} is given no end");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_tls_the_nodes_are_verified_by_their_certificates() {
    let servers = RedisConfig::default().with_tls().with_line("tls-cluster yes");
    let cluster =
        RedisCluster::start(&ClusterConfig::default().with_size(1, 0).with_servers(servers));
    let node = &cluster.nodes()[0];
    let url = format!("rediss-cluster://{}", node.tls_address());
    let with = |ca: std::path::PathBuf| format!("{url}?ca={}", ca.display());
    let error = failure(&with(node.certificates().other_ca())).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let plain = format!("redis-cluster://{}?connect_timeout_ms=2000", node.tls_address());
    let error = failure(&plain).await;
    assert!(error.to_string().contains("TLS"), "{error}");
    is_empty(node);
    let options = RedisOptions::from_url(&with(node.certificates().ca())).expect("a good URL");
    let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("there");
    take(&engine, &request("a")).await;
}

/// A latch has a key under our prefix, in the slot of its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_may_have_any_name_in_a_cluster() {
    let cluster = RedisCluster::start(&ClusterConfig::default().with_size(2, 0));
    let options = RedisOptions::from_url(&cluster.url()).expect("a good URL");
    let engine = ClusterEngine::connect(&options, Arc::new(MachineClock)).await.expect("there");
    for text in ["a", "b", "{a}", "{}%", "50%"] {
        let latch = async |command| {
            Engine::latch(&engine, &name(text), command).await.expect("answered").count
        };
        assert_eq!(latch(LatchCommand::Set(2)).await, 2, "{text}");
        assert_eq!(latch(LatchCommand::CountDown(2)).await, 0, "{text}");
    }
}

/// The engine of a single server detects a cluster node that was none at first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_of_one_server_detects_a_cluster_node_on_its_first_request() {
    let cluster = RedisCluster::start(&ClusterConfig::default().with_size(2, 0));
    let options = RedisOptions::from_url(&cluster.nodes()[0].url()).expect("a good URL");
    let engine = RedisEngine::new(&options, Arc::new(MachineClock)).expect("good options");
    let elsewhere = (0..)
        .map(|number| format!("n{number}"))
        .find(|name| cluster.owner(cluster.slot_of(&format!("holdline:{{{name}}}")), 0) == Some(1));
    let error = engine.try_acquire(&request(&elsewhere.expect("many"))).await.expect_err("moved");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("`redis-cluster://`"), "{error}");
}
