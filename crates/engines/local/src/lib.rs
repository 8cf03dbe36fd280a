//! The one-machine engine: locks between the processes of one machine, with no server.
//!
//! The names of all processes stand in one SQLite database in a directory of the user; each
//! command is one transaction of the lock table's own rules. Who still lives is told by the
//! kernel through locked files, and whoever is next is woken by a datagram.
//!
//! # Guarantees
//! It keeps every promise of the lock table, and more about the dead: a holder whose process
//! ends, however it ends, frees the name at once. A *live* grant ends with the last process that
//! has its descriptor open, and never by time. Clocks do not matter beyond the machine's own
//! monotonic one, which stands still when the machine sleeps. Fencing tokens grow over crashes,
//! power cuts and reboots.
//!
//! It cannot be shared over a network: such file systems are refused. A power cut may take back
//! the last commands before it, but never a fencing token, and every process that was told of
//! them is gone with it.
//!
//! # Read next
//! `keys` for what is stored, `step` for how a command runs, `liveness` for who lives, `token`
//! and `reboot` for what survives what.

mod checkup;
mod clients;
mod commands;
mod database;
mod directory;
mod engine;
mod error;
mod filesystem;
mod housekeeping;
mod inbox;
mod keepers;
mod keys;
mod latch;
mod listing;
mod liveness;
mod looked_at;
mod machine;
mod names;
mod options;
mod probes;
mod queue;
mod reboot;
mod report;
mod room;
mod rows;
#[cfg(test)]
mod scratch;
mod shared;
mod short_lock;
mod step;
mod token;
mod user;
mod waiting;

pub use checkup::checkup;
pub use engine::LocalEngine;
pub use options::LocalOptions;
pub use report::LocalReport;
