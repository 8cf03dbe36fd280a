//! Foreign data in the keys of a node: it is reported and left as it is. On one node it costs that
//! node's vote; on all of them every verb reports it.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{
    AcquireReply, Certainty, Ending, Engine, ErrorKind, LockError, Purpose, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest,
};
use holdline_redis::{NodeState, QuorumEngine};
use holdline_services::{RedisConfig, RedisServer, Reply};

use crate::support::{HOLD, Nodes, name, request};

const LOCK: &str = "holdline:{a}";
const COUNTER: &str = "holdline:{a}:1l";
const NODE: &str = "holdline:node:1";

/// Foreign data under a name's keys.
const OF_NAME: [&[&str]; 7] = [
    &["SET", LOCK, "x"],
    &["RPUSH", LOCK, "x"],
    &["HSET", LOCK, "f", "v"],
    &["SET", COUNTER, "x"],
    &["SET", COUNTER, "9999999999999999"],
    &["SADD", COUNTER, "x"],
    &["HSET", COUNTER, "f", "v"],
];
/// Foreign data under the key of a node: the whole key, or one field.
const OF_NODE: [&[&str]; 4] = [
    &["SET", NODE, "x"],
    &["RPUSH", NODE, "x"],
    &["ZADD", NODE, "5", "x"],
    &["HSET", NODE, "f", "v"],
];
const FIELDS: [(&str, &str); 8] = [
    ("l", "x"),
    ("f", "17"),
    ("g", "ajar"),
    ("i", "nobody"),
    ("w", "nobody"),
    ("c", "1 junk"),
    ("s", "junk"),
    ("r", "soon"),
];

fn say(server: &RedisServer, words: &[&str]) -> Reply {
    server.raw().send(words).expect("an answer")
}

/// Returns the content of a key, in a stable order.
fn content(server: &RedisServer, key: &str) -> Vec<String> {
    let fields = say(server, &["HGETALL", key]);
    let Some(fields) = fields.items() else {
        return vec![format!("{:?}", say(server, &["DUMP", key]))];
    };
    let mut fields: Vec<String> = fields.chunks(2).map(|pair| format!("{pair:?}")).collect();
    fields.sort_unstable();
    fields
}

async fn connect(nodes: &Nodes) -> QuorumEngine {
    let engine = QuorumEngine::connect(&nodes.options(""), Arc::new(MachineClock)).await;
    let engine = engine.expect("a majority is well");
    // A majority is enough to connect. If the first node has foreign data, both others must vote.
    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    engine.health().subscribe(move |health| {
        report.send(health.nodes[1..].iter().all(|node| node.votes)).is_ok()
    });
    while !reports.recv().await.expect("a report") {}
    engine
}

async fn renew(engine: &QuorumEngine, id: u8) -> Result<RenewReply, LockError> {
    let asked = request(id);
    let line = RenewRequest {
        name: name(),
        lease_id: asked.lease_id,
        client: asked.client,
        purpose: Purpose::Keep(HOLD),
    };
    engine.renew(&[line]).await.pop().expect("a line")
}

async fn release(engine: &QuorumEngine, id: u8) -> Result<ReleaseReply, LockError> {
    let ending = Ending { for_good: true, hold: HOLD };
    engine.release(&ReleaseRequest { name: name(), lease_id: request(id).lease_id, ending }).await
}

/// The other two nodes lock normally, and the foreign data stays.
async fn costs_one_node(nodes: &Nodes, key: &str, id: u8) {
    let before = content(&nodes.servers[0], key);
    let engine = connect(nodes).await;
    let granted = engine.try_acquire(&request(id)).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted { .. })), "{key}: {granted:?}");
    assert!(engine.inspect(&name()).await.expect("a reply").is_held(), "{key}");
    let renewed = renew(&engine, id).await;
    assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })), "{key}: {renewed:?}");
    let released = release(&engine, id).await;
    assert!(matches!(released, Ok(ReleaseReply::Released { .. })), "{key}: {released:?}");
    drop(engine);
    assert_eq!(content(&nodes.servers[0], key), before, "{key}");
}

#[tokio::test]
async fn foreign_data_under_a_name_of_one_node_is_left_and_costs_that_node() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    for (plant, id) in OF_NAME.into_iter().zip(1..) {
        say(&nodes.servers[0], &["DEL", LOCK, COUNTER]);
        say(&nodes.servers[0], plant);
        costs_one_node(&nodes, plant[1], id).await;
    }
}

