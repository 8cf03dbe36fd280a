//! Seeded worlds of clients, a network and a server with faults. An observer checks the promises
//! after every step.
//!
//! Read next: `run`, `faults` and `operators` (what happens), `recorder` and `rules` (the
//! promises), `bugs` (proof that violations are detected).

pub(crate) mod bugs;
mod client;
mod faults;
pub(crate) mod frame;
pub(crate) mod net;
mod operators;
mod recorder;
pub(crate) mod rng;
mod rules;
pub(crate) mod run;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
mod view;
