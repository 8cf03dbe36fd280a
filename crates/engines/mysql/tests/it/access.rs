//! Access control: each refusal says what to do, and nothing is written.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use holdline_conformance::clock::MachineClock;
use holdline_core::operation::LARGEST_FENCE;
use holdline_core::{
    Certainty, Engine, ErrorKind, ListRequest, LockError, Operation, OperationReply, Purpose,
    ReleaseReply,
};
use holdline_mysql::{MysqlEngine, MysqlOptions};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{
    HOLD, connect, ending, engine, eventually, let_go, queue, renew, request, take, url_at,
};

async fn refused(url: &str) -> LockError {
    let error = connect(url).await.expect_err("refused");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(!error.to_string().contains("CANARY"), "{error}");
    error
}

#[tokio::test]
async fn a_refusal_of_the_server_is_reported_and_nothing_is_written() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("create user ann@'%' identified by 'hers'; grant select on locks.* to ann@'%'");
    let at = server.address();
    for (url, says) in [
        (format!("mysql://ann:CANARY@{at}/locks"), "user or password is wrong"),
        (format!("mysql://ann@{at}/locks"), "user or password is wrong"),
        (format!("mysql://bob:CANARY@{at}/locks"), "user or password is wrong"),
        (format!("mysql://ann:hers@{at}/elsewhere"), "lacks a right"),
        (format!("mysql://ann:hers@{at}/locks?sslmode=require"), "does not speak TLS"),
    ] {
        let error = refused(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{url}: {error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
    }
    // A read creates nothing; an account that may not create the tables cannot lock.
    let engine = connect(&format!("mysql://ann:hers@{at}/locks")).await.expect("let in");
    let (asked, all) = (request("a"), ListRequest { limit: 9, ..ListRequest::default() });
    assert!(!engine.inspect(&asked.name).await.expect("shown").is_held());
    assert!(engine.list(&all).await.expect("listed").names.is_empty());
    let gone = engine.release(&ending(&asked, false)).await.expect("a reply");
    assert_eq!(gone, ReleaseReply::NotHeld { revoked: None });
    let error = engine.try_acquire(&asked).await.expect_err("refused");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    assert!(error.to_string().contains("not set up, and this account may not"), "{error}");
    assert!(server.sql("show tables").is_empty());
}

#[tokio::test]
async fn a_host_without_a_server_is_reported_within_the_limit() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    for mode in ["disable", "require"] {
        let url = format!("mysql://ann@{address}/x?connect_timeout_ms=200&sslmode={mode}");
        let error = refused(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("no answer within 200ms"), "{error}");
    }
    drop(silent);
    let error = refused(&format!("mysql://ann@{address}/x?connect_timeout_ms=200")).await;
    assert!(error.to_string().contains("nobody listens there"), "{error}");
    // Nonsense, and an initial handshake with too long a nonce.
    let mut initial = [0; 4 + 47];
    (initial[0], initial[4], initial[5], initial[4 + 23]) = (47, 10, b'5', 0x80);
    for words in [b"\x05\x00\x00\x00hello".to_vec(), initial.to_vec()] {
        let babbles = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = babbles.local_addr().expect("an address");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = babbles.accept() {
                let _ = std::io::Write::write_all(&mut stream, &words);
            }
        });
        let error = refused(&format!("mysql://ann@{address}/x?connect_timeout_ms=500")).await;
        assert!(error.to_string().contains("no MariaDB server"), "{error}");
    }
}

