//! Stressed worlds: each is tuned to a rule that matters too rarely in random worlds. They have
//! seeds and promises like all others, and are also played without a planted bug.

use super::client::NAMES;
use super::faults::Fault;
use super::run::ScenarioKind;
use crate::world::frame::Frame;
use crate::world::tasks::Process;

/// The servers that clients can reach. Operators reach all; after the faults all clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reachability {
    All,
    /// Two clients reach the first three servers and one the last three, so the server in the
    /// middle decides. One client reaches all and acquires nothing.
    Halves,
    /// One client for each half, and two that reach all and acquire nothing.
    Ends,
    /// The same, and all clients acquire names.
    Middle,
    /// Each client reaches three different servers, one reaches all: the servers' data differs.
    Threes,
}

impl Reachability {
    /// Returns whether a process reaches a server, with this number of clients.
    pub(crate) fn leads(self, process: Process, clients: u64, node: usize) -> bool {
        const THREES: [[usize; 3]; 10] = [
            [0, 1, 2],
            [2, 3, 4],
            [0, 2, 3],
            [1, 3, 4],
            [0, 1, 4],
            [1, 2, 3],
            [0, 3, 4],
            [0, 2, 4],
            [0, 1, 3],
            [1, 2, 4],
        ];
        let slot = process % clients;
        if slot == clients - 1 || process >= super::operators::FIRST {
            return true;
        }
        match self {
            Reachability::All => true,
            Reachability::Ends | Reachability::Middle if slot == 0 => true,
            Reachability::Halves | Reachability::Ends | Reachability::Middle
                if slot == clients - 2 =>
            {
                node >= 2
            }
            Reachability::Halves | Reachability::Ends | Reachability::Middle => node <= 2,
            Reachability::Threes => THREES[process as usize % THREES.len()].contains(&node),
        }
    }
}

impl Reachability {
    /// Returns whether a process acquires names, with this number of clients.
    pub(crate) fn wants(self, process: Process, clients: u64) -> bool {
        let slot = process % clients;
        match self {
            Reachability::All | Reachability::Threes | Reachability::Middle => true,
            Reachability::Halves => slot != clients - 1,
            Reachability::Ends => slot != clients - 1 && slot != 0,
        }
    }
}

/// A kind of request that is often delayed.
#[derive(Clone, Copy)]
pub(crate) struct DelayedRequests {
    pub(crate) which: fn(&Frame) -> bool,
    /// In percent.
    pub(crate) percent: u64,
    /// The smallest and the largest delay.
    pub(crate) ms: (u64, u64),
}

/// The stress of a world.
#[derive(Clone, Copy)]
pub(crate) struct Stress {
    pub(crate) name: &'static str,
    pub(crate) kind: ScenarioKind,
    pub(crate) reach: Reachability,
    /// The largest difference of the servers' clocks.
    pub(crate) off_ms: u64,
    /// The clocks run at the same rate.
    pub(crate) one_rate: bool,
    /// An operator has raised the fence far above all clocks, so tokens are counted one by one.
    pub(crate) raised: bool,
    /// The longest lease. A quarantine is a quarter longer.
    pub(crate) max_lease_s: u64,
    pub(crate) leases_s: &'static [u64],
    pub(crate) names: &'static [&'static str],
    /// The percentage of dropped attempts, and of guards held for seconds.
    pub(crate) drops: u64,
    pub(crate) long: u64,
    /// The time between two faults.
    pub(crate) every_ms: (u64, u64),
    pub(crate) faults: &'static [Fault],
    /// The percentage of faults that hit a holder, if there is one.
    pub(crate) holders: u64,
    /// The server that faults hit, if not a random one.
    pub(crate) node: Option<usize>,
    /// How long clients are paused, and by how much clocks are set.
    pub(crate) stands_ms: (u64, u64),
    pub(crate) late: Option<DelayedRequests>,
    /// The timeout of one server.
    pub(crate) patience_ms: u64,
}

/// The base of the stressed worlds.
const WARM: Stress = Stress {
    name: "",
    kind: ScenarioKind::Tame,
    reach: Reachability::All,
    off_ms: 100,
    one_rate: false,
    raised: false,
    max_lease_s: 10,
    leases_s: &[1, 2, 5, 10],
    names: &["m1"],
    drops: 10,
    long: 20,
    every_ms: (50, 500),
    faults: &[],
    holders: 70,
    node: None,
    stands_ms: (200, 4_000),
    late: None,
    patience_ms: 200,
};

