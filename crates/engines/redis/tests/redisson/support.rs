//! Helpers of these tests: engines of one server, and attempts.

use std::sync::Arc;
use std::time::Duration;

use holdline::Client;
use holdline_conformance::asking;
pub(crate) use holdline_conformance::asking::{ending, name, take};
use holdline_conformance::clock::MachineClock;
use holdline_core::contract::MIN_HAND_OFF_LEASE;
use holdline_core::{AcquireRequest, LockError};
use holdline_redis::{RedisOptions, RedissonEngine};
use holdline_services::{RedisServer, Reply};

/// The time limit of an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn engine(server: &RedisServer, parameters: &str) -> RedissonEngine {
    connect(&server.url(), parameters).await.expect("connected")
}

pub(crate) async fn connect(url: &str, parameters: &str) -> Result<RedissonEngine, LockError> {
    let options = RedisOptions::from_url(&format!("{url}?dialect=redisson&{parameters}"))?;
    let options = match parameters.contains("command_timeout_ms") {
        true => options,
        // A limit that a busy machine does not reach.
        false => options.with_command_timeout(PATIENCE),
    };
    let options = options.with_connect_timeout(PATIENCE);
    RedissonEngine::connect(&options, Arc::new(MachineClock)).await
}

/// A client of the library with an engine of its own.
pub(crate) async fn client(server: &RedisServer) -> Client {
    Client::with_options(Arc::new(engine(server, "").await), holdline::ClientOptions::default())
        .expect("a client")
}

/// A request under a fresh id, which does not queue.
pub(crate) fn request(text: &str) -> AcquireRequest {
    AcquireRequest { queue: false, hand_off_lease: MIN_HAND_OFF_LEASE, ..asking::request(text) }
}

/// Sends a command past the engine.
pub(crate) fn behind(server: &RedisServer, args: &[&str]) -> Reply {
    server.raw().send(args).expect("the server answers")
}

/// Returns how often the server has run a command.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = behind(server, &["INFO", "commandstats"]).text().expect("a text");
    let head = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&head));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}
