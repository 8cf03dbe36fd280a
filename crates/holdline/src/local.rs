//! Locks between the processes of one machine, without a server: `local:`.
//!
//! They are in an SQLite database in a directory of the user. If a process ends in any way, its
//! locks are free at once. The engine needs Linux. `docs/local.md` of the repository is the page
//! for users.

pub use holdline_local::{LocalEngine, LocalOptions, LocalReport};
