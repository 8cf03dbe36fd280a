//! Seeded worlds of clients, a network and a server that fail, with an observer that looks after
//! every step whether the promises hold.
//!
//! Read next: `run`, `faults` and `operators` (what happens), `book` and `rules` (what must be so),
//! `planted` (proof that they see it).

mod book;
mod client;
mod dice;
mod faults;
mod net;
mod operators;
mod planted;
mod rules;
mod run;
mod tasks;
mod tests;
mod view;
