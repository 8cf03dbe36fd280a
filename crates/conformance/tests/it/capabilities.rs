//! A capability is tested both ways: a missing feature must be refused when it is requested.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::table_engine::{TableEngine, capabilities};
use holdline_conformance::{Bench, Status, run, run_one};
use holdline_core::{Capabilities, Expiry, HandOff};

use crate::table::Table;

/// An engine that can do nothing but hold a name alone.
fn most_limited() -> Capabilities {
    let mut limited = capabilities();
    for flag in [
        &mut limited.fair,
        &mut limited.shared,
        &mut limited.permits,
        &mut limited.fencing,
        &mut limited.queue,
        &mut limited.revoke,
        &mut limited.polite_revoke,
        &mut limited.remove_waiter,
        &mut limited.freeze,
        &mut limited.list,
        &mut limited.detach,
        &mut limited.metadata,
        &mut limited.repeat,
    ] {
        *flag = false;
    }
    limited.hand_off = HandOff::None;
    limited
}

#[tokio::test]
async fn missing_capabilities_are_asserted_and_not_run() {
    let report =
        run(Table::over(|clock| Arc::new(TableEngine::limited(clock, most_limited())))).await;
    let unsupported = |status: &Status| matches!(status, Status::Unsupported(_));
    let count = report.rows.iter().filter(|row| unsupported(&row.status)).count();
    report.conclude();
    assert!(count > 50, "{count} rows are about missing features of the most limited engine");
}

#[tokio::test]
async fn an_engine_without_an_order_is_judged_without_one() {
    let mut unfair = capabilities();
    unfair.fair = false;
    run(Table::over(|clock| Arc::new(TableEngine::limited(clock, unfair)))).await.conclude();
}

#[tokio::test]
async fn an_engine_with_sessions_and_direct_hand_offs_is_compared_with_such_a_table() {
    let mut sessions = capabilities();
    sessions.expiry = Expiry::Session;
    sessions.hand_off = HandOff::Direct;
    sessions.lease.max = Duration::from_secs(30);
    sessions.freeze = false;
    let report = run(Table::over(|clock| Arc::new(TableEngine::limited(clock, sessions)))).await;
    report.conclude();
}

#[tokio::test]
async fn an_engine_that_does_what_it_says_it_cannot_is_detected() {
    let bench = |profile| async {
        let table = Table::over(|clock| Arc::new(TableEngine::understated(clock, profile)));
        Bench::open(Arc::new(table)).await.expect("clients")
    };
    let cases = [
        "readers hold together, a writer alone",
        "permits held are never more than there are",
        "a release notifies the watch of the next contender",
        "a forced revoke frees at once and its holder gets the reason",
        "a freeze keeps everybody from a free name",
        "a detached lease excludes",
        "a list has every name once, in order, page by page",
    ];
    let bench = bench(most_limited()).await;
    for case in cases {
        let status = run_one(&bench, case).await.expect("there is such a case").status;
        assert!(
            matches!(&status, Status::Failed(why) if why.contains("a request gave")),
            "{case}: {status}"
        );
    }
}
