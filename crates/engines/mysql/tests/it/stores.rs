//! An old backup of the database is restored: what it no longer knows, and which tokens it issues
//! twice.

use std::time::Duration;

use holdline::fence::{FenceError, Fenced, FencedCell, Proof};
use holdline_core::{AcquireRequest, Engine, FencingToken, Hold, Operation, Purpose, RenewReply};
use holdline_mysql::MysqlEngine;
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::checkup::{ill, look};
use crate::support::{engine, let_go, name, renew, request, take};

/// No restart takes so long.
const LONG: Hold = Hold::Leased(Duration::from_secs(600));

/// Takes a name for longer than a grant may begin with.
async fn take_long(engine: &MysqlEngine, request: &AcquireRequest) -> FencingToken {
    let token = take(engine, request).await;
    let reply = renew(engine, request, Purpose::Keep(LONG)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    token
}

/// Asks until the engine has a connection to the server again.
async fn found_again(engine: &MysqlEngine) {
    while engine.inspect(&name("a")).await.is_err() {}
}

/// A counter that has granted no token must not treat a raise to 1 as done.
#[tokio::test]
async fn a_fence_that_is_raised_before_its_first_token_gives_a_larger_one() {
    let to = |number| FencingToken::new(number).expect("a token");
    for raise in [1, 2, 7] {
        let server = MariaDbServer::start(MariaDbConfig::default());
        let engine = engine(&server).await;
        engine.operate(&Operation::RaiseFence { to: to(raise) }).await.expect("raised");
        assert!(take(&engine, &request("a")).await > to(raise), "raised to {raise}");
    }
}

/// The database does not know that it is an old copy: tokens fall, until an operator raises
/// the fence. Until then the resource is what refuses them.
#[tokio::test]
async fn after_a_restored_old_copy_the_operator_raises_the_fence() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_fsync());
    let engine = engine(&server).await;
    let (kept, released) = (request("kept"), request("released"));
    let token_of_kept = take_long(&engine, &kept).await;
    take_long(&engine, &released).await;
    for _ in 0..3 {
        let known = request("a");
        take(&engine, &known).await;
        let_go(&engine, &known).await;
    }
    let copy = server.save();
    found_again(&engine).await;
    let_go(&engine, &released).await;
    for _ in 0..10 {
        let missed = request("a");
        take(&engine, &missed).await;
        let_go(&engine, &missed).await;
    }
    let held = request("a");
    let last = take_long(&engine, &held).await;
    let resource = FencedCell::new(());
    let write =
        |token: FencingToken| resource.check_and_write(&Proof::exclusive(token), |()| Ok(()));
    write(last).expect("the newest");

    assert_eq!(ill(&look(&server.url()).await), [""; 0]);
    server.restore(&copy);
    assert_eq!(ill(&look(&server.url()).await), [""; 0], "nothing shows doctor that it is old");
    found_again(&engine).await;
    // A holder since the copy is notified; a holder before it keeps its lock.
    let reply = renew(&engine, &held, Purpose::Keep(LONG)).await;
    assert!(matches!(reply, Ok(RenewReply::Unknown)), "{reply:?}");
    let reply = renew(&engine, &kept, Purpose::Keep(LONG)).await;
    assert!(matches!(reply, Ok(RenewReply::Renewed { .. })), "{reply:?}");
    assert_eq!(take(&engine, &kept).await, token_of_kept);
    // What was released since then is held again, for the rest of its lease.
    let shown = engine.inspect(&released.name).await.expect("shown");
    assert_eq!(shown.holders[0].summary.lease_id, released.lease_id.short(), "{shown:?}");

    let fallen = request("a");
    let given = take(&engine, &fallen).await;
    assert!(given < last, "the copy knows nothing of the later tokens");
    assert!(matches!(write(given), Err(FenceError::Stale(_))));
    let_go(&engine, &fallen).await;
    engine.operate(&Operation::RaiseFence { to: last }).await.expect("raised");
    let repaired = request("a");
    let given = take(&engine, &repaired).await;
    assert!(given > last, "{given} after {last}");
    write(given).expect("larger than all before");
    let_go(&engine, &repaired).await;
}
