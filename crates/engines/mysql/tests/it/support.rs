//! Shared by the tests: engines of one server, and contenders.

use std::sync::Arc;
use std::time::Duration;

pub(crate) use holdline_conformance::asking::{
    HOLD, ending, let_go, name, queue, renew, request, take,
};
use holdline_conformance::clock::MachineClock;
use holdline_core::LockError;
use holdline_mysql::mysql_async::{Conn, OptsBuilder};
use holdline_mysql::{MysqlEngine, MysqlOptions};
use holdline_services::MariaDbServer;

/// How long what must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn connect(url: &str) -> Result<MysqlEngine, LockError> {
    let mut options = MysqlOptions::from_url(url)?;
    if !url.contains("timeout_ms") {
        // Limits that a machine that is busy does not meet.
        options = options.with_command_timeout(PATIENCE).with_connect_timeout(PATIENCE);
    }
    MysqlEngine::connect(&options, Arc::new(MachineClock)).await
}

pub(crate) async fn engine(server: &MariaDbServer) -> MysqlEngine {
    connect(&server.url()).await.expect("connected")
}

/// The server's URL, with another address in it.
pub(crate) fn url_at(address: std::net::SocketAddr) -> String {
    format!("mysql://holdline:{}@{address}/locks", MariaDbServer::PASSWORD)
}

/// Looks until it is so, and lets other tasks run meanwhile.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::task::yield_now().await;
    }
}

/// A connection of the user's own.
pub(crate) async fn sign_in(address: std::net::SocketAddr) -> Conn {
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .user(Some("holdline"))
        .pass(Some(MariaDbServer::PASSWORD))
        .db_name(Some("locks"))
        .prefer_socket(false);
    Conn::new(options).await.expect("let in")
}
