//! Shared by the tests: engines of one server, and contenders.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use holdline_conformance::asking::{
    HOLD, ending, let_go, name, queue, renew, request, take,
};
use holdline_conformance::clock::MachineClock;
use holdline_core::LockError;
use holdline_postgres::tokio_postgres::{Client, Config, NoTls};
use holdline_postgres::{PostgresEngine, PostgresOptions};
use holdline_services::PostgresServer;
use tokio::net::TcpStream;

/// How long what must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn connect(url: &str) -> Result<PostgresEngine, LockError> {
    let mut options = PostgresOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(PATIENCE).with_connect_timeout(PATIENCE);
    }
    PostgresEngine::connect(&options, Arc::new(MachineClock)).await
}

pub(crate) async fn engine(server: &PostgresServer) -> PostgresEngine {
    connect(&server.url()).await.expect("connected")
}

/// Connects as a program of its own would.
pub(crate) async fn sign_in(address: SocketAddr, user: &str) -> Client {
    let stream = TcpStream::connect(address).await.expect("connected");
    stream.set_nodelay(true).expect("set");
    let mut config = Config::new();
    config.user(user).dbname("postgres");
    let (client, connection) = config.connect_raw(stream, NoTls).await.expect("let in");
    tokio::spawn(connection);
    client
}

/// How long what must happen may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Looks until it is so, and lets other tasks run meanwhile.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not within {LIMIT:?}: {what}");
        tokio::task::yield_now().await;
    }
}

/// Each yield lets the connection come a step further.
pub(crate) async fn yields(times: usize) {
    for _ in 0..times {
        tokio::task::yield_now().await;
    }
}

/// Numbers of steps, small and large.
pub(crate) fn growing() -> impl Iterator<Item = usize> {
    std::iter::successors(Some(0), |&last: &usize| Some(2 * last + 1))
}
