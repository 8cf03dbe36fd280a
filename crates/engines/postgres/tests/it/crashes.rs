//! What a crash of the server may undo, and what not. The server is killed with all its processes
//! while its WAL writer sleeps, so commits that were not flushed are lost.

use std::time::Duration;

use holdline_core::{AcquireRequest, Engine, FencingToken, Hold, ListRequest, Purpose};
use holdline_postgres::PostgresEngine;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{engine, let_go, queue, renew, request, take};

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
        "select encode(substr(x.lease_id, 1, 4), 'hex') || ' ' || x.token \
         from holdline.heads h, unnest(h.holders) x where h.name = 'a'",
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
    let claimed = take(&engine, &second).await;
    crash(&server, &engine).await;
    assert_eq!(holders(&server), holder(&second, claimed), "a claim is flushed");
    let third = take(&engine, &request("other")).await;
    assert!(token < claimed && claimed < third, "{token}, {claimed}, {third}");
}

/// Undone, it would keep the name from everybody until the end of a lease that was released, and
/// that may be far away.
#[tokio::test]
async fn a_hand_off_of_a_long_or_detached_lease_is_flushed_before_the_reply() {
    let server = server();
    let engine = engine(&server).await;
    for hold in [LONG, DETACHED] {
        let first = AcquireRequest { hold: hold.first(), ..request("a") };
        let second = request("a");
        let token = take(&engine, &first).await;
        renew(&engine, &first, Purpose::Keep(hold)).await.expect("renewed");
        queue(&engine, &second).await;
        let_go(&engine, &first).await;
        crash(&server, &engine).await;
        let next = FencingToken::new(token.get() + 1).expect("a token");
        assert_eq!(holders(&server), holder(&second, next), "{hold:?}");
        server.sql("delete from holdline.heads where name = 'a'");
    }
}

/// A hand-off is not flushed; a reply that shows it is.
#[tokio::test]
async fn a_hand_off_that_was_shown_is_not_taken_back() {
    let server = server();
    let engine = engine(&server).await;
    for by_list in [false, true] {
        let (first, second) = (request("a"), request("a"));
        take(&engine, &first).await;
        queue(&engine, &second).await;
        let_go(&engine, &first).await;
        let shown = if by_list {
            let all = ListRequest { limit: 10, ..ListRequest::default() };
            engine.list(&all).await.expect("listed").names.remove(0)
        } else {
            engine.inspect(&first.name).await.expect("shown")
        };
        let token = shown.holders[0].summary.token.expect("a token");
        crash(&server, &engine).await;
        assert_eq!(holders(&server), holder(&second, token), "{shown:?}");
        server.sql("delete from holdline.heads where name = 'a'");
    }
}
