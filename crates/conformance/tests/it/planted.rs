//! The table without a bug passes, and each planted bug is told apart by random histories alone.

use std::sync::Arc;

use holdline_conformance::history::{Hunt, hunt};
use holdline_conformance::{Bench, Status, run, run_one, storm};
use holdline_core::table::Planted;

use crate::table::Table;

/// In how many histories a bug must show: as many as an engine on a hand-driven clock is tried.
const HISTORIES: usize = 1_500;

#[tokio::test]
async fn the_table_itself_passes() {
    run(Table::new(None)).await.conclude();
}

#[tokio::test]
async fn every_planted_bug_is_told_apart() {
    let mut missed = Vec::new();
    println!("planted bug -> the history that shows it");
    for bug in Planted::ALL {
        let bench = Bench::open(Arc::new(Table::new(Some(bug)))).await.expect("clients");
        match hunt(&bench, 1, HISTORIES).await {
            Hunt::Found(difference) => println!("{bug:?} -> {difference}"),
            Hunt::Equal { histories, .. } => missed.push(format!("{bug:?} in {histories}")),
        }
    }
    assert!(missed.is_empty(), "not told apart: {missed:?}");
}

/// Answers alone do not show that nobody is woken: a fixed case must.
#[tokio::test]
async fn a_watch_that_says_nothing_is_told_apart() {
    let bench = Bench::open(Arc::new(Table::deaf())).await.expect("clients");
    let line = run_one(&bench, "a release tells the next one that watches").await;
    let status = line.expect("there is such a case").status;
    assert!(matches!(&status, Status::Failed(why) if why.contains("LookAgain")), "{status}");
}

async fn storm_shows(planted: Planted, wanted: &str) {
    let table = Table::in_real_time(Some(planted));
    let bench = Bench::open(Arc::new(table)).await.expect("clients");
    let status = storm::run(&bench).await.status;
    assert!(
        matches!(&status, Status::Failed(why) if why.contains(wanted)),
        "{planted:?}: {status}"
    );
}

/// What many see at once must show what a single observer could miss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_shows_that_a_newcomer_passes() {
    storm_shows(Planted::NewcomerPassesQueue, "passed an earlier one (C4)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_shows_a_permit_too_many() {
    storm_shows(Planted::OnePermitTooMany, "more permits held than there are (C1)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_shows_a_token_given_twice() {
    storm_shows(Planted::HandOffKeepsToken, "two grants with one token (C2)").await;
}
