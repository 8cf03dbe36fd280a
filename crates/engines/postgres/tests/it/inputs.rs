//! Wrong input and wrong setup: each error says what to do, and nothing is written.

use std::sync::Arc;

use holdline_conformance::clock::MachineClock;
use holdline_core::{Certainty, Engine, ErrorKind, ListRequest, LockError, ReleaseReply};
use holdline_postgres::{PostgresEngine, PostgresOptions, checkup};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{connect, ending, let_go, request, take};

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
async fn sslmode_means_what_it_means_in_libpq() {
    let server = PostgresServer::start(PostgresConfig::default().with_client_certificates());
    let files = server.certificates();
    let (ca, other) = (files.ca(), files.other_ca());
    let (cert, key) = files.client();
    let port = server.address().port();
    let url = |host: &str, parameters: &str| {
        let own = format!("&sslcert={}&sslkey={}", cert.display(), key.display());
        format!("postgres://postgres@{host}:{port}/postgres?{parameters}{own}")
    };
    let with =
        |mode: &str, ca: &std::path::Path| format!("sslmode={mode}&sslrootcert={}", ca.display());
    // The server listens at the second address too, which its certificate does not name.
    for (host, parameters) in [
        ("localhost", "sslmode=require".to_owned()),
        ("127.0.0.2", "sslmode=require".to_owned()),
        ("127.0.0.2", with("require", &ca)),
        ("127.0.0.2", with("verify-ca", &ca)),
        ("localhost", with("verify-full", &ca)),
        ("localhost", format!("{}&hostaddr=127.0.0.2", with("verify-full", &ca))),
    ] {
        connect(&url(host, &parameters))
            .await
            .unwrap_or_else(|error| panic!("{parameters}: {error}"));
        let options = PostgresOptions::from_url(&url(host, &parameters)).expect("good");
        let found = checkup(&options, Arc::new(MachineClock)).await.expect("good options");
        let warns = found.findings().iter().any(|finding| finding.check() == "certificate");
        assert_eq!(warns, parameters == "sslmode=require", "{parameters}");
    }
    for (host, parameters, says) in [
        ("localhost", with("require", &other), "not from the authority in `ca`"),
        ("localhost", with("verify-ca", &other), "not from the authority in `ca`"),
        ("127.0.0.2", with("verify-full", &ca), "is not for '127.0.0.2'"),
        ("localhost", "sslmode=verify-full&sslrootcert=system".to_owned(), "who signed"),
        ("localhost", "sslmode=verify-ca".to_owned(), "who signed"),
    ] {
        let error = refused(&url(host, &parameters)).await;
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{parameters}: {error}");
        assert!(error.to_string().contains(says), "{parameters}: {error}");
    }
}