#[tokio::test]
async fn the_rights_to_rows_and_procedures_are_enough_once_all_is_made() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let owner = engine(&server).await;
    take(&owner, &request("made")).await;
    server.sql(
        "create user locker@'%' identified by 'x'; \
         grant select, insert, update, delete, execute on locks.* to locker@'%'",
    );
    let engine = connect(&server.url_of("locker:x", "locks")).await.expect("let in");
    let (held, waits, theirs) = (request("a"), request("a"), request("b"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    renew(&engine, &held, Purpose::Keep(held.hold)).await.expect("renewed");
    engine.inspect(&held.name).await.expect("shown");
    let all = ListRequest { limit: 10, ..ListRequest::default() };
    assert_eq!(engine.list(&all).await.expect("listed").names.len(), 2);
    engine.release(&ending(&waits, true)).await.expect("given up");
    let (name, reason) = (held.name.clone(), "because".to_owned());
    let revoke = Operation::Revoke { name, token, reason, now: false };
    let reply = engine.operate(&revoke).await.expect("a reply");
    assert!(matches!(reply, OperationReply::Notified { .. }), "{reply:?}");
    engine.operate(&Operation::RaiseFence { to: token }).await.expect("raised");
    let_go(&engine, &held).await;
    take(&owner, &theirs).await;
}

/// Limits hold for those who call the procedures by hand, too. Statements on the tables have none.
#[tokio::test]
async fn no_procedure_can_end_locking_for_good() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    take(&engine, &request("made")).await;
    let over = LARGEST_FENCE + 1;
    for (call, says) in [
        ("raise_11(9007199254740991)", "may be raised to 900609974311"),
        (&*format!("raise_11({over})"), "may be raised to 900609974311"),
        ("freeze_11('b', 9000000000000000000, '')", "a freeze lasts at most"),
        ("freeze_11('b', -1, '')", "a freeze lasts at most"),
    ] {
        let reply = server.try_sql(&format!("call holdline_{call}"));
        assert!(reply.as_ref().is_err_and(|error| error.contains(says)), "{call}: {reply:?}");
    }
    server.sql(&format!("call holdline_raise_11({LARGEST_FENCE})"));
    for turn in ["b", "b", "c"] {
        let held = request(turn);
        assert!(take(&engine, &held).await.get() > LARGEST_FENCE);
        let_go(&engine, &held).await;
    }
}

#[tokio::test]
async fn an_account_without_rights_learns_which_ones_it_needs() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    take(&engine(&server).await, &request("made")).await;
    for rights in ["select, insert, update, delete", "select, execute"] {
        server.sql(&format!(
            "create or replace user poor@'%' identified by 'x'; \
             grant {rights} on locks.* to poor@'%'"
        ));
        let engine = connect(&server.url_of("poor:x", "locks")).await.expect("let in");
        let error = engine.try_acquire(&request("a")).await.expect_err("refused");
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{rights}: {error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{rights}: {error}");
        assert!(error.to_string().contains("UPDATE, DELETE and EXECUTE"), "{rights}: {error}");
    }
    assert_eq!(server.sql("select count(*) from holdline_heads"), ["1"]);
}

/// Also an account that could write there all the same: it would lock beside the primary.
#[tokio::test]
async fn a_server_that_takes_no_writes_is_refused_even_if_we_could() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let before = engine(&server).await;
    take(&before, &request("made")).await;
    server.sql("grant all on *.* to holdline@'%'; set global read_only = 1");
    let error = refused(&server.url()).await;
    assert!(error.to_string().contains("name the primary"), "{error}");
    server.sql("revoke all on *.* from holdline@'%'; grant all on locks.* to holdline@'%'");
    // It took writes before, so it is being switched over.
    let error = before.try_acquire(&request("a")).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("a switchover is under way"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    server.sql("set global read_only = 0");
    // The connection was given up, as a server that was the primary is to be left.
    let again = request("a");
    while before.try_acquire(&again).await.is_err() {}
    let_go(&before, &again).await;
}

/// Such an account is refused no command, only a connection: a failover must end the connections
/// that are there. Then callers wait for the new primary.
#[tokio::test]
async fn an_account_that_may_write_on_a_read_only_server_locks_until_its_connection_ends() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("grant all on *.* to holdline@'%'");
    let url = format!("{}?command_timeout_ms=500", server.url());
    let before = connect(&url).await.expect("connected");
    take(&before, &request("made")).await;
    server.sql("set global read_only = 1");
    take(&before, &request("a")).await;
    server.sql("kill user holdline");
    // A command during the end of its connection fails; a later one finds no connection.
    let error = loop {
        match before.try_acquire(&request("b")).await {
            Err(error) if error.to_string().contains("read_only") => break error,
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}"),
            Ok(reply) => panic!("{reply:?}"),
        }
    };
    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("a switchover is under way"), "{error}");
    server.sql("set global read_only = 0");
    let again = request("b");
    while before.try_acquire(&again).await.is_err() {}
    let_go(&before, &again).await;
}

/// Sends an initial handshake as the server does, and then requests a plugin. Returns the client's
/// next packet.
fn with_another_plugin(
    server: SocketAddr,
    challenge: Vec<u8>,
) -> (SocketAddr, JoinHandle<io::Result<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = std::thread::spawn(move || {
        let (mut client, _) = listener.accept()?;
        client.write_all(&packet(&mut TcpStream::connect(server)?)?)?;
        packet(&mut client)?;
        let size = u8::try_from(challenge.len() + 1).map_err(io::Error::other)?;
        client.write_all(&[size, 0, 0, 2, 0xfe])?;
        client.write_all(&challenge)?;
        packet(&mut client)
    });
    (address, serving)
}

