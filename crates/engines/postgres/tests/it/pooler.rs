//! Behind a pooler that gives each transaction to another connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use holdline_conformance::clock::MachineClock;
use holdline_core::{AcquireReply, AcquireRequest, Engine, ErrorKind, Health, Purpose, RenewReply};
use holdline_postgres::{PostgresOptions, checkup};
use holdline_services::{PgBouncer, PostgresConfig, PostgresServer};

use crate::support::{connect, let_go, queue, renew, request, take};

#[tokio::test]
async fn a_pooler_is_reported_by_doctor() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start(&server, 2);
    for (url, health) in [(pooler.url(), Health::Warning), (server.url(), Health::Ok)] {
        let options = PostgresOptions::from_url(&url).expect("a good URL");
        let found = checkup(&options, Arc::new(MachineClock)).await.expect("good options");
        let finding = found.findings().iter().find(|finding| finding.check() == "pooler");
        assert_eq!(finding.expect("looked at").health(), health, "{found:?}");
    }
}

#[tokio::test]
async fn a_waiter_behind_a_pooler_finds_the_hand_off_by_its_heartbeat() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start(&server, 2);
    let one = connect(&pooler.url()).await.expect("connected");
    let other = connect(&pooler.url()).await.expect("connected");
    let (held, waits) = (request("a"), request("a"));
    take(&one, &held).await;
    queue(&other, &waits).await;
    assert_eq!(server.sql("select inbox from holdline.waiters"), ["0"]);
    let_go(&one, &held).await;
    let reply = renew(&other, &waits, Purpose::Wait).await.expect("asked");
    assert!(matches!(reply, RenewReply::Held { .. }), "{reply:?}");
    take(&other, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(&other, &waits).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_behind_a_pooler_hold_one_at_a_time() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start(&server, 3);
    let (inside, last) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let contenders = (0..8).map(|_| {
        let (url, inside, last) = (pooler.url(), inside.clone(), last.clone());
        tokio::spawn(async move {
            let engine = connect(&url).await.expect("connected");
            let mut held = 0;
            while held < 20 {
                let asked = AcquireRequest { queue: false, ..request("a") };
                match engine.try_acquire(&asked).await.expect("asked") {
                    AcquireReply::Granted { token, .. } => {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        assert!(last.swap(token.get(), Ordering::SeqCst) < token.get());
                        inside.fetch_sub(1, Ordering::SeqCst);
                        let_go(&engine, &asked).await;
                        held += 1;
                    }
                    AcquireReply::Busy { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        })
    });
    for one in contenders.collect::<Vec<_>>() {
        one.await.expect("no panic");
    }
}

#[tokio::test]
async fn sessions_that_others_use_are_left_as_they_are() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start(&server, 1);
    let engine = connect(&pooler.url()).await.expect("connected");
    let held = request("a");
    take(&engine, &held).await;
    let_go(&engine, &held).await;
    // The same connection of the server, as the next user of the pooler finds it.
    let ask = "select current_setting('statement_timeout') || current_setting('lock_timeout') \
        || (select count(*) from pg_prepared_statements) || (select count(*) from \
        pg_listening_channels())";
    let mut psql = std::process::Command::new("psql");
    let done = psql.args(["-X", "-A", "-t", "-c", ask, "-d", &pooler.url()]).output();
    let reply = done.expect("psql comes with postgresql");
    assert_eq!(String::from_utf8_lossy(&reply.stdout).trim(), "0000", "{reply:?}");
}

#[tokio::test]
async fn a_pooler_of_statements_is_an_error_of_configuration() {
    let server = PostgresServer::start(PostgresConfig::default());
    let pooler = PgBouncer::start_for_statements(&server);
    let engine = connect(&pooler.url()).await.expect("it connects later");
    let error = engine.try_acquire(&request("a")).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Invalid { field: "url", .. }), "{error:?}");
    assert!(error.to_string().contains("pool_mode"), "{error}");
}

/// Supavisor and others report their own limits by the code of an internal error. The other codes
/// are of a server: CockroachDB's clock, a closed database, no transaction ids left, a damage.
#[tokio::test]
async fn what_passes_is_an_outage_and_what_lasts_is_refused() {
    for (code, passes) in
        [("XX000", true), ("XXUUU", true), ("55000", true), ("54000", false), ("XX001", false)]
    {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("postgres://app@{address}/app");
        let (reply, _open) = tokio::join!(connect(&url), refuse_with(&listener, code));
        let error = reply.expect_err("refused");
        match error.kind() {
            ErrorKind::Unavailable { .. } => assert!(passes, "{error}"),
            ErrorKind::Refused { .. } => assert!(!passes, "{error}"),
            _ => panic!("{error}"),
        }
        assert!(error.to_string().contains("no more today"), "{error}");
    }
}

/// Takes one client, and refuses it.
async fn refuse_with(listener: &tokio::net::TcpListener, code: &str) -> tokio::net::TcpStream {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (mut stream, _) = listener.accept().await.expect("a client");
    let mut begin = [0; 8];
    stream.read_exact(&mut begin).await.expect("it begins");
    let fields = format!("SFATAL\0VFATAL\0C{code}\0Mno more today\0\0");
    let length = u32::try_from(fields.len() + 4).expect("short").to_be_bytes();
    let message = [b"E".as_slice(), &length, fields.as_bytes()].concat();
    stream.write_all(&message).await.expect("written");
    stream
}
