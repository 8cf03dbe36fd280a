//! A factory for anything that is built over the lock table.

use std::sync::Arc;

use holdline_conformance::clock::{MachineClock, ManualClock};
use holdline_conformance::table_engine::{Rules, TableEngine};
use holdline_conformance::{BoxFuture, Disturbance, Disturbed, Factory, Scale, Time};
use holdline_core::table::Mutant;
use holdline_core::{Engine, LockError};

pub(crate) struct Table {
    engine: Arc<dyn Engine>,
    time: Time,
}

impl Table {
    /// The table, on a hand-driven clock.
    pub(crate) fn new() -> Table {
        Table::over(|clock| Arc::new(TableEngine::new(clock)))
    }

    /// A mutant of the table, on a hand-driven clock.
    pub(crate) fn of(mutant: Mutant) -> Table {
        Table::over(|clock| Arc::new(TableEngine::with_rules(clock, rules(mutant))))
    }

    /// A mutant of the table, on the machine's clock.
    pub(crate) fn in_real_time(mutant: Mutant) -> Table {
        let clock = Arc::new(MachineClock);
        let engine = Arc::new(TableEngine::with_rules(clock.clone(), rules(mutant)));
        Table { engine, time: Time::Real(clock) }
    }

    /// The table with watches that say nothing, on a hand-driven clock.
    pub(crate) fn mute() -> Table {
        Table::over(|clock| Arc::new(TableEngine::mute(clock)))
    }

    /// Anything, on a hand-driven clock.
    pub(crate) fn over(make: impl FnOnce(Arc<ManualClock>) -> Arc<dyn Engine>) -> Table {
        let clock = Arc::new(ManualClock::new());
        Table { engine: make(clock.clone()), time: Time::Manual(clock) }
    }
}

fn rules(mutant: Mutant) -> Rules {
    Arc::new(move |state, counter, profile, command, now| {
        mutant.apply(state, counter, profile, command, now)
    })
}

impl Factory for Table {
    fn name(&self) -> String {
        "the lock table, hand-driven clock".into()
    }

    fn command(&self) -> String {
        "cargo test -p holdline-conformance --test it mutants -- --nocapture".into()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Engine>, LockError>> {
        let engine = self.engine.clone();
        Box::pin(async { Ok(engine) })
    }

    fn time(&self) -> Time {
        self.time.clone()
    }

    fn scale(&self) -> Scale {
        if self.time.is_manual() { Scale::manual() } else { Scale::quick() }
    }

    fn disturb<'a>(&'a self, _: &'a Disturbance) -> BoxFuture<'a, Disturbed> {
        Box::pin(async { Disturbed::Impossible("a table has nothing else in it") })
    }
}
