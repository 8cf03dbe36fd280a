//! Wrong input and wrong setup: each error says what to do, and nothing is written.

use holdline_core::{Certainty, Engine, ErrorKind, ListRequest, LockError, ReleaseReply};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{connect, ending, request};

const SCHEMAS: &str = "select nspname from pg_namespace where nspname !~ '^pg_' \
    and nspname not in ('public', 'information_schema')";

async fn refused(url: &str) -> LockError {
    let error = connect(url).await.expect_err("refused");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(!error.to_string().contains("CANARY"), "{error}");
    error
}

#[tokio::test]
async fn a_refusal_of_the_server_is_reported_and_nothing_is_written() {
    let server = PostgresServer::start(PostgresConfig::default().with_passwords());
    server.sql("create role ann login password 'hers'");
    let at = server.address();
    for (url, says) in [
        (format!("postgres://ann:CANARY@{at}/postgres"), "user or password is wrong"),
        (format!("postgres://ann@{at}/postgres"), "asks for a password"),
        (format!("postgres://bob:CANARY@{at}/postgres"), "user or password is wrong"),
        (format!("postgres://ann:hers@{at}/elsewhere"), "no such database"),
        (format!("postgres://ann:hers@{at}/postgres?sslmode=require"), "does not speak TLS"),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
    // A read creates nothing; a role that may not create the schema cannot lock.
    let engine = connect(&format!("postgres://ann:hers@{at}/postgres")).await.expect("let in");
    let (asked, all) = (request("a"), ListRequest { limit: 9, ..ListRequest::default() });
    assert!(!engine.inspect(&asked.name).await.expect("shown").is_held());
    assert!(engine.list(&all).await.expect("listed").names.is_empty());
    let gone = engine.release(&ending(&asked, false)).await.expect("a reply");
    assert_eq!(gone, ReleaseReply::NotHeld { revoked: None });
    let error = engine.try_acquire(&asked).await.expect_err("refused");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(error.to_string().contains("not set up, and this role may not"), "{error}");
    assert!(server.sql(SCHEMAS).is_empty());
}

#[tokio::test]
async fn a_host_without_a_server_is_reported_within_the_limit() {
    let server = PostgresServer::start(PostgresConfig::default());
    let address = server.address();
    drop(server);
    let error = refused(&format!("postgres://ann@{address}/x?connect_timeout_ms=200")).await;
    assert!(error.to_string().contains("nobody listens there"), "{error}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    for mode in ["disable", "require"] {
        let url = format!("postgres://ann@{address}/x?connect_timeout_ms=200&sslmode={mode}");
        let error = refused(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("no answer within 200ms"), "{error}");
    }
    let error = refused("postgres://ann@/x?host=/no/where&connect_timeout_ms=200").await;
    assert!(error.to_string().contains("no such socket"), "{error}");
}

#[tokio::test]
async fn certificates_are_checked_both_ways() {
    let server = PostgresServer::start(PostgresConfig::default().with_client_certificates());
    let files = server.certificates();
    let port = server.address().port();
    let url = |host: &str,
               ca: &std::path::Path,
               pair: Option<(std::path::PathBuf, std::path::PathBuf)>| {
        let own = pair.map_or_else(String::new, |(cert, key)| {
            format!("&cert={}&key={}", cert.display(), key.display())
        });
        let mode = format!("sslmode=verify-full&ca={}", ca.display());
        format!("postgres://postgres@{host}:{port}/postgres?{mode}{own}")
    };
    let (ca, other) = (files.ca(), files.other_ca());
    connect(&url("localhost", &ca, Some(files.client()))).await.expect("let in");
    for (url, says) in [
        (url("localhost", &other, Some(files.client())), "not from the authority in `ca`"),
        // The server listens there too, and its certificate does not name it.
        (url("127.0.0.2", &ca, Some(files.client())), "certificate"),
        (url("localhost", &ca, None), "certificate"),
        (url("localhost", &ca, Some(files.stranger())), "certificate"),
        (format!("postgres://postgres@localhost:{port}/postgres"), "does not let this user in"),
    ] {
        let error = refused(&url).await;
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
}

#[tokio::test]
async fn a_socket_is_a_way_in() {
    let server = PostgresServer::start(PostgresConfig::default());
    let directory = server.directory().display();
    let port = server.address().port();
    let url = format!("postgres://postgres@/postgres?host={directory}&port={port}");
    connect(&url).await.expect("connected");
}

#[tokio::test]
async fn a_standby_is_refused_and_the_primary_is_asked_for() {
    let server = PostgresServer::start(PostgresConfig::default());
    // A server that waits for more from a primary, without one.
    std::fs::write(server.directory().join("data/standby.signal"), "").expect("written");
    server.restart();
    let error = refused(&server.url()).await;
    assert!(error.to_string().contains("name the primary"), "{error}");
}