#[tokio::test]
async fn of_several_hosts_the_first_that_takes_writes_is_used() {
    let primary = PostgresServer::start(PostgresConfig::default());
    let standby = PostgresServer::start(PostgresConfig::default());
    std::fs::write(standby.directory().join("data/standby.signal"), "").expect("written");
    standby.restart();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = gone.local_addr().expect("an address");
    drop(gone);
    let url = |hosts: &[std::net::SocketAddr]| {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        format!("postgres://postgres@{}/postgres?target_session_attrs=read-write", hosts.join(","))
    };
    let (writes, follows) = (primary.address(), standby.address());
    for hosts in [[nobody, follows, writes], [writes, nobody, follows], [follows, writes, nobody]] {
        let engine = connect(&url(&hosts)).await.expect("connected");
        let held = request("a");
        take(&engine, &held).await;
        let_go(&engine, &held).await;
    }
    let error = refused(&url(&[nobody, follows])).await;
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    let text = error.to_string();
    let says = ["none of the hosts takes writes", "nobody listens there", "a standby"];
    assert!(says.iter().all(|says| text.contains(says)), "{text}");
    let error = refused(&url(&[follows, follows])).await;
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    // One that never answers has its share of the time, and no more.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    connect(&format!("{}&connect_timeout_ms=9000", url(&[silent, writes])))
        .await
        .expect("connected");
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

/// The server checks the hash of its certificate in the client's proof. `require` refuses a sign-in
/// without such a proof.
#[tokio::test]
async fn channel_binding_is_required_as_in_libpq() {
    let server = PostgresServer::start(PostgresConfig::default().with_passwords().with_tls());
    server.sql("create role ann login password 'hers'; create schema holdline authorization ann");
    let url = |server: &PostgresServer, mode: &str| {
        let port = server.address().port();
        format!("postgres://ann:hers@localhost:{port}/postgres?sslmode=require{mode}")
    };
    for mode in ["", "&channel_binding=disable", "&channel_binding=require"] {
        let engine = connect(&url(&server, mode)).await;
        assert!(engine.is_ok(), "{mode}: {:?}", engine.err());
    }
    // Without SCRAM there is nothing to bind to.
    let trusting = PostgresServer::start(PostgresConfig::default().with_tls());
    trusting.sql("create role ann login; create schema holdline authorization ann");
    connect(&url(&trusting, "")).await.expect("let in");
    let error = refused(&url(&trusting, "&channel_binding=require")).await;
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("`channel_binding=require` is not met"), "{error}");
}

/// The first connection to such a server is refused: the URL names the wrong one.
#[tokio::test]
async fn a_server_that_takes_no_writes_any_more_is_waited_for() {
    let server = PostgresServer::start(PostgresConfig::default());
    let url = format!("{}?command_timeout_ms=500", server.url());
    let engine = connect(&url).await.expect("connected");
    take(&engine, &request("made")).await;
    let set = |statement: &str| {
        server.sql(statement);
        server.sql("select pg_reload_conf()");
    };
    set("alter system set default_transaction_read_only = on");
    let error = first_error(&engine).await;
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("a switchover is under way"), "{error}");
    let other = connect(&server.url()).await.expect("connected");
    let error = other.try_acquire(&request("b")).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    set("alter system reset default_transaction_read_only");
    take_again(&engine).await;
    // A former primary comes back as a standby, under the same address.
    let signal = server.directory().join("data/standby.signal");
    std::fs::write(&signal, "").expect("written");
    server.restart();
    let error = loop {
        let error = first_error(&engine).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        if error.to_string().contains("a switchover is under way") {
            break error;
        }
    };
    assert!(error.to_string().contains("a standby"), "{error}");
    std::fs::remove_file(&signal).expect("removed");
    server.restart();
    take_again(&engine).await;
}

/// As during a restore, or when a database is renamed.
#[tokio::test]
async fn a_database_that_is_closed_for_a_while_is_waited_for() {
    let server = PostgresServer::start(PostgresConfig::default());
    server.sql("create database shop");
    let url = format!("{}?command_timeout_ms=500", server.url_of("postgres", "shop"));
    let engine = connect(&url).await.expect("connected");
    take(&engine, &request("made")).await;
    server.sql("alter database shop allow_connections false");
    server.sql("select pg_terminate_backend(pid) from pg_stat_activity where datname = 'shop'");
    let error = loop {
        let error = first_error(&engine).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        if error.to_string().contains("not currently accepting connections") {
            break error;
        }
    };
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    server.sql("alter database shop allow_connections true");
    take_again(&engine).await;
}

async fn first_error(engine: &PostgresEngine) -> LockError {
    loop {
        let held = request("a");
        match engine.try_acquire(&held).await {
            Ok(_) => let_go(engine, &held).await,
            Err(error) => return error,
        }
    }
}

/// Takes a name as soon as the server lets it.
async fn take_again(engine: &PostgresEngine) {
    let again = request("again");
    loop {
        match engine.try_acquire(&again).await {
            Ok(_) => return let_go(engine, &again).await,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}
