//! What the tests share: proofs, servers and ways to them.

use std::future::Future;
use std::time::Duration;

use holdline_fence::{FenceError, FencingToken, Proof};
use holdline_services::{MariaDbConfig, MariaDbServer, PostgresConfig, PostgresServer};

/// What must happen happens within this time, on any machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("in range")
}

pub(crate) fn proof(number: u64) -> Proof {
    Proof::exclusive(token(number))
}

/// What a fence answered, in a word.
pub(crate) fn word_of<T: std::fmt::Debug>(answer: &Result<T, FenceError>) -> String {
    match answer {
        Ok(_) => "yes".to_owned(),
        Err(FenceError::Stale(stale)) => format!("stale {} {}", stale.mine, stale.seen),
        Err(FenceError::TooFar { .. }) => "far".to_owned(),
        Err(FenceError::OtherName { .. }) => "name".to_owned(),
        Err(FenceError::Foreign { .. }) => "foreign".to_owned(),
        Err(FenceError::Busy { .. }) => "busy".to_owned(),
        Err(FenceError::Write { .. }) => "write".to_owned(),
        Err(FenceError::Failed { certainty, .. }) => format!("failed {certainty:?}"),
        Err(other) => panic!("{other}"),
    }
}

pub(crate) fn database() -> PostgresServer {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql(&format!(
        "{}; CREATE TABLE stock(id INTEGER PRIMARY KEY, apples INTEGER NOT NULL);
         INSERT INTO stock VALUES (17, 10)",
        holdline_fence::sql::TABLE
    ));
    server
}

pub(crate) fn mariadb() -> MariaDbServer {
    mariadb_with(MariaDbConfig::default())
}

pub(crate) fn mariadb_with(config: MariaDbConfig) -> MariaDbServer {
    let server = MariaDbServer::start(config);
    server.sql(&format!(
        "{}; CREATE TABLE stock(id INTEGER PRIMARY KEY, apples INTEGER NOT NULL);
         INSERT INTO stock VALUES (17, 10)",
        holdline_fence::sql::mysql::TABLE
    ));
    server
}

/// A connection to MariaDB, by TCP.
pub(crate) async fn mysql_client(url: &str) -> mysql_async::Conn {
    mysql_async::Conn::from_url(format!("{url}?prefer_socket=false")).await.expect("connected")
}

/// A connection of its own, whose task ends with it.
pub(crate) async fn client(url: &str) -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("connected");
    tokio::spawn(connection);
    client
}

/// Fails the test when what must happen does not.
pub(crate) async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LONG, work).await {
        Ok(done) => done,
        Err(_) => panic!("not within {LONG:?}: {what}"),
    }
}

/// Looks again and again until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + LONG;
    while !so() {
        assert!(tokio::time::Instant::now() < end, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await; // event: looked for until it is seen
    }
}
