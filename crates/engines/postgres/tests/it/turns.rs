//! What a command does that waited for the row of its name: it counts from when it has it.

use holdline_core::{
    AcquireRequest, Certainty, Engine, ErrorKind, ListRequest, Purpose, RenewReply, RenewRequest,
};
use holdline_postgres::PostgresEngine;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, engine, eventually, let_go, queue, renew, request, sign_in, take};

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

/// What several lines of a batch find on their names, one of which somebody else has locked.
#[tokio::test]
async fn a_row_that_somebody_locks_costs_a_batch_one_line() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = ["a", "b", "c"].map(request);
    for one in &held {
        take(&engine, one).await;
    }
    let (waits, lost) = (request("a"), request("d"));
    queue(&engine, &waits).await;
    let mut lines: Vec<RenewRequest> =
        held.iter().map(|one| line(one, Purpose::Keep(HOLD))).collect();
    lines.extend([line(&waits, Purpose::Wait), line(&lost, Purpose::Keep(HOLD))]);
    for locked in ["a", "b", "c"] {
        let mut session = sign_in(server.address(), "postgres").await;
        let work = session.transaction().await.expect("begun");
        let lock = format!("select from holdline.heads where name = '{locked}' for update");
        assert_eq!(work.execute(&lock, &[]).await.expect("taken"), 1);
        let told = engine.renew(&lines).await;
        for (line, told) in std::iter::zip(&lines, told) {
            match told {
                Err(error) if line.name.as_str() == locked => {
                    assert!(matches!(error.kind(), ErrorKind::Unavailable { .. }), "{error}");
                    assert_eq!(error.certainty(), Certainty::NotApplied, "{error}");
                }
                Ok(told) if line.name.as_str() != locked => {
                    let expected = match line.lease_id {
                        id if id == waits.lease_id => matches!(told, RenewReply::Queued { .. }),
                        id if id == lost.lease_id => told == RenewReply::Unknown,
                        _ => matches!(told, RenewReply::Renewed { .. }),
                    };
                    assert!(expected, "{line:?}: {told:?}");
                }
                told => panic!("{line:?} while {locked} is locked: {told:?}"),
            }
        }
        // Nor does it cost a listing.
        let all = ListRequest { limit: 10, ..ListRequest::default() };
        assert_eq!(engine.list(&all).await.expect("listed").names.len(), 3);
        work.commit().await.expect("committed");
        for told in engine.renew(&lines).await {
            told.expect("nobody has locked anything");
        }
    }
}

/// A row that is free again soon is waited for.
#[tokio::test]
async fn the_lines_of_one_name_wait_for_its_row_and_are_one_command() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let waits = over(&server, &engine).await;
    // Another command on the name would hand it over: so this one is put there by hand.
    let second = request("a");
    let id =
        second.lease_id.as_bytes().iter().fold(String::new(), |text, b| format!("{text}{b:02x}"));
    server.sql(&format!(
        "insert into holdline.waiters select name, place + 1, '\\x{id}', client + 1, 0, mode, \
         permits, total, kind, lease, claim_window, queued_at, heard, metadata \
         from holdline.waiters; \
         update holdline.heads set queued = 2, next_place = next_place + 1 where name = 'a'"
    ));
    let lines = [line(&waits, Purpose::Wait), line(&second, Purpose::Wait)];
    let (told, free) = after_a_wait(&server, engine.renew(&lines)).await;
    assert!(matches!(told[0], Ok(RenewReply::Handed { .. })), "{told:?}");
    assert!(matches!(told[1], Ok(RenewReply::Queued { position: Some(0), .. })), "{told:?}");
    assert!(handed_at(&server) >= free);
}

fn line(asked: &AcquireRequest, purpose: Purpose) -> RenewRequest {
    let (name, lease_id, client) = (asked.name.clone(), asked.lease_id, asked.client);
    RenewRequest { name, lease_id, client, purpose }
}