/// The server in the middle loses its data again and again, and the tokens are far above its clock.
pub(crate) const FORGETFUL_MIDDLE: Stress = Stress {
    name: "forgetful-middle",
    reach: Reachability::Halves,
    raised: true,
    max_lease_s: 1,
    leases_s: &[1],
    long: 2,
    every_ms: (1_500, 3_000),
    faults: &[Fault::Flush],
    node: Some(2),
    ..WARM
};

/// The server in the middle loses its data, and a report that its quarantine is over is late: by
/// then it may have lost its data once more.
pub(crate) const LATE_RECOVERY: Stress = Stress {
    name: "late-recovery",
    reach: Reachability::Ends,
    max_lease_s: 4,
    leases_s: &[4],
    long: 90,
    every_ms: (50, 700),
    faults: &[Fault::Flush, Fault::Kill, Fault::Kill],
    holders: 0,
    node: Some(2),
    late: Some(DelayedRequests { which: ends_quarantine, percent: 60, ms: (500, 8_000) }),
    ..WARM
};

/// The server in the middle loses its data, and its clock is set forward in its quarantine.
pub(crate) const CLOCK_OF_THE_WAIT: Stress = Stress {
    name: "clock-of-the-wait",
    reach: Reachability::Halves,
    max_lease_s: 4,
    leases_s: &[4],
    long: 80,
    every_ms: (50, 700),
    faults: &[Fault::Flush, Fault::LeapInWait, Fault::LeapInWait],
    node: Some(2),
    ..WARM
};

/// The server in the middle is restored from an old copy.
pub(crate) const OLD_COPIES: Stress = Stress {
    name: "old-copies",
    reach: Reachability::Halves,
    max_lease_s: 4,
    leases_s: &[4],
    long: 80,
    every_ms: (50, 1_000),
    faults: &[Fault::Snapshot, Fault::Crash, Fault::Crash],
    node: Some(2),
    ..WARM
};

/// The append-only file of the server in the middle was switched off; it restarts with the old
/// file.
pub(crate) const SWITCHED_OFF: Stress = Stress {
    name: "switched-off",
    every_ms: (500, 2_500),
    faults: &[Fault::SwitchOff],
    ..OLD_COPIES
};

/// One server belongs to another set from the first fault on.
pub(crate) const ODD_SERVER: Stress = Stress {
    name: "odd-server",
    every_ms: (200, 2_000),
    faults: &[Fault::Dump, Fault::Cut, Fault::Stall, Fault::Kill],
    ..WARM
};

/// Servers are replaced, and the old ones still run for existing connections.
pub(crate) const REPLACED_MIDDLE: Stress = Stress {
    name: "replaced-middle",
    reach: Reachability::Middle,
    max_lease_s: 1,
    leases_s: &[1],
    names: &["m1", "m2"],
    long: 80,
    every_ms: (200, 2_500),
    faults: &[Fault::Replace, Fault::Cut, Fault::Cut],
    node: Some(2),
    ..WARM
};

/// The address of the server in the middle leads to a blank server and back, mostly while the
/// server is in quarantine.
pub(crate) const DETOUR: Stress = Stress {
    name: "detour",
    reach: Reachability::Halves,
    max_lease_s: 4,
    leases_s: &[4],
    long: 80,
    every_ms: (100, 1_000),
    faults: &[Fault::Flush, Fault::Detour, Fault::Detour, Fault::Rejoin],
    node: Some(2),
    ..WARM
};

/// The server in the middle is restored from an old copy, and loses its data again in its
/// quarantine, or another one does.
pub(crate) const SECOND_LOSS: Stress = Stress {
    name: "second-loss",
    reach: Reachability::Halves,
    max_lease_s: 4,
    leases_s: &[4],
    long: 80,
    every_ms: (50, 1_000),
    faults: &[Fault::Snapshot, Fault::Snapshot, Fault::Crash, Fault::Crash, Fault::LoseAgain],
    node: Some(2),
    ..WARM
};

