//! Listings of Redisson's locks, and keys that a client has left without an expiry.

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireRequest, Engine, Health, ListRequest, LockKind, Mode, Operation, OperationReply,
};
use holdline_redis::{RedisOptions, RedissonEngine, checkup};
use holdline_services::{Flavour, RedisConfig, RedisServer};

use crate::cluster;
use crate::support::{behind, calls, engine, name, request, take};

const OWNER: &str = "b983c153-7421-469a-addb-44fb92259a1b:47";

/// The names of a listing, each with `!` if it has no expiry.
async fn listed(engine: &RedissonEngine, prefix: &str, limit: usize) -> Vec<String> {
    let mut request = ListRequest { prefix: prefix.into(), after: None, limit };
    let mut names = Vec::new();
    loop {
        let page = engine.list(&request).await.expect("listed");
        for shown in &page.names {
            let mark = if shown.holders[0].summary.no_expiry { "!" } else { "" };
            names.push(format!("{}{mark}", shown.name));
        }
        request.after = page.after;
        if request.after.is_none() {
            return names;
        }
    }
}

#[tokio::test]
async fn locks_of_redisson_are_listed_with_client_thread_and_count() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    behind(&server, &["HSET", "java", OWNER, "2"]);
    behind(&server, &["PEXPIRE", "java", "600000"]);
    behind(&server, &["HSET", "leaked", OWNER, "1"]);
    // Data of an application.
    behind(&server, &["HSET", "user:7", "name", "Ada"]);
    behind(&server, &["SET", "number", "7"]);
    take(&engine, &request("ours")).await;
    let kind = LockKind::ReadWrite;
    take(&engine, &AcquireRequest { mode: Mode::Shared, kind, ..request("readers") }).await;
    assert_eq!(listed(&engine, "", 2).await, ["java", "leaked!", "ours", "readers"]);
    assert_eq!(listed(&engine, "l", 100).await, ["leaked!"]);
    let shown = engine.inspect(&name("java")).await.expect("shown");
    let labels = shown.holders[0].summary.metadata.fields().labels;
    let label = |key: &str| labels.get(key).map(String::as_str);
    assert_eq!(label("client"), OWNER.split_once(':').map(|(client, _)| client));
    assert_eq!((label("thread"), label("holds")), (Some("47"), Some("2")));
    assert_eq!(calls(&server, "keys"), 0);
}

#[tokio::test]
async fn doctor_names_the_keys_without_an_expiry_and_revoke_ends_them() {
    let server = RedisServer::start(RedisConfig::default());
    let engine = engine(&server, "").await;
    take(&engine, &request("ours")).await;
    behind(&server, &["HSET", "user:7", "name", "Ada"]);
    let url = format!("{}?dialect=redisson", server.url());
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let keys = async || {
        let clock = std::sync::Arc::new(MachineClock);
        let found = checkup(&options, clock).await.expect("good options");
        found.findings().iter().find(|one| one.check() == "keys").expect("it looks").clone()
    };
    assert_eq!(keys().await.health(), Health::Ok, "{}", keys().await.found());
    behind(&server, &["HSET", "leaked", OWNER, "1"]);
    let found = keys().await;
    assert_eq!(found.health(), Health::Warning, "{}", found.found());
    assert!(found.found().contains("1 without an expiry: leaked (not used for "), "{found:?}");
    assert!(found.fix().is_some_and(|fix| fix.contains("holdline revoke leaked")), "{found:?}");
    let operation = Operation::RevokeHolder {
        name: name("leaked"),
        holder: OWNER.to_owned(),
        reason: "why".into(),
    };
    let reply = Engine::operate(&engine, &operation).await.expect("answered");
    assert_eq!(reply, OperationReply::Done);
    assert_eq!(keys().await.health(), Health::Ok);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_of_a_cluster_asks_each_master() {
    let servers = cluster::masters(Flavour::Debian);
    let engine = cluster::engine(&servers, "").await;
    let all: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    for text in &all {
        take(&engine, &request(text)).await;
    }
    assert_eq!(listed(&engine, "", 7).await, all);
    for node in servers.nodes() {
        assert!(calls(node, "scan") > 0 && calls(node, "keys") == 0, "{}", node.url());
    }
}
