//! A factory for anything that is built over the lock table.

use std::sync::Arc;

use holdline_conformance::clock::{HandClock, MachineClock};
use holdline_conformance::table_engine::TableEngine;
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time};
use holdline_core::table::Planted;
use holdline_core::{Engine, LockError};

pub(crate) struct Table {
    engine: Arc<dyn Engine>,
    time: Time,
}

impl Table {
    /// The table, on a hand-driven clock.
    pub(crate) fn new(planted: Option<Planted>) -> Table {
        Table::over(|clock| Arc::new(TableEngine::new(clock, planted)))
    }

    /// The table, on the machine's clock.
    pub(crate) fn in_real_time(planted: Option<Planted>) -> Table {
        let clock = Arc::new(MachineClock);
        let engine = Arc::new(TableEngine::new(clock.clone(), planted));
        Table { engine, time: Time::Real(clock) }
    }

    /// The table with watches that say nothing, on a hand-driven clock.
    pub(crate) fn deaf() -> Table {
        Table::over(|clock| Arc::new(TableEngine::deaf(clock)))
    }

    /// Anything, on a hand-driven clock.
    pub(crate) fn over(make: impl FnOnce(Arc<HandClock>) -> Arc<dyn Engine>) -> Table {
        let clock = Arc::new(HandClock::new());
        Table { engine: make(clock.clone()), time: Time::Hand(clock) }
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
        let engine = self.engine.clone();
        Box::pin(async { Ok(engine) })
    }

    fn time(&self) -> Time {
        self.time.clone()
    }

    fn scale(&self) -> Scale {
        if self.time.is_hand_driven() { Scale::hand_driven() } else { Scale::quick() }
    }

    fn disturb<'a>(&'a self, _: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async { Disturbed::Impossible("a table has nothing else in it") })
    }
}
