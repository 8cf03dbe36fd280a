//! The orders of the suite to its worker processes, and their messages: one JSON value a line.

use std::path::PathBuf;

use holdline_core::LockName;
use serde::{Deserialize, Serialize};

use crate::checker::Event;

/// What a worker is to do. It does not wait for one order to end before it takes the next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Take the name exclusively, and keep it until it is to be released.
    Lock {
        /// The number of the attempt.
        attempt: u64,
        /// The lock name.
        name: LockName,
        /// The lease; `None` for a live grant.
        lease_ms: Option<u64>,
    },
    /// Append a line to a fenced file with the token of this attempt.
    Write {
        /// The number of the attempt.
        attempt: u64,
        /// The file.
        path: PathBuf,
    },
    /// Release what this attempt was granted.
    Release {
        /// The number of the attempt.
        attempt: u64,
    },
    /// Take, write and release the name several times, one after the other, then say `Done`.
    Cycle {
        /// The number of the first attempt.
        first: u64,
        /// How many attempts.
        count: u64,
        /// The lock name.
        name: LockName,
        /// The lease.
        lease_ms: u64,
        /// The fenced file.
        path: PathBuf,
    },
}

/// A message of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// It is connected.
    Ready,
    /// One of its attempts saw something.
    Saw(Event),
    /// A `Cycle` has ended.
    Done,
    /// Something went wrong that must not.
    Failed(String),
}
