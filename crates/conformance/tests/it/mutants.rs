//! The table passes the suite, and random histories alone detect each mutant of the table.

use std::sync::Arc;

use holdline_conformance::history::{Hunt, hunt};
use holdline_conformance::{Bench, Status, run, run_one, storm};
use holdline_core::table::Mutant;

use crate::table::Table;

/// In how many histories a mutant must be detected: as many as check an engine on a hand-driven
/// clock.
const HISTORIES: usize = 1_500;

#[tokio::test]
async fn the_table_itself_passes() {
    run(Table::new()).await.conclude();
}

#[tokio::test]
async fn every_mutant_is_detected() {
    let mut missed = Vec::new();
    println!("mutant -> the history that detects it");
    for mutant in Mutant::ALL {
        let bench = Bench::open(Arc::new(Table::of(mutant))).await.expect("clients");
        match hunt(&bench, 1, HISTORIES).await {
            Hunt::Found(difference) => println!("{mutant:?} -> {difference}"),
            Hunt::Equal { histories, .. } => missed.push(format!("{mutant:?} in {histories}")),
        }
    }
    assert!(missed.is_empty(), "not detected: {missed:?}");
}

/// Replies alone do not show that no waiter is woken: a fixed case must.
#[tokio::test]
async fn a_watch_that_says_nothing_is_detected() {
    let bench = Bench::open(Arc::new(Table::mute())).await.expect("clients");
    let row = run_one(&bench, "a release notifies the watch of the next contender").await;
    let status = row.expect("there is such a case").status;
    assert!(matches!(&status, Status::Failed(why) if why.contains("Granted")), "{status}");
}

async fn storm_shows(mutant: Mutant, wanted: &str) {
    let table = Table::in_real_time(mutant);
    let bench = Bench::open(Arc::new(table)).await.expect("clients");
    let status = storm::run(&bench).await.status;
    assert!(matches!(&status, Status::Failed(why) if why.contains(wanted)), "{mutant:?}: {status}");
}

/// A storm of contenders must detect what a single observer could miss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_shows_that_a_newcomer_passes() {
    storm_shows(Mutant::NewcomerPassesQueue, "passed an earlier one (C4)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_shows_a_permit_too_many() {
    storm_shows(Mutant::OnePermitTooMany, "more permits held than there are (C1)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_shows_a_token_given_twice() {
    storm_shows(Mutant::HandOffKeepsToken, "two grants with one token (C2)").await;
}
