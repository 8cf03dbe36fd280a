//! The one-machine engine: locks between the processes of one machine, with no server.
//!
//! The names of all processes are in one SQLite database in a directory of the user. Each command
//! is one transaction with the lock table's own rules. Locked files show which processes live,
//! since the kernel unlocks them at a process's end. A datagram wakes the next waiter.
//!
//! # Guarantees
//! It keeps every promise of the lock table. In addition, a holder whose process ends in any way
//! frees the name at once. A *live* grant ends with the last process that has its descriptor open,
//! and never by time. Only the machine's monotonic clock is used, which stops while the machine is
//! suspended. Fencing tokens keep growing over crashes, power cuts and reboots.
//!
//! It cannot be shared over a network: such file systems are refused. A power cut may lose the last
//! commands before it, but never a fencing token, and it ends every process that received their
//! replies.
//!
//! # Read next
//! `keys` for what is stored, `step` for how a command runs, `liveness` for which processes live,
//! `token` and `reboot` for what survives a crash or a reboot.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the local engine needs Linux: it reads /proc and the boot id to find which processes live, \
     and knows only which of Linux's file systems keep a lock. On other systems, take holdline \
     without it: `default-features = false`, and the feature of another engine"
);

mod checked_watch;
mod checkup;
mod clients;
mod command_runner;
mod commands;
mod database;
mod directory;
mod engine;
mod error;
mod filesystem;
mod grant_processes;
mod housekeeping;
mod keys;
mod latch;
mod listing;
mod liveness;
mod machine;
mod names;
mod options;
mod probes;
mod queue;
mod reboot;
mod report;
mod rows;
#[cfg(test)]
mod scratch;

mod short_lock;
mod step;
mod token;
mod trail;
mod transaction_lock;
mod user;
mod wait_thread;
mod wake_socket;

pub use checkup::checkup;
pub use engine::LocalEngine;
pub use error::Obstacle;
pub use options::LocalOptions;
pub use report::LocalReport;
