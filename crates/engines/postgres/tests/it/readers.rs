//! Renewals of readers, which do not lock the row of their name: beside commands that do.

use std::time::Instant;

use holdline_core::{
    AcquireReply, AcquireRequest, Engine, FencingToken, Mode, Operation, OperationReply, Purpose,
    RenewReply,
};
use holdline_postgres::PostgresEngine;
use holdline_postgres::tokio_postgres::{Client, Transaction};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, PATIENCE, engine, let_go, renew, request, sign_in, take};

/// An hour, which no lease here lasts by itself.
const LONG_MICROS: i64 = 3_600_000_000;

fn reader() -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..request("a") }
}

/// Renews by hand, for an hour, in a transaction that stays open.
async fn renew_in(work: &Transaction<'_>, held: &AcquireRequest) -> String {
    let text = "select outcome from holdline.renew_1(array['a'::bytea], array[$1::bytea], \
        array[1::bigint], 0, array['l'], array[$2::bigint])";
    let id = &held.lease_id.as_bytes()[..];
    work.query_one(text, &[&id, &LONG_MICROS]).await.expect("a reply").get(0)
}

async fn until_one_waits(session: &Client) {
    let waiting = "select count(*) from pg_locks where not granted";
    let deadline = Instant::now() + PATIENCE;
    while session.query_one(waiting, &[]).await.expect("a row").get::<_, i64>(0) == 0 {
        assert!(Instant::now() < deadline, "nobody waits for the reader's row");
    }
}

/// What is left of the reader's lease, in microseconds.
fn rest(server: &PostgresServer) -> i64 {
    let rest = server.sql("select deadline - holdline.now_1() from holdline.shared_holders");
    rest[0].parse().expect("a number")
}

#[tokio::test]
async fn readers_renew_while_another_command_has_the_row_of_the_name() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let readers = [reader(), reader()];
    for one in &readers {
        take(&engine, one).await;
    }
    let mut session = sign_in(server.address(), "postgres").await;
    let work = session.transaction().await.expect("begun");
    let lock = "select from holdline.names where name = 'a' for update";
    assert_eq!(work.execute(lock, &[]).await.expect("locked"), 1);
    for one in &readers {
        let reply = renew(&engine, one, Purpose::Keep(HOLD)).await;
        assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    }
    work.commit().await.expect("committed");
}

async fn revoke(engine: &PostgresEngine, token: FencingToken) -> OperationReply {
    let reason = "because".to_owned();
    let revoke = Operation::Revoke { name: request("a").name, token, reason, now: false };
    engine.operate(&revoke).await.expect("a reply")
}

/// The revocation has read the reader's row before the renewal is committed.
#[tokio::test]
async fn a_revocation_beside_a_renewal_takes_nothing_of_its_lease() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = reader();
    let token = take(&engine, &held).await;
    let (mut session, watch) =
        (sign_in(server.address(), "postgres").await, sign_in(server.address(), "postgres").await);
    let work = session.transaction().await.expect("begun");
    assert_eq!(renew_in(&work, &held).await, "renewed");
    let revoking = revoke(&engine, token);
    let renewing = async {
        until_one_waits(&watch).await;
        work.commit().await.expect("committed");
    };
    let (reply, ()) = tokio::join!(revoking, renewing);
    assert!(matches!(reply, OperationReply::Notified { .. }), "{reply:?}");
    assert!(rest(&server) > LONG_MICROS / 2, "the renewal was taken back");
    let reply = renew(&engine, &held, Purpose::Keep(HOLD)).await.expect("a reply");
    assert!(matches!(reply, RenewReply::Revoked { .. }), "{reply:?}");
}

/// A contender finds that the lease has ended, while a renewal that came in time is not committed.
#[tokio::test]
async fn a_lease_that_is_renewed_in_time_is_not_ended_by_a_command_that_saw_it_before() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let held = reader();
    take(&engine, &held).await;
    let (mut session, watch) =
        (sign_in(server.address(), "postgres").await, sign_in(server.address(), "postgres").await);
    // A machine that stands still may miss the end: then the lease is set anew.
    let work = loop {
        server.sql(
            "update holdline.shared_holders set deadline = holdline.now_1() + 500000; \
             update holdline.names set ends = (select deadline from holdline.shared_holders) \
             where name = 'a'",
        );
        let work = session.transaction().await.expect("begun");
        let still_good = "select from holdline.shared_holders where deadline > holdline.now_1()";
        if !work.query(still_good, &[]).await.expect("rows").is_empty()
            && renew_in(&work, &held).await == "renewed"
        {
            break work;
        }
        work.rollback().await.expect("rolled back");
    };
    // Others see the end of the old lease.
    while rest(&server) > 0 {}
    let writer = AcquireRequest { queue: false, ..request("a") };
    let asking = engine.try_acquire(&writer);
    let renewing = async {
        until_one_waits(&watch).await;
        work.commit().await.expect("committed");
    };
    let (reply, ()) = tokio::join!(asking, renewing);
    assert!(matches!(reply, Ok(AcquireReply::Busy { .. })), "{reply:?}");
    assert!(rest(&server) > LONG_MICROS / 2);
    let_go(&engine, &held).await;
    take(&engine, &writer).await;
}
