//! The initialisation of a set, and its errors.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Engine, ErrorKind, FencingToken, Operation};
use holdline_redis::{NodeState, QuorumEngine, QuorumOptions};
use holdline_services::{RedisConfig, Reply};

use crate::support::{Nodes, name, request};

#[tokio::test]
async fn a_set_works_after_an_operator_vouches() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let before = nodes.admin().status().await;
    assert!(before.nodes.iter().all(|node| node.state == NodeState::Blank), "{before:?}");
    let keys = nodes.servers[0].raw().send(&["DBSIZE"]).expect("an answer");
    assert_eq!(keys, Reply::Integer(0), "looking changes nothing");
    let initialised = nodes.admin().init().await.expect("all answer");
    assert_eq!(
        (initialised.epoch, initialised.votes),
        (Some(1), 0),
        "they may have lost data: {initialised:?}"
    );
    let again = nodes.admin().init().await.expect("it is a set already");
    assert_eq!((again.epoch, again.votes), (Some(1), 0), "nobody has vouched: {again:?}");
    let status = crate::support::vouched(&nodes.admin()).await;
    assert_eq!((status.epoch, status.votes, status.majority), (Some(2), 3, 2), "{status:?}");
    assert_eq!((status.may_lose, status.problem), (1, None));
    assert!(status.nodes.iter().all(|node| node.state == NodeState::Votes), "{:?}", status.nodes);
    let again = nodes.admin().init().await.expect("it is a set already");
    assert_eq!((again.epoch, again.votes), (Some(2), 3), "{again:?}");
}

/// Otherwise an operator would find a quarantine of ten minutes that no client caused on purpose.
#[tokio::test]
async fn a_read_only_client_initialises_no_set_and_an_acquire_does() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    let connect = async || {
        let engine = QuorumEngine::connect(&nodes.options(""), Arc::new(MachineClock)).await;
        engine.expect("blank servers are no error")
    };
    let engine = connect().await;
    let token = FencingToken::new(5).expect("a good token");
    let revoke = Operation::Revoke { name: name(), token, reason: "x".into(), now: true };
    for reported in [
        engine.inspect(&name()).await.map(drop),
        engine.operate(&revoke).await.map(drop),
        engine.operate(&Operation::RaiseFence { to: token }).await.map(drop),
    ] {
        let error = reported.expect_err("they are no set");
        assert!(matches!(error.kind(), ErrorKind::NotInitialised), "{error:?}");
    }
    for server in &nodes.servers {
        assert_eq!(server.raw().say("DBSIZE").expect("a reply").integer(), Some(0));
    }
    // The same client may acquire a name later.
    let error = engine.try_acquire(&request(1)).await.expect_err("it waits at first");
    assert!(!matches!(error.kind(), ErrorKind::NotInitialised), "{error:?}");
    drop(engine);
    let other = connect().await;
    let error = other.try_acquire(&request(2)).await.expect_err("founded, and it waits");
    assert!(matches!(error.kind(), ErrorKind::Quarantined { .. }), "{error:?}");
    let error = other.inspect(&name()).await.expect_err("in quarantine").to_string();
    assert_eq!(error.matches("in its first quarantine for").count(), 3, "{error}");
}

/// No client resolves that, so the status does not advise waiting.
#[tokio::test]
async fn a_wrong_list_is_reported_for_each_server() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let hosts: Vec<String> = nodes.servers.iter().map(|one| one.address().to_string()).collect();
    let [first, second] = [0, 1].map(|at| hosts[at].as_str());
    let again = format!("localhost:{}", nodes.servers[0].address().port());
    for (list, says) in [
        (format!("{first},{second}"), "every server of the set"),
        (format!("{first},{again},{second}"), "each server once"),
    ] {
        let url = format!("redlock://{list}?command_timeout_ms=5000");
        let options = QuorumOptions::from_url(&url).expect("a good URL");
        let status = crate::support::admin_of(&options).status().await;
        assert!(!status.works(), "{status:?}");
        for node in &status.nodes {
            assert_eq!(node.state, NodeState::Mislisted, "{node:?}");
            assert!(
                node.problem.as_deref().is_some_and(|reported| reported.ends_with("of 3 servers"))
            );
            assert!(node.fix.as_deref().is_some_and(|fix| fix.contains(says)), "{node:?}");
        }
    }
}

/// A set with one server in quarantine needs no initialisation.
#[tokio::test]
async fn an_init_beside_a_server_in_quarantine_ends_at_once() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    nodes.servers[0].raw().say("FLUSHALL").expect("flushed");
    nodes.admin().rejoin().await.expect("the address is right");
    let status = nodes.admin().init().await.expect("nothing is to be done");
    assert_eq!((status.votes, status.nodes[0].state), (2, NodeState::Quarantined), "{status:?}");
}

/// Its data cannot prove itself: an operator had switched persistence off for a while, and the
/// restored old file does not show that.
#[tokio::test]
async fn a_durable_server_is_in_quarantine_after_a_restart_as_any_other() {
    let nodes = Nodes::start(3, &RedisConfig::default().with_appendonly("always"));
    nodes.init().await;
    let stopped = nodes.servers[0].raw().send(&["CONFIG", "SET", "appendonly", "no"]);
    stopped.expect("set");
    nodes.servers[0].kill();
    nodes.servers[0].restart();
    let status = nodes.admin().status().await;
    assert_eq!((status.votes, status.nodes[0].state), (2, NodeState::Forgot), "{status:?}");
}
