//! The suite that every engine of Holdline must pass.
//!
//! [`run()`] takes a [`Factory`], which opens clients of one store, and returns a [`Report`]: a
//! table with one row for each case, *ran*, *unsupported (asserted)*, *impossible here*, *not
//! run* or *failed*. Not run is as bad as failed.
//!
//! ```no_run
//! # async fn judge(factory: impl holdline_conformance::Factory) {
//! holdline_conformance::run(factory).await.conclude();
//! # }
//! ```
//!
//! It judges in three ways, each blind to what the next one sees:
//!
//! | way | sees | where |
//! |---|---|---|
//! | fixed cases | what the promises P1 to P10 say, one sentence at a time | [`case`], `cases` |
//! | random histories | every answer that differs from the lock table's, one command in flight | [`history`] |
//! | the checker | what many contenders at once may never see | [`checker`], fed by [`storm`] (tasks), [`processes`], and [`stress`] (under faults of the servers) |
//!
//! The suite itself is tested too: it must detect each mutant of the lock table
//! ([`table_engine`]), and the checker must find planted violations.

pub mod asking;
pub mod bench;
pub mod case;
mod cases;
pub mod clock;
pub mod contender;
mod contenders;
pub mod factory;
pub mod failure;
pub mod history;
pub mod orders;
pub mod processes;
mod real_store;
pub mod report;
mod run;
mod stalls;
pub mod storm;
pub mod stress;
pub mod table_engine;

pub use bench::Bench;
pub use holdline_torture::{checker, pipes, recorder};

pub use factory::{BoxFuture, Disturbance, Disturbed, Factory, ManualTime, Opened, Scale, Time};
pub use real_store::{RealStore, judge_store};
pub use report::{Report, Row, Status};
pub use run::{run, run_one};