/// All servers but the one in the middle lose their data, and that one is silent when their
/// quarantine begins or ends. The tokens are far above all clocks.
pub(crate) const SILENT_SURVIVOR: Stress = Stress {
    name: "silent-survivor",
    kind: ScenarioKind::Wild,
    reach: Reachability::Halves,
    raised: true,
    max_lease_s: 1,
    leases_s: &[1],
    names: &["m1", "m2"],
    long: 2,
    every_ms: (50, 500),
    faults: &[Fault::FlushAllButOne, Fault::SilentSurvivor],
    node: Some(2),
    ..WARM
};

/// Leases end early since clocks are set, and tokens are counted one by one, at different rates.
pub(crate) const LEAPING_CLOCKS: Stress = Stress {
    name: "leaping-clocks",
    kind: ScenarioKind::Clocks,
    reach: Reachability::Threes,
    raised: true,
    leases_s: &[1, 2],
    every_ms: (5, 60),
    faults: &[Fault::SetClock, Fault::SetClock, Fault::SetClock, Fault::Revoke],
    stands_ms: (1_000, 3_000),
    late: Some(DelayedRequests { which: writes_back, percent: 60, ms: (5, 150) }),
    ..WARM
};

/// Leases are healed late, by clients that may be gone. Votes are missing, since requests to the
/// server in the middle are lost. When a healing arrives, its lease may be over or released, and
/// the next holder may need that vote.
pub(crate) const LATE_HEALING: Stress = Stress {
    name: "late-healing",
    reach: Reachability::Middle,
    max_lease_s: 4,
    leases_s: &[1, 4],
    long: 80,
    every_ms: (200, 2_000),
    faults: &[Fault::Kill, Fault::Kill, Fault::Stall],
    node: Some(2),
    late: Some(DelayedRequests { which: heals, percent: 90, ms: (200, 4_000) }),
    ..WARM
};

/// All servers lose their data at once and are vouched for at once. Their clocks differ by almost
/// the second that tokens may be ahead, and run at one rate, so the difference stays. Between two
/// losses more time passes than that difference.
pub(crate) const ALL_FORGET: Stress = Stress {
    name: "all-forget",
    kind: ScenarioKind::Wild,
    reach: Reachability::Halves,
    off_ms: 480,
    one_rate: true,
    names: &["m1", "m2"],
    long: 2,
    every_ms: (2_500, 5_000),
    faults: &[Fault::FlushAll],
    ..WARM
};

/// Answers are slow, and holders are paused until their lease is over.
pub(crate) const SLOW_ANSWERS: Stress = Stress {
    name: "slow-answers",
    leases_s: &[1],
    drops: 0,
    long: 60,
    every_ms: (100, 500),
    faults: &[Fault::Slow, Fault::StandStill, Fault::StandStill, Fault::StandStill],
    holders: 95,
    stands_ms: (1_000, 3_000),
    ..WARM
};

pub(crate) const ALL: [Stress; 14] = [
    SLOW_ANSWERS,
    FORGETFUL_MIDDLE,
    LATE_RECOVERY,
    CLOCK_OF_THE_WAIT,
    OLD_COPIES,
    SWITCHED_OFF,
    ODD_SERVER,
    REPLACED_MIDDLE,
    DETOUR,
    SECOND_LOSS,
    SILENT_SURVIVOR,
    LEAPING_CLOCKS,
    LATE_HEALING,
    ALL_FORGET,
];

/// The names of stressed worlds are among those that are checked for orphans.
const _: () = assert!(NAMES.len() > 2);

fn has(frame: &Frame, word: &[u8]) -> bool {
    frame.words().any(|one| one == word)
}

/// A report that all of a quarantine has passed.
fn ends_quarantine(frame: &Frame) -> bool {
    let number = |at: usize| std::str::from_utf8(&frame[at]).ok()?.parse::<u64>().ok();
    has(frame, b"waited") && number(frame.len() - 2) <= number(frame.len() - 1)
}

/// A record of another server: only there a token is at this position, followed by a lease.
fn heals(frame: &Frame) -> bool {
    frame.len() == 7 && frame[5].len() > 104 && frame.is_script()
}

/// A lease id and a token of 16 digits.
fn writes_back(frame: &Frame) -> bool {
    frame.len() == 7 && frame.is_script() && frame[5].len() == 32 && frame[6].len() == 16
}