/// Returns the key of the tombstone of a lease id.
fn mark(id: u8) -> String {
    format!("{LOCK}:1t:{}", request(id).lease_id.to_hex())
}

#[tokio::test]
async fn foreign_data_in_place_of_a_tombstone_is_left_and_costs_that_node() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    for (plant, id) in [["SET", "x"], ["SET", ""], ["RPUSH", "x"], ["SADD", "x"]].iter().zip(1..) {
        say(&nodes.servers[0], &["DEL", LOCK]);
        say(&nodes.servers[0], &[plant[0], &mark(id), plant[1]]);
        costs_one_node(&nodes, &mark(id), id).await;
    }
}

#[tokio::test]
async fn foreign_data_in_place_of_all_tombstones_is_reported_and_left() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let engine = connect(&nodes).await;
    for server in &nodes.servers {
        say(server, &["SET", &mark(1), "x"]);
    }
    let asked = engine.try_acquire(&request(1)).await.map(drop);
    for reported in [asked, release(&engine, 1).await.map(drop)] {
        let reported = reported.expect_err("not ours");
        assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{reported}");
        assert_eq!(reported.certainty(), Certainty::NotApplied, "{reported}");
    }
    for server in &nodes.servers {
        assert_eq!(say(server, &["GET", &mark(1)]).text().as_deref(), Some("x"));
        assert_eq!(say(server, &["EXISTS", LOCK]).integer(), Some(0));
    }
    // Another lease id has a tombstone of its own.
    let granted = engine.try_acquire(&request(2)).await;
    assert!(matches!(granted, Ok(AcquireReply::Granted { .. })), "{granted:?}");
}

#[tokio::test]
async fn foreign_data_under_the_key_of_a_node_is_reported_and_costs_that_node() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let server = &nodes.servers[0];
    let mut ids = 1..;
    let mut id = || ids.next().expect("enough");
    // Its data is saved, and restored after each case.
    say(server, &["RENAME", NODE, "kept"]);
    for plant in OF_NODE {
        say(server, plant);
        costs_one_node(&nodes, NODE, id()).await;
        is_reported(&nodes).await;
        say(server, &["DEL", NODE]);
    }
    for (field, value) in FIELDS {
        say(server, &["COPY", "kept", NODE, "REPLACE"]);
        say(server, &["HSET", NODE, field, value]);
        costs_one_node(&nodes, NODE, id()).await;
        is_reported(&nodes).await;
    }
    say(server, &["RENAME", "kept", NODE]);
    assert_eq!(nodes.admin().status().await.votes, 3);
}

/// An operator gets the error of the first node.
async fn is_reported(nodes: &Nodes) {
    let status = nodes.admin().status().await;
    assert_eq!(status.votes, 2, "{status:?}");
    let node = &status.nodes[0];
    let problem = node.problem.as_deref().unwrap_or_default();
    assert!(node.state == NodeState::Down && problem.contains("not ours"), "{node:?}");
}

#[tokio::test]
async fn foreign_data_on_all_nodes_is_reported_by_every_verb_and_left() {
    let nodes = Nodes::start(3, &RedisConfig::default());
    nodes.init().await;
    let engine = connect(&nodes).await;
    let on_all = |words: &[&str]| {
        let servers = nodes.servers.iter();
        servers.map(|server| say(server, words)).collect::<Vec<Reply>>()
    };
    for plant in OF_NAME {
        on_all(&["DEL", LOCK, COUNTER]);
        on_all(plant);
        let before = on_all(&["DUMP", plant[1]]);
        let mut reported = vec![engine.try_acquire(&request(1)).await.map(drop)];
        if plant[1] == LOCK {
            reported.push(renew(&engine, 2).await.map(drop));
            reported.push(release(&engine, 2).await.map(drop));
            reported.push(engine.inspect(&name()).await.map(drop));
        }
        for reported in reported {
            let reported = reported.expect_err("not ours");
            assert!(matches!(reported.kind(), ErrorKind::Foreign { .. }), "{plant:?}: {reported}");
            assert_eq!(reported.certainty(), Certainty::NotApplied, "{plant:?}: {reported}");
        }
        assert_eq!(on_all(&["DUMP", plant[1]]), before, "{plant:?}");
        assert!(
            on_all(&["EXISTS", LOCK])
                .iter()
                .all(|there| { there.integer() == Some(i64::from(plant[1] == LOCK)) })
        );
    }
}