/// The signature of the test's password for that challenge.
const SIGNATURE: &str = "6e9df54ac4dd3e9c9975686297356fb7bfac215502c41ee4542ec43a14cf0687\
    a0aa8f807b99d313a162ddd0b20407d7a87ceea7250187b01d341d9927b0f404";

/// One packet, with its header.
fn packet(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut whole = vec![0; 4];
    stream.read_exact(&mut whole)?;
    let size = usize::from(whole[0]) | usize::from(whole[1]) << 8;
    whole.resize(4 + size, 0);
    stream.read_exact(&mut whole[4..])?;
    Ok(whole)
}

#[tokio::test]
async fn an_older_server_another_plugin_and_a_missing_database_are_refused_by_name() {
    let old = MariaDbConfig::default().with_line("version=10.5.23-MariaDB");
    let error = refused(&MariaDbServer::start(old).url()).await;
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("we need 10.6 or newer"), "{error}");
    let server = MariaDbServer::start(MariaDbConfig::default());
    server.sql("grant all on *.* to holdline@'%'");
    let error = refused(&server.url().replace("/locks", "/elsewhere")).await;
    assert!(error.to_string().contains("no such database: make it first"), "{error}");
    let challenge = b"dialog\0\x04Password: \0".to_vec();
    let (address, _serving) = with_another_plugin(server.address(), challenge);
    let error = refused(&url_at(address)).await;
    assert!(error.to_string().contains("`dialog`, which we do not speak"), "{error}");
}

/// The server's plugin is in a package of its own, so the answer is compared with the one of code
/// that the plugin has accepted. A challenge may end with a zero, as this one does.
#[tokio::test]
async fn an_account_of_ed25519_signs_the_whole_challenge() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let mut challenge = b"client_ed25519\0".to_vec();
    challenge.extend_from_slice(&[7; 31]);
    challenge.push(0);
    let (address, serving) = with_another_plugin(server.address(), challenge);
    let url = format!("{}?connect_timeout_ms=60000", url_at(address));
    let options = MysqlOptions::from_url(&url).expect("a good URL");
    MysqlEngine::connect(&options, Arc::new(MachineClock)).await.expect_err("no server");
    let answer = serving.join().expect("no panic").expect("an answer");
    let answer: String = answer[4..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(answer, SIGNATURE);
}

/// What the server says about the account is an error of rights, and says what to do.
#[tokio::test]
async fn accounts_that_are_locked_or_expired_are_refused_with_the_fix() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let before = engine(&server).await;
    take(&before, &request("made")).await;
    for (statement, says) in [
        ("create or replace user odd@'%' identified by 'x' account lock", "ACCOUNT UNLOCK"),
        ("create or replace user odd@'%' identified by 'x' password expire", "set a new one"),
        (
            "set global disconnect_on_expired_password = 1; \
             create or replace user odd@'%' identified by 'x' password expire",
            "set a new one",
        ),
        ("create or replace user odd@'%' identified by 'other'", "password is wrong"),
        ("create or replace user odd@'127.9.9.9' identified by 'x'", "password is wrong"),
        ("create or replace user odd@'%' identified by 'x' require x509", "password is wrong"),
    ] {
        server.sql("drop user if exists odd@'%'");
        server.sql(statement);
        if statement.contains("'%'") {
            server.sql("grant all on locks.* to odd@'%'");
        }
        let error = refused(&server.url_of("odd:x", "locks")).await;
        assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{statement}: {error}");
        assert!(error.to_string().contains(says), "{statement}: {error}");
        assert_eq!(error.certainty(), Certainty::NotApplied, "{statement}: {error}");
    }
}

/// A new version has procedures of its own, which an account may lack the right to make.
#[tokio::test]
async fn an_account_that_may_not_create_procedures_is_refused_until_they_exist() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    take(&engine(&server).await, &request("made")).await;
    server.sql(
        "create user poor@'%' identified by 'x'; \
         grant select, insert, update, delete, execute on locks.* to poor@'%'; \
         drop procedure holdline_acquire_11",
    );
    let poor = connect(&server.url_of("poor:x", "locks")).await.expect("let in");
    let error = poor.try_acquire(&request("a")).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(error.to_string().contains("this account may not"), "{error}");
    take(&engine(&server).await, &request("b")).await;
    let poor = connect(&server.url_of("poor:x", "locks")).await.expect("let in");
    take(&poor, &request("a")).await;
}

