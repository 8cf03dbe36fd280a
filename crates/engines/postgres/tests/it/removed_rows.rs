//! Rows that somebody removed by hand: the name stays usable.

use holdline_conformance::asking::{is_unknown, is_usable};
use holdline_core::{AcquireRequest, Mode, Purpose, RenewReply};
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, engine, let_go, queue, renew, request, take};

/// The row of a name contains its exclusive holder; its queue has rows of its own.
#[tokio::test]
async fn a_name_whose_row_was_removed_is_free_and_its_queue_begins_anew() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    server.sql("delete from holdline.names where name = 'a'");
    is_unknown(&engine, &held, Purpose::Keep(HOLD)).await;
    is_unknown(&engine, &waits, Purpose::Wait).await;
    is_usable(&engine, "a", token).await;
    assert_eq!(server.sql("select count(*) from holdline.waiters"), ["0"]);
}

/// The count of the queue is wrong until its silence has passed.
#[tokio::test]
async fn a_contender_that_was_removed_blocks_nobody() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    server.sql("delete from holdline.waiters where name = 'a'");
    is_unknown(&engine, &waits, Purpose::Wait).await;
    let_go(&engine, &held).await;
    server.sql("update holdline.names set heard_since = 1 where name = 'a'");
    is_usable(&engine, "a", token).await;
}

fn reader() -> AcquireRequest {
    AcquireRequest { mode: Mode::Shared, ..request("a") }
}

#[tokio::test]
async fn a_name_whose_row_was_removed_has_no_readers() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let readers = [reader(), reader()];
    take(&engine, &readers[0]).await;
    let token = take(&engine, &readers[1]).await;
    server.sql("delete from holdline.names where name = 'a'");
    for one in &readers {
        is_unknown(&engine, one, Purpose::Keep(HOLD)).await;
    }
    is_usable(&engine, "a", token).await;
    assert_eq!(server.sql("select count(*) from holdline.shared_holders"), ["0"]);
}

/// They are counted again when the first of their leases ends.
#[tokio::test]
async fn readers_that_were_removed_block_nobody_and_cost_no_other_its_lease() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let readers = [reader(), reader(), reader()];
    for one in &readers {
        take(&engine, one).await;
    }
    server.sql(
        "delete from holdline.shared_holders \
         where token < (select max(token) from holdline.shared_holders)",
    );
    is_unknown(&engine, &readers[0], Purpose::Keep(HOLD)).await;
    let first_ended = "update holdline.names set ends = 1 where name = 'a'";
    server.sql(first_ended);
    let renewed = renew(&engine, &readers[2], Purpose::Keep(HOLD)).await;
    assert!(matches!(renewed, Ok(RenewReply::Renewed { .. })), "{renewed:?}");
    assert_eq!(server.sql("select shared from holdline.names where name = 'a'"), ["1"]);
    let token = take(&engine, &reader()).await;
    server.sql("delete from holdline.shared_holders");
    server.sql(first_ended);
    is_usable(&engine, "a", token).await;
}
