//! The table without a bug passes, and each planted bug is told apart by random histories alone.

use std::sync::Arc;

use holdline_conformance::clock::HandClock;
use holdline_conformance::history::{Hunt, hunt};
use holdline_conformance::table_engine::TableEngine;
use holdline_conformance::{
    Bench, BoxFuture, Disturbance, Disturbed, Factory, Scale, Status, Time, run, run_one,
};
use holdline_core::table::Planted;
use holdline_core::{Engine, LockError};

/// In how many histories a bug must show: as many as an engine on a hand-driven clock is tried.
const HISTORIES: usize = 1_500;

struct Table {
    engine: TableEngine,
    clock: HandClock,
}

impl Table {
    fn new(planted: Option<Planted>) -> Table {
        let clock = HandClock::new();
        Table { engine: TableEngine::new(Arc::new(clock.clone()), planted), clock }
    }

    fn deaf() -> Table {
        let clock = HandClock::new();
        Table { engine: TableEngine::deaf(Arc::new(clock.clone())), clock }
    }
}

impl Factory for Table {
    fn name(&self) -> String {
        "the lock table, hand-driven clock".into()
    }

    fn command(&self) -> String {
        "cargo test -p holdline-conformance --test it planted -- --nocapture".into()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        let engine: Arc<dyn Engine> = Arc::new(self.engine.clone());
        Box::pin(async { Ok(engine) })
    }

    fn time(&self) -> Time {
        Time::Hand(Arc::new(self.clock.clone()))
    }

    fn scale(&self) -> Scale {
        Scale::hand_driven()
    }

    fn disturb<'a>(&'a self, _: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async { Disturbed::Impossible("a table has nothing else in it") })
    }
}

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
