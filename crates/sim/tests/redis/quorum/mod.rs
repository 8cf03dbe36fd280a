//! Seeded worlds of clients, operators and five servers that fail, each by its own clock, with an
//! observer that looks after every step whether the promises of a quorum hold.
//!
//! - P1: at most one believes validly that it holds a name, while no more forget than may.
//! - P2: tokens are unique, and a grant that was asked for after another was known has the larger
//!   one. Always, whoever forgets.
//! - P3: what the fenced store acknowledged is not lost. Always.
//! - P5: what a node keeps for nobody ends within its bound, and when all have gone, nothing is
//!   left but what is kept on purpose.
//! - P7: every attempt ends by its bound, and when the faults are over names are had again.
//!
//! Read next: `run` and `faults` (what happens), `heat` (where more of it does), `book` (what must
//! be so), `planted` (proof that they see it).

mod book;
mod client;
mod faults;
mod happens;
pub(crate) mod heat;
mod nodes;
mod operators;
mod orphans;
pub(crate) mod planted;
pub(crate) mod run;
mod slow;
#[cfg(test)]
mod tests;
mod watched;
