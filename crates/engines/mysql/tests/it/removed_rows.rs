//! Rows that somebody removed by hand: the name stays usable, and exclusive.

use holdline_conformance::asking::{is_unknown, is_usable};
use holdline_core::{AcquireReply, AcquireRequest, Engine, Mode, Purpose, RenewReply};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{HOLD, engine, let_go, queue, renew, request, take};

#[tokio::test]
async fn a_name_whose_holder_was_removed_is_free() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    for renews_first in [true, false] {
        let held = request("a");
        let token = take(&engine, &held).await;
        server.sql("delete from holdline_holders where name = 'a'");
        if renews_first {
            is_unknown(&engine, &held, Purpose::Keep(HOLD)).await;
        }
        is_usable(&engine, "a", token).await;
        is_unknown(&engine, &held, Purpose::Keep(HOLD)).await;
    }
    // A look shows it as it is.
    take(&engine, &request("a")).await;
    server.sql("delete from holdline_holders where name = 'a'");
    let shown = engine.inspect(&request("a").name).await.expect("shown");
    assert!(!shown.is_held(), "{shown:?}");
    assert_eq!(server.sql("select held from holdline_heads"), ["0"]);
}

#[tokio::test]
async fn a_queue_whose_holder_was_removed_is_served() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    server.sql("delete from holdline_holders where name = 'a'");
    let reply = renew(&engine, &waits, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    assert!(take(&engine, &AcquireRequest { known: true, ..waits.clone() }).await > token);
    let_go(&engine, &waits).await;
    is_usable(&engine, "a", token).await;
}

/// Slots are numbered: a new holder gets none that another one has.
#[tokio::test]
async fn one_of_several_holders_that_was_removed_costs_no_other_its_lease() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let reader = || AcquireRequest { mode: Mode::Shared, ..request("a") };
    let readers = [reader(), reader(), reader()];
    for one in &readers {
        take(&engine, one).await;
    }
    server.sql("delete from holdline_holders where name = 'a' and slot = 1");
    let newcomer = reader();
    let token = take(&engine, &newcomer).await;
    is_unknown(&engine, &readers[1], Purpose::Keep(HOLD)).await;
    for one in [&readers[0], &readers[2], &newcomer] {
        let reply = renew(&engine, one, Purpose::Keep(HOLD)).await;
        assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
        let writer = AcquireRequest { queue: false, ..request("a") };
        let reply = engine.try_acquire(&writer).await;
        assert!(matches!(reply, Ok(AcquireReply::Busy { .. })), "{reply:?}");
        let_go(&engine, one).await;
    }
    is_usable(&engine, "a", token).await;
}

/// The holder's row is left: nobody else gets the name before its lease has ended.
#[tokio::test]
async fn a_name_whose_first_row_was_removed_is_free_when_the_lease_has_ended() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let (held, waits, second) = (request("a"), request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    server.sql("delete from holdline_heads where name = 'a'");
    is_unknown(&engine, &held, Purpose::Keep(HOLD)).await;
    is_unknown(&engine, &waits, Purpose::Wait).await;
    // The places of the queue begin anew.
    queue(&engine, &second).await;
    let ask_again = AcquireRequest { known: true, ..held.clone() };
    assert_eq!(take(&engine, &ask_again).await, token);
    server.sql(
        "update holdline_holders set deadline = 1 where name = 'a'; \
         update holdline_heads set ends = 1 where name = 'a'",
    );
    let reply = renew(&engine, &second, Purpose::Wait).await;
    assert!(matches!(reply, Ok(RenewReply::Held { .. })), "{reply:?}");
    let next = take(&engine, &AcquireRequest { known: true, ..second.clone() }).await;
    assert!(next > token, "{next:?} after {token:?}");
    let_go(&engine, &second).await;
    // A name without a holder has its last token in the row of its last holder.
    server.sql("delete from holdline_heads where name = 'a'");
    is_usable(&engine, "a", next).await;
}

/// The count of the queue is wrong until its silence has passed.
#[tokio::test]
async fn a_contender_that_was_removed_blocks_nobody() {
    let server = MariaDbServer::start(MariaDbConfig::default());
    let engine = engine(&server).await;
    let (held, waits) = (request("a"), request("a"));
    let token = take(&engine, &held).await;
    queue(&engine, &waits).await;
    server.sql("delete from holdline_waiters where name = 'a'");
    is_unknown(&engine, &waits, Purpose::Wait).await;
    let_go(&engine, &held).await;
    server.sql("update holdline_heads set heard_since = 1 where name = 'a'");
    is_usable(&engine, "a", token).await;
}
