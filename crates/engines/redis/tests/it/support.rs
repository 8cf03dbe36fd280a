//! Helpers of these tests: engines of one server, and contenders.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use holdline_conformance::asking::{
    HOLD, ending, let_go, name, queue, renew, request, take,
};
use holdline_conformance::clock::MachineClock;
use holdline_redis::{RedisEngine, RedisOptions};
use holdline_services::{RedisServer, Reply};

/// The time limit of an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An engine with limits that a busy machine does not reach.
pub(crate) async fn engine(server: &RedisServer) -> RedisEngine {
    let options = RedisOptions::from_url(&server.url()).expect("a good URL");
    let options = options.with_command_timeout(PATIENCE).with_connect_timeout(PATIENCE);
    RedisEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected")
}

/// Sends a command past the engine.
pub(crate) fn raw(server: &RedisServer, words: &[&str]) -> Reply {
    server.raw().send(words).expect("the server answers")
}

/// Returns all keys of the server but its master term, in order.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let reply = raw(server, &["KEYS", "*"]);
    let mut keys: Vec<String> =
        reply.items().expect("a list").iter().filter_map(Reply::text).collect();
    keys.retain(|key| key != "holdline:reign:1");
    keys.sort_unstable();
    keys
}
