//! The server's clock is stepped. Leases end by its time of day: after a step forward, exclusion
//! ends and only fencing tokens protect; after a step back, names are free later.

use std::time::Duration;

use holdline_core::{AcquireReply, AcquireRequest, Engine, Operation, Purpose, RenewReply};
use holdline_services::{MariaDbConfig, MariaDbServer};

use crate::support::{HOLD, engine, let_go, renew, request, take};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_stepped_mariadb_clock_costs_exclusion_and_no_token() {
    let server = MariaDbServer::start(MariaDbConfig::default().with_clock());
    let (one, other) = (engine(&server).await, engine(&server).await);
    let first = request("a");
    let token = take(&one, &first).await;
    server.clock().step_forward(HOUR);
    let second = request("a");
    let larger = take(&other, &second).await;
    assert!(larger > token, "the later token is larger");
    let reply = renew(&one, &first, Purpose::Keep(HOLD)).await;
    assert!(matches!(reply, Ok(RenewReply::Unknown)), "the first holder is notified: {reply:?}");
    server.clock().step_back(2 * HOUR);
    let busy = AcquireRequest { queue: false, ..request("a") };
    let reply = one.try_acquire(&busy).await.expect("asked");
    assert!(matches!(reply, AcquireReply::Busy { .. }), "held on: {reply:?}");
    // Its holder is gone, and the lease would last for hours.
    let (name, reason) = (second.name.clone(), "gone".to_owned());
    let revoke = Operation::Revoke { name, token: larger, reason, now: true };
    one.operate(&revoke).await.expect("revoked");
    let third = request("a");
    assert!(take(&one, &third).await > larger, "tokens are counted on while the clock is behind");
    let_go(&one, &third).await;
}
