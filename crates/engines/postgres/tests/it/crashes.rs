//! What a crash of the server may undo, and what not. The server is killed with all its processes
//! while its WAL writer sleeps, so commits that were not flushed are lost.

use std::time::Duration;

use holdline_core::{AcquireRequest, Engine, FencingToken, Hold, Purpose, RenewReply};
use holdline_postgres::PostgresEngine;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, engine, let_go, queue, renew, request, take};

const LONG: Hold = Hold::Leased(Duration::from_secs(600));
const DETACHED: Hold = Hold::Detached(Duration::from_secs(20));

/// A server that flushes what must be flushed, and nothing else for seconds.
fn server() -> PostgresServer {
    let lazy = PostgresConfig::default().with_fsync().with_line("wal_writer_delay = 10000");
    PostgresServer::start(lazy)
}

/// Kills the server with all its processes, starts it, and waits until the engine is back.
async fn crash(server: &PostgresServer, engine: &PostgresEngine) {
    server.kill();
    server.restart();
    while engine.inspect(&request("other").name).await.is_err() {}
}

/// The holders in the row of the name `a`, as they stand there: nothing is settled by this.
fn holders(server: &PostgresServer) -> Vec<String> {
    server.sql(
        "select encode(substr((holder).lease_id, 1, 4), 'hex') || ' ' || (holder).token \
         from holdline.names where name = 'a' and (holder).token is not null",
    )
}

fn holder(asked: &AcquireRequest, token: FencingToken) -> Vec<String> {
    vec![format!("{} {token}", asked.lease_id.short())]
}

/// The setting is the session's own: a reload of the server's files does not reach it.
#[tokio::test]
async fn a_reload_that_lets_commits_not_wait_for_the_disk_takes_no_grant_back() {
    let server = server();
    let engine = engine(&server).await;
    let made = request("other");
    take(&engine, &made).await;
    let_go(&engine, &made).await;
    server.sql("alter system set synchronous_commit = off");
    server.sql("select pg_reload_conf()");
    // All sessions have their signal when a new one sees it.
    while server.sql("show synchronous_commit") != ["off"] {}
    let first = request("a");
    let token = take(&engine, &first).await;
    crash(&server, &engine).await;
    assert_eq!(holders(&server), holder(&first, token), "a grant is flushed");
    let mut second = request("a");
    queue(&engine, &second).await;
    let_go(&engine, &first).await;
    second.known = true;
    let handed = take(&engine, &second).await;
    crash(&server, &engine).await;
    assert_eq!(holders(&server), holder(&second, handed), "a hand-off is flushed");
    let third = take(&engine, &request("other")).await;
    assert!(token < handed && handed < third, "{token}, {handed}, {third}");
}

/// Its message is the grant, so its token must not be given to anybody else. And undone it would
/// keep the name from everybody until the end of a lease that was released.
#[tokio::test]
async fn a_hand_off_is_flushed_before_the_reply() {
    let server = server();
    let engine = engine(&server).await;
    for hold in [HOLD, LONG, DETACHED] {
        let first = AcquireRequest { hold: hold.first(), ..request("a") };
        let second = request("a");
        let token = take(&engine, &first).await;
        renew(&engine, &first, Purpose::Keep(hold)).await.expect("renewed");
        queue(&engine, &second).await;
        let_go(&engine, &first).await;
        crash(&server, &engine).await;
        let next = FencingToken::new(token.get() + 1).expect("a token");
        assert_eq!(holders(&server), holder(&second, next), "{hold:?}");
        server.sql("delete from holdline.names where name = 'a'");
    }
}

/// Heartbeats do not wait for the disk, but one that finds an expired lease hands the name over.
#[tokio::test]
async fn a_hand_off_by_a_heartbeat_is_flushed_before_the_reply() {
    let server = server();
    let engine = engine(&server).await;
    let (first, second) = (request("a"), request("a"));
    let token = take(&engine, &first).await;
    queue(&engine, &second).await;
    server.sql("update holdline.names set holder.deadline = 1 where name = 'a'");
    let reply = renew(&engine, &second, Purpose::Wait).await.expect("a reply");
    assert!(matches!(reply, RenewReply::Held { .. }), "{reply:?}");
    crash(&server, &engine).await;
    let next = FencingToken::new(token.get() + 1).expect("a token");
    assert_eq!(holders(&server), holder(&second, next));
}
