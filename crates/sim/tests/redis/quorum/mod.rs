//! Seeded worlds of clients, operators and five failing servers, each with its own clock. An
//! observer checks the promises of a quorum after every step.
//!
//! - P1: at most one client holds a name, while at most a minority of nodes loses its data.
//! - P2: tokens are unique, and a grant that was requested after another was known has the larger
//!   one. Always, whichever nodes lose their data.
//! - P3: acknowledged writes to the fenced store are not lost. Always.
//! - P5: orphaned grants on a node end within their bound. When all clients have stopped, only keys
//!   remain that are kept on purpose.
//! - P7: every attempt ends by its bound, and after the faults names are acquired again.
//!
//! Read next: `run` and `faults` (what happens), `stress` (tuned worlds), `recorder` (the
//! promises), `bugs` (proof that violations are detected).

pub(crate) mod bugs;
mod client;
mod clock;
mod events;
mod faults;
mod nodes;
mod observed;
mod operators;
mod orphans;
mod recorder;
pub(crate) mod run;
pub(crate) mod stress;
#[cfg(test)]
mod tests;
