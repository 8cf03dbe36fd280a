//! A notification queue that is nearly full: one session that listens and stays in a transaction
//! keeps the server from emptying it. A full queue is 8 GB, so the test lowers the limit in the
//! schema, and fills 2 MB.

use futures_util::StreamExt;
use holdline_core::{AcquireRequest, Engine, Hint, Purpose, RenewReply};
use holdline_postgres::tokio_postgres::Client;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{engine, eventually, let_go, queue, renew, request, sign_in, take};

/// Lowers the limit, and fills the queue beyond it. The queue stays so until the session ends.
async fn fill(server: &PostgresServer) -> Client {
    server.sql(
        "create or replace function holdline.notify_limit_1() returns double precision \
         language sql immutable as $$ select 0.0001::double precision $$",
    );
    let idle = sign_in(server.address(), "postgres").await;
    idle.batch_execute("listen others").await.expect("listens");
    idle.batch_execute("begin; select 1").await.expect("begun");
    server.sql("select pg_notify('others', n || repeat('x', 7000)) from generate_series(1, 300) n");
    assert_eq!(server.sql("select pg_notification_queue_usage() > 0.0001"), ["t"]);
    idle
}

#[tokio::test]
async fn a_nearly_full_notification_queue_costs_the_message_and_no_hand_off() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    take(&engine, &held).await;
    queue(&engine, &waits).await;
    let mut hints = engine.watch(&waits.name, waits.lease_id);
    let inbox = server.sql("select lpad(to_hex(inbox), 16, '0') from holdline.waiters").concat();
    let idle = fill(&server).await;
    let_go(&engine, &held).await;
    // Messages come in the order of their commits: had the hand-off sent one, it would be first.
    let short = waits.lease_id.short();
    server.sql(&format!("select pg_notify('holdline_{inbox}', 'c{short}')"));
    drop(idle);
    let first = hints.next().await;
    assert!(!matches!(first, Some(Hint::Granted { .. })), "the hand-off sent a message");
    // The heartbeat finds it.
    let reply = renew(&engine, &waits, Purpose::Wait).await.expect("a reply");
    assert!(matches!(reply, RenewReply::Held { .. }), "{reply:?}");
    take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await;
    // The session that kept the queue full is gone: messages are sent again.
    let emptied = "select pg_notification_queue_usage() < 0.0001";
    eventually("the queue is empty", || server.sql(emptied) == ["t"]).await;
    let next = request("a");
    queue(&engine, &next).await;
    let mut hints = engine.watch(&next.name, next.lease_id);
    let_go(&engine, &waits).await;
    assert!(matches!(hints.next().await, Some(Hint::Granted { .. })));
}
