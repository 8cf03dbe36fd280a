//! The parameters of a run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::Capabilities;
use serde::{Deserialize, Serialize};

use crate::Fault;

/// How long workers may take to connect.
pub(crate) const READY: Duration = Duration::from_secs(20);
/// How long the library itself tries to release.
pub(crate) const RELEASE: Duration = Duration::from_secs(10);
/// How long a fault of a server may take, a restart included.
pub(crate) const SERVER: Duration = Duration::from_secs(30);
/// How often a holder is stopped once more when the control has not been hurt in time.
pub(crate) const MORE_PAUSES: u32 = 5;
/// How long is looked for a holder that may be stopped, and for what it does when it goes on.
const PAUSE: Duration = Duration::from_secs(7);
/// How long a silent contender stays in a queue, at most.
const QUEUE: Duration = Duration::from_secs(4);

/// A bug that is planted to show that the run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Plant {
    /// The resource takes every token: late writes are accepted.
    AcceptStale,
    /// A worker relies on its lease until it releases it, ignoring the time.
    BelieveForEver,
    /// Workers share nothing: each opens `memory:` for itself.
    SplitBrain,
    /// A worker never comes back from its first wait.
    Hang,
    /// A worker ends without giving back a grant of 30 s.
    Orphan,
}

/// A program that calls [`crate::work`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The file.
    pub path: PathBuf,
    /// What makes it a worker.
    pub arguments: Vec<OsString>,
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The store. It is in no worker's arguments.
    pub url: String,
    /// The program of a worker.
    pub worker: Program,
    /// How long faults go on.
    pub lasting: Duration,
    /// Chooses the faults.
    pub seed: u64,
    /// Which faults may come.
    pub faults: Vec<Fault>,
    /// How many workers there are.
    pub workers: usize,
    /// The lease of a grant; longer where the engine knows none so short.
    pub lease: Duration,
    /// The store may end a lease that it has just acknowledged, as etcd does after its leader was
    /// paused: exclusion is not judged.
    pub soft_exclusion: bool,
    /// How much longer than its own limit a call of the library may take before it counts as hung.
    pub slack: Duration,
    /// A bug, in tests of the run itself.
    pub plant: Option<Plant>,
}

impl Plan {
    /// Makes a plan: six workers with leases of a second, 20 s of stopping and killing them.
    pub fn new(url: impl Into<String>, worker: Program, seed: u64) -> Plan {
        Plan {
            url: url.into(),
            worker,
            lasting: Duration::from_secs(20),
            seed,
            faults: vec![Fault::PauseHolder, Fault::Pause, Fault::Kill],
            workers: 6,
            lease: Duration::from_secs(1),
            soft_exclusion: false,
            slack: Duration::from_secs(15),
            plant: None,
        }
    }

    /// Returns the leases that this engine gives.
    pub(crate) fn lease_of(&self, capabilities: &Capabilities) -> Duration {
        self.lease.max(capabilities.lease.min).min(capabilities.lease.max)
    }

    /// Returns how long after its grant a silent holder's name is free, at most: with a lease that
    /// an election may give once more.
    pub(crate) fn freed_within(&self, capabilities: &Capabilities) -> Duration {
        (self.lease_of(capabilities) + capabilities.lease.step) * 2 + capabilities.lag
    }

    /// Returns how long a contender waits for a name.
    pub(crate) fn wait(&self, capabilities: &Capabilities) -> Duration {
        self.freed_within(capabilities) + Duration::from_secs(1)
    }

    /// Returns how long unreleased grants may be left in the store.
    pub(crate) fn left_for(&self, capabilities: &Capabilities) -> Duration {
        self.freed_within(capabilities) + QUEUE + Duration::from_secs(5)
    }

    /// Returns how much longer than [`Plan::lasting`] the whole run takes at most, from when the
    /// store is open; the usual is some seconds.
    pub fn grace(&self, capabilities: &Capabilities) -> Duration {
        let strike = SERVER * 2 + PAUSE;
        let pauses = (self.freed_within(capabilities) * 2 + PAUSE) * MORE_PAUSES;
        READY * 2 + strike + pauses + self.ending(capabilities) + self.left_for(capabilities)
    }

    /// Returns how long a worker may take to end: to wait, hold, release and shut down.
    pub(crate) fn ending(&self, capabilities: &Capabilities) -> Duration {
        let hold = self.lease_of(capabilities) * 2;
        self.wait(capabilities) + hold + RELEASE + self.slack * 3
    }
}