/// Each command reads what is committed, whatever the session or the server has for a default.
#[tokio::test]
async fn a_server_that_logs_statements_is_refused_with_the_setting() {
    let batch = MariaDbConfig::default().with_line("log-bin").with_line("binlog-format=STATEMENT");
    let server = MariaDbServer::start(batch);
    let engine = engine(&server).await;
    let error = engine.try_acquire(&request("a")).await.expect_err("refused");
    assert!(error.to_string().contains("binlog_format"), "{error}");
    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
    server.sql("set global binlog_format = 'ROW'");
    let engine = self::engine(&server).await;
    let held = request("a");
    take(&engine, &held).await;
    assert!(renew(&engine, &held, Purpose::Keep(HOLD)).await.is_ok());
}

#[tokio::test]
async fn settings_of_the_server_that_would_break_a_command_are_overruled() {
    let mut config = MariaDbConfig::default();
    for item in [
        "transaction-isolation=SERIALIZABLE",
        "autocommit=0",
        "completion-type=CHAIN",
        "sql-mode=ANSI,ORACLE",
        "default-time-zone=+05:30",
        "character-set-server=latin1",
        "init-connect=set tx_read_only = 1, max_statement_time = 0.5, sql_select_limit = 0, \
         check_constraint_checks = 0, timestamp = 1000000000",
    ] {
        config = config.with_line(item);
    }
    let server = MariaDbServer::start(config);
    let (one, other) = (engine(&server).await, engine(&server).await);
    for _ in 0..20 {
        let (first, second) = (request("ä"), request("ä"));
        take(&one, &first).await;
        queue(&other, &second).await;
        let_go(&one, &first).await;
        take(&other, &second).await;
        let_go(&other, &second).await;
    }
    let held = request("ä");
    take(&one, &held).await;
    assert_eq!(
        one.list(&ListRequest { limit: 9, ..ListRequest::default() })
            .await
            .expect("listed")
            .names
            .len(),
        1
    );
    // A sleep of the inbox is not ended by a limit of statements.
    let sleeps = "select count(*) from information_schema.processlist where state = 'User sleep' \
        and time_ms > 1500";
    eventually("it sleeps on", || server.sql(sleeps) != ["0"]).await;
    server.sql("update holdline_about set floor = 9007199254740991; commit");
    let error = one.try_acquire(&request("new")).await.expect_err("no token is left");
    assert!(error.to_string().contains("no fencing token is left"), "{error}");
}

#[tokio::test]
async fn certificates_are_checked_both_ways() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_client_certificates());
    let certificates = server.certificates();
    let ca = certificates.ca();
    let ((cert, key), (strange, strange_key)) = (certificates.client(), certificates.stranger());
    let url = |parameters: String| format!("{}?sslmode=verify-full&{parameters}", server.url());
    let ours = |ca: &std::path::Path| {
        format!("ca={}&cert={}&key={}", ca.display(), cert.display(), key.display())
    };
    let good = connect(&url(ours(&ca))).await.expect("let in");
    take(&good, &request("a")).await;
    for (parameters, says) in [
        (ours(&certificates.other_ca()), "not from the authority"),
        (format!("ca={}", ca.display()), "user or password is wrong"),
        (
            format!("ca={}&cert={}&key={}", ca.display(), strange.display(), strange_key.display()),
            "certificate",
        ),
    ] {
        let error = refused(&url(parameters.clone())).await;
        assert!(error.to_string().contains(says), "{parameters}: {error}");
    }
    // The server listens there too, and its certificate does not name it.
    let error = refused(&url(ours(&ca)).replace("127.0.0.1", "127.0.0.2")).await;
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = refused(&url_at(server.address())).await;
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_unix_socket_is_a_way_in() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let secret = MariaDbServer::PASSWORD;
    let path = server.socket();
    let url = format!("mysql://holdline:{secret}@/locks?socket={}", path.display());
    let engine = connect(&url).await.expect("connected");
    take(&engine, &request("a")).await;
    let error = refused("mysql://ann@/x?socket=/nowhere/s&connect_timeout_ms=200").await;
    assert!(error.to_string().contains("no such socket"), "{error}");
}
