//! Rows that somebody removed by hand: the name stays usable.

use holdline_conformance::asking::{is_unknown, is_usable};
use holdline_core::Purpose;
use holdline_services::{PostgresConfig, PostgresServer};

use crate::support::{HOLD, engine, let_go, queue, request, take};

/// The row of a name contains its holders; its queue has rows of its own.
#[tokio::test]
async fn a_name_whose_row_was_removed_is_free_and_its_queue_begins_anew() {
    let server = PostgresServer::start(PostgresConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    server.sql("delete from holdline.heads where name = 'a'");
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
    server.sql("update holdline.heads set heard_since = 1 where name = 'a'");
    is_usable(&engine, "a", token).await;
}
