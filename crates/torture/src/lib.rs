//! Runs lock holders under faults, and judges what they saw.
//!
//! [`run()`] starts worker processes that acquire names, read, wait and write. Meanwhile it injects
//! faults: it stops and kills workers, cuts proxies between them and the store, and has a
//! [`Nemesis`] inject the faults that only the owner of the servers can. The resource that workers
//! write to is in the process that runs all this: one register that checks fencing tokens, and one
//! that does not, as the control. At the end the [`Report`] says what was found.
//!
//! | what | where |
//! |---|---|
//! | the faults and their schedule | [`Plan`], [`Fault`], `schedule` |
//! | the faults that need the servers | [`Nemesis`] |
//! | the network between workers and store | `relay`, [`endpoints`] |
//! | a worker, its pipes and its messages | [`work`], [`pipes`], `wire` |
//! | the resource | `register` |
//! | the judge | [`checker`], `verdict` |
//!
//! # Invariants
//! T1: all moments are readings of one clock of this machine, `CLOCK_BOOTTIME`.
//! T2: the seed chooses the faults, their order, durations and targets; their timing against the
//! holders depends on the machine.
//! T3: a run ends within its seconds and [`Plan::grace`], whatever happens, and no worker outlives
//! the process that runs it.
//! T4: no password reaches an argument of a worker: it reads the URL from its standard input.

pub mod checker;
mod crew;
pub mod endpoints;
mod fault;
mod history;
mod nemesis;
pub mod pipes;
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
pub use nemesis::{Injection, Nemesis, WithoutServers};
pub use plan::{Plan, Plant, Program};
pub use report::{Assumed, Report, Verdict};
pub use run::run;
pub use worker::work;
