//! A capability is tested both ways: what an engine lacks must be refused when it is asked for.

use std::sync::Arc;
use std::time::Duration;

use holdline_conformance::table_engine::{TableEngine, capabilities};
use holdline_conformance::{Bench, Status, run, run_one};
use holdline_core::{Capabilities, Expiry, HandOff};

use crate::table::Table;

/// An engine that can do nothing but hold a name alone.
fn leanest() -> Capabilities {
    let mut lean = capabilities();
    for flag in [
        &mut lean.fair,
        &mut lean.shared,
        &mut lean.permits,
        &mut lean.fencing,
        &mut lean.queue,
        &mut lean.revoke,
        &mut lean.polite_revoke,
        &mut lean.freeze,
        &mut lean.list,
        &mut lean.detach,
        &mut lean.metadata,
        &mut lean.repeat,
    ] {
        *flag = false;
    }
    lean.hand_off = HandOff::None;
    lean
}

#[tokio::test]
async fn what_an_engine_lacks_is_asserted_and_not_run() {
    let report = run(Table::over(|clock| Arc::new(TableEngine::lean(clock, leanest())))).await;
    let unsupported = |status: &Status| matches!(status, Status::Unsupported(_));
    let count = report.lines.iter().filter(|line| unsupported(&line.status)).count();
    report.conclude();
    assert!(count > 50, "{count} lines are about what the leanest engine lacks");
}

#[tokio::test]
async fn an_engine_without_an_order_is_judged_without_one() {
    let mut unfair = capabilities();
    unfair.fair = false;
    run(Table::over(|clock| Arc::new(TableEngine::lean(clock, unfair)))).await.conclude();
}

#[tokio::test]
async fn an_engine_whose_leases_end_by_session_and_that_hands_over_directly_is_judged_so() {
    let mut sessions = capabilities();
    sessions.expiry = Expiry::Session;
    sessions.hand_off = HandOff::Direct;
    sessions.lease.max = Duration::from_secs(30);
    sessions.freeze = false;
    let report = run(Table::over(|clock| Arc::new(TableEngine::lean(clock, sessions)))).await;
    report.conclude();
}

#[tokio::test]
async fn an_engine_that_does_what_it_says_it_cannot_is_told_apart() {
    let bench = |profile| async {
        let table = Table::over(|clock| Arc::new(TableEngine::modest(clock, profile)));
        Bench::open(Arc::new(table)).await.expect("clients")
    };
    let cases = [
        "readers hold together, a writer alone",
        "permits held are never more than there are",
        "a release tells the next one that watches",
        "a forced revoke frees at once and its holder is told why",
        "a freeze keeps everybody from a free name",
        "a detached lease excludes",
        "a list has every name once, in order, page by page",
    ];
    let bench = bench(leanest()).await;
    for case in cases {
        let status = run_one(&bench, case).await.expect("there is such a case").status;
        assert!(
            matches!(&status, Status::Failed(why) if why.contains("asking gave")),
            "{case}: {status}"
        );
    }
}
