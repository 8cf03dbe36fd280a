//! Helpers of these tests: engines of one server, and attempts.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::asking;
pub(crate) use holdline_conformance::asking::{ending, name, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::AcquireRequest;
use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_redis::{PlainEngine, RedisOptions};
use holdline_services::{RedisServer, Reply};

/// The time limit of an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An engine whose lock key is `lock:NAME`.
pub(crate) async fn engine(server: &RedisServer, parameters: &str) -> PlainEngine {
    at(&server.url(), parameters).await
}

pub(crate) async fn at(url: &str, parameters: &str) -> PlainEngine {
    let url = format!("{url}?dialect=plain&key_template=lock:{{name}}&{parameters}");
    let options = RedisOptions::from_url(&url).expect("a good URL");
    let options = match parameters.contains("command_timeout_ms") {
        true => options,
        // A limit that a busy machine does not reach.
        false => options.with_command_timeout(PATIENCE),
    };
    let options = options.with_connect_timeout(PATIENCE);
    PlainEngine::connect(&options, Arc::new(MachineClock)).await.expect("connected")
}

/// A request under a fresh id, which does not queue.
pub(crate) fn request(text: &str) -> AcquireRequest {
    AcquireRequest { queue: false, hand_off_lease: MIN_HAND_OFF_LEASE, ..asking::request(text) }
}

/// Sends a command past the engine.
pub(crate) fn behind(server: &RedisServer, line: &str) -> Reply {
    server.raw().say(line).expect("the server answers")
}

/// Returns how often the server has run a command.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = behind(server, "INFO commandstats").text().expect("a text");
    let head = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&head));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}
