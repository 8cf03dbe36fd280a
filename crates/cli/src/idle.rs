//! The proof that this process is outside of any transaction of the local engine.
//!
//! A process that is stopped inside a transaction would keep all others out. Everything that may
//! stop this process therefore takes an [`Idle`], and [`Idle::run`] is the only way to get one.

use holdline_local::LocalEngine;

/// This process is in no transaction of the local engine.
#[derive(Debug)]
pub(crate) struct Idle(());

impl Idle {
    /// Runs `stop` while no transaction of `engine` is open. `None`: no local engine is open.
    pub(crate) fn run<T>(engine: Option<&LocalEngine>, stop: impl FnOnce(&Idle) -> T) -> T {
        let stop = || stop(&Idle(()));
        match engine {
            Some(engine) => engine.between_transactions(stop),
            None => stop(),
        }
    }
}
