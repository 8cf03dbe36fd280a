//! What a command does that waited for the row of its name: it counts from when it has it.

use holdline_core::{AcquireRequest, Engine, Purpose, RenewReply};
use holdline_postgres::PostgresEngine;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{engine, eventually, let_go, queue, renew, request, sign_in, take};

/// How many wait for a row that somebody else has.
const WAITING: &str = "select count(*) from pg_locks where not granted";
/// The server's time, as `now_1` tells it.
const NOW: &str = "select holdline.now_1()";

/// Has a command come to the row of the name `a` while somebody else has it, and returns what it
/// told, and the moment from which it could have the row.
async fn after_a_wait<T>(server: &PostgresServer, command: impl Future<Output = T>) -> (T, i64) {
    let mut session = sign_in(server.address(), "postgres").await;
    let work = session.transaction().await.expect("begun");
    let taken = work.execute("select from holdline.heads where name = 'a' for update", &[]).await;
    assert_eq!(taken.expect("taken"), 1);
    let free_from = async {
        eventually("it waits", || server.sql(WAITING) != ["0"]).await;
        let free: i64 = work.query_one(NOW, &[]).await.expect("told").get(0);
        work.commit().await.expect("committed");
        free
    };
    tokio::join!(command, free_from)
}

/// A name whose holder's lease is over while somebody waits.
async fn over(server: &PostgresServer, engine: &PostgresEngine) -> AcquireRequest {
    let (dead, waits) = (request("a"), request("a"));
    take(engine, &dead).await;
    queue(engine, &waits).await;
    server.sql("update holdline.heads set holders[1].deadline = 1, used = 1");
    waits
}

fn handed_at(server: &PostgresServer) -> i64 {
    let handed = server.sql("select (holders[1]).since from holdline.heads");
    handed[0].parse().expect("a moment")
}

#[tokio::test]
async fn a_renewal_that_waited_for_a_row_hands_over_the_whole_claim_window() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let waits = over(&server, &engine).await;
    let (told, free) = after_a_wait(&server, renew(&engine, &waits, Purpose::Wait)).await;
    assert!(matches!(told, Ok(RenewReply::Handed { .. })), "{told:?}");
    let handed = handed_at(&server);
    assert!(handed >= free, "handed over {} µs before it could be", free - handed);
    take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(&engine, &waits).await;
}

#[tokio::test]
async fn a_look_that_waited_for_a_row_hands_over_the_whole_claim_window() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let waits = over(&server, &engine).await;
    let (shown, free) = after_a_wait(&server, engine.inspect(&waits.name)).await;
    assert!(shown.expect("shown").is_held());
    let handed = handed_at(&server);
    assert!(handed >= free, "handed over {} µs before it could be", free - handed);
    take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    let_go(&engine, &waits).await;
}
