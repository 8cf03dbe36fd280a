//! Listings of a quorum, server by server, and keys that another client has left on some of them.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::snapshot::ServerHold;
use holdline_core::{
    AcquireReply, AcquireRequest, Engine, ErrorKind, Finding, Health, ListRequest, LockName,
    Operation, OperationReply, Snapshot,
};
use holdline_redis::{QuorumEngine, quorum_checkup};
use holdline_services::{RedisConfig, RedisServer};

use crate::support::{Nodes, name, request};

const PLAIN: &str = "&dialect=plain&key_template=lock:{name}";
const BARE: &str = "&dialect=plain&key_template=lock:{name}&fencing=off";

async fn open(parameters: &str) -> (Nodes, QuorumEngine) {
    let nodes = Nodes::start(3, &RedisConfig::default());
    if parameters != BARE {
        nodes.init_with(parameters).await;
    }
    let engine = QuorumEngine::connect(&nodes.options(parameters), Arc::new(MachineClock)).await;
    (nodes, engine.expect("the servers are there"))
}

fn say(server: &RedisServer, line: &str) {
    server.raw().say(line).expect("an answer");
}

async fn listed(engine: &QuorumEngine) -> Vec<Snapshot> {
    engine.list(&ListRequest::default()).await.expect("listed").names
}

fn names(shown: &[Snapshot]) -> Vec<&str> {
    shown.iter().map(|one| one.name.as_str()).collect()
}

/// How many servers show each holder, and on how many it has no expiry.
fn holds(shown: &Snapshot) -> Vec<(usize, usize)> {
    let servers = shown.servers.as_ref().expect("a quorum");
    assert_eq!(servers.servers, 3);
    let pair = |hold: &ServerHold| (hold.servers, hold.without_expiry);
    servers.holds.iter().map(pair).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_listed_with_the_servers_that_show_each_holder() {
    for parameters in [PLAIN, BARE] {
        let (nodes, engine) = open(parameters).await;
        for (id, text) in [(1, "a"), (2, "b")] {
            let name = LockName::new(text).expect("a good name");
            let reply = engine.try_acquire(&AcquireRequest { name, ..request(id) }).await;
            assert!(matches!(reply, Ok(AcquireReply::Granted { .. })), "{parameters}: {reply:?}");
        }
        let shown = listed(&engine).await;
        assert_eq!(names(&shown), ["a", "b"], "{parameters}");
        assert!(shown.iter().all(Snapshot::is_held));
        // One server is lost: the others have every name.
        nodes.servers[0].kill();
        let shown = listed(&engine).await;
        assert_eq!(names(&shown), ["a", "b"], "{parameters}");
        let servers = shown[0].servers.as_ref().expect("a quorum");
        assert_eq!((servers.servers, servers.holds.len()), (3, 1));
        nodes.servers[1].kill();
        let error = engine.list(&ListRequest::default()).await.expect_err("no majority");
        assert!(matches!(error.kind(), ErrorKind::NoQuorum { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_an_expiry_on_some_servers_is_shown_and_ended() {
    for parameters in [PLAIN, BARE] {
        let (nodes, engine) = open(parameters).await;
        say(&nodes.servers[0], "SETNX lock:a theirs");
        // Another holder on a minority, which ends by itself, is no leak.
        say(&nodes.servers[0], "SET lock:b theirs PX 600000");
        let shown = listed(&engine).await;
        assert_eq!(names(&shown), ["a"], "{parameters}");
        assert_eq!((holds(&shown[0]), shown[0].is_held()), (vec![(1, 1)], false), "{parameters}");
        let found = quorum_checkup(&nodes.options(parameters), Arc::new(MachineClock)).await;
        let found = found.expect("good options");
        let keys = |one: &&Finding| one.check() == "keys" && one.health() == Health::Warning;
        let leak = found.findings().iter().find(keys).expect("it looks");
        let address = nodes.servers[0].address().to_string();
        assert!(leak.found().starts_with(&address), "{parameters}: {leak:?}");
        assert!(leak.found().contains("1 without an expiry: a ("), "{parameters}: {leak:?}");
        let fix = leak.fix().expect("a fix");
        assert_eq!(fix.contains("holdline revoke"), parameters == BARE, "{fix}");
        say(&nodes.servers[1], "SETNX lock:a theirs");
        say(&nodes.servers[2], "SET lock:a others PX 600000");
        let shown = engine.inspect(&name()).await.expect("shown");
        assert_eq!((holds(&shown), shown.is_held()), (vec![(2, 1 + 1), (1, 0)], true));
        assert!(shown.holders[0].summary.no_expiry, "{shown:?}");
        let holder = shown.holders[0].summary.lease_id.to_string();
        let revoke = |holder: &str| Operation::RevokeHolder {
            name: name(),
            holder: holder.to_owned(),
            reason: "why".into(),
        };
        if parameters == PLAIN {
            let error = engine.operate(&revoke(&holder)).await.expect_err("by its token only");
            assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
            continue;
        }
        let nobody = engine.operate(&revoke("0815")).await.expect("answered");
        assert_eq!(nobody, OperationReply::NothingThere);
        let done = engine.operate(&revoke(&holder)).await.expect("answered");
        assert_eq!(done, OperationReply::Done);
        let shown = engine.inspect(&name()).await.expect("shown");
        assert!(!shown.is_used() && shown.servers.is_none(), "{shown:?}");
        let left = nodes.servers[2].raw().say("GET lock:a").expect("an answer");
        assert_eq!(left.text().as_deref(), Some("others"), "another holder is left");
    }
}
