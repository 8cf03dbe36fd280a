//! The assignments and messages of workers: one JSON value a line.

use std::time::Duration;

use holdline_core::{FencingToken, LockName};
use serde::{Deserialize, Serialize};

use crate::Plant;
use crate::checker::Event;
use crate::register::Answer;

/// An order to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Begin.
    Begin(Assignment),
    /// What the resource answers.
    Answer(Answer),
    /// Give back what you hold, and end.
    End,
}

/// What a worker is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    /// The store, as this worker reaches it.
    pub(crate) url: String,
    pub(crate) names: Vec<LockName>,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    /// How much longer than its own limit a call may take.
    pub(crate) slack: Duration,
    /// The number of its first attempt.
    pub(crate) first: u64,
    pub(crate) seed: u64,
    pub(crate) plant: Option<Plant>,
}

/// A message of a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum WorkerMessage {
    /// It is connected.
    Ready,
    /// One of its attempts saw something.
    Saw(Event),
    /// It holds, and wants to read.
    Read { attempt: u64, token: FencingToken },
    /// It wants to write, having read this.
    Write { attempt: u64, token: FencingToken, base: Answer },
    /// An attempt failed in this way.
    Erred { attempt: u64, kind: String, message: String, expected: bool },
    /// A call did not come back within its limit and a good while more.
    Hung { attempt: u64, call: String },
    /// It has given back what it held.
    Ended { left: usize },
    /// Something went wrong that has nothing to do with the lock.
    Failed(String),
}
