//! Seeded worlds of clients, a network and a server that fail, with an observer that looks after
//! every step whether the promises hold.
//!
//! Read next: `run`, `faults` and `operators` (what happens), `book` and `rules` (what must be so),
//! `planted` (proof that they see it).

mod book;
mod client;
pub(crate) mod dice;
mod faults;
pub(crate) mod frame;
pub(crate) mod net;
mod operators;
pub(crate) mod planted;
mod rules;
pub(crate) mod run;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
mod view;
