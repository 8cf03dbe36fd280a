//! Torments the holders of a lock, and judges what they saw.
//!
//! [`run()`] starts worker processes that take names, read, think and write, and meanwhile does
//! them harm: it stops and kills them, puts proxies between them and the store, and lets a
//! [`Nemesis`] do to the servers what only their owner can. The resource that they write to
//! stands in the process that runs all this: one register that checks fencing tokens, and one
//! that does not, as the control. At the end the [`Report`] says what was found.
//!
//! | what | where |
//! |---|---|
//! | what is to be done to whom | [`Plan`], [`Fault`], `schedule` |
//! | the faults that need the servers | [`Nemesis`] |
//! | the network between workers and store | `relay`, [`endpoints`] |
//! | a worker, and what it says | [`work`], `wire` |
//! | the resource | `register` |
//! | the judge | [`checker`], `verdict` |
//!
//! # Invariants
//! T1: all moments are readings of one clock of this machine, `CLOCK_BOOTTIME`.
//! T2: the seed chooses which faults come, in which order, how long and to whom where that can be
//! chosen; when they meet a holder is up to the machine.
//! T3: a run ends within its seconds and [`Plan::grace`], whatever happens, and no worker outlives
//! the process that runs it.
//! T4: no password reaches an argument of a worker: it reads the URL from its standard input.

pub mod checker;
mod crew;
pub mod endpoints;
mod fault;
mod history;
mod nemesis;
mod plan;
pub mod recorder;
mod register;
mod relay;
mod report;
mod run;
mod schedule;
mod stage;
mod strike;
mod verdict;
mod wire;
mod worker;

pub use fault::{Fault, FaultError};
pub use nemesis::{Blow, Nemesis, WithoutServers};
pub use plan::{Plan, Plant, Program};
pub use report::{Assumed, Report, Verdict};
pub use run::run;
pub use worker::work;
