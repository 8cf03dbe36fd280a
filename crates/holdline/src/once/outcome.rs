//! What came of a start.

use std::time::{Duration, SystemTime};

use holdline_core::{HolderFields, LockError};

use super::OnceRun;

/// Another start took the slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub(super) by: HolderFields,
    pub(super) since: Option<SystemTime>,
    pub(super) clock_skew: Option<Duration>,
}

impl Taken {
    /// Returns what the machine that took the slot reports about itself.
    pub fn by(&self) -> &HolderFields {
        &self.by
    }

    /// Returns when it took the slot, by this machine's clock, if the engine reports it.
    pub fn since(&self) -> Option<SystemTime> {
        self.since
    }

    /// Returns by how much the clocks of the two machines seem to differ, if that is more than the
    /// maximum skew. With such clocks a start near the end of a slot may run the job again: set
    /// them right.
    pub fn clock_skew(&self) -> Option<Duration> {
        self.clock_skew
    }
}

/// What came of [`Once::begin`](super::Once::begin).
#[derive(Debug)]
#[non_exhaustive]
pub enum Begun {
    /// The slot is ours: do the job, then call [`OnceRun::finish`] or [`OnceRun::give_back`].
    Run(Box<OnceRun>),
    /// The job has run in this slot, or has started where it runs at most once.
    AlreadyRan(Taken),
    /// The job runs elsewhere, in this slot or still in an earlier one, and the wait limit has
    /// passed.
    RunningElsewhere(Taken),
}

/// What came of [`Once::run`](super::Once::run).
#[derive(Debug)]
#[non_exhaustive]
pub enum OnceOutcome<T, E> {
    /// The job ran here, and nobody else runs it in this slot.
    Ran(T),
    /// The job ran here, but the store did not confirm that the slot is over: another machine may
    /// run it again.
    Unmarked {
        /// What the job returned.
        value: T,
        /// Why the store did not confirm.
        error: LockError,
    },
    /// The job has run in this slot, or has started where it runs at most once.
    AlreadyRan(Taken),
    /// The job runs elsewhere, in this slot or still in an earlier one, and the wait limit has
    /// passed.
    RunningElsewhere(Taken),
    /// The job ran here and failed.
    Failed(E),
}

impl<T, E> OnceOutcome<T, E> {
    /// Returns whether the job ran here to its end, without failing.
    pub fn ran(&self) -> bool {
        matches!(self, OnceOutcome::Ran(_) | OnceOutcome::Unmarked { .. })
    }
}
