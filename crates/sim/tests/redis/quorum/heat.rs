//! Worlds that are hotter than those that are drawn: each is tuned to rules that are needed too
//! seldom there. They are drawn from seeds like all others, keep the same promises, and are played
//! without a planted bug too.

use super::client::NAMES;
use super::faults::Fault;
use super::run::Kind;
use crate::world::frame::Frame;
use crate::world::tasks::Process;

/// Which servers the clients reach. Operators reach all, and in peace everybody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    All,
    /// Two clients reach the first three and one the last three: names are had by all of the three
    /// only, and what one server in the middle says decides. One reaches all and wants no name.
    Halves,
    /// One client for each half, and two that reach all and want no name.
    Ends,
    /// The same, and all want names.
    Middle,
    /// Each client reaches other three, one reaches all: what the servers know differs.
    Threes,
}

impl Reach {
    /// Tells whether a process reaches a server, of so many clients.
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
            Reach::All => true,
            Reach::Ends | Reach::Middle if slot == 0 => true,
            Reach::Halves | Reach::Ends | Reach::Middle if slot == clients - 2 => node >= 2,
            Reach::Halves | Reach::Ends | Reach::Middle => node <= 2,
            Reach::Threes => THREES[process as usize % THREES.len()].contains(&node),
        }
    }
}

impl Reach {
    /// Tells whether a process wants names, of so many clients.
    pub(crate) fn wants(self, process: Process, clients: u64) -> bool {
        let slot = process % clients;
        match self {
            Reach::All | Reach::Threes | Reach::Middle => true,
            Reach::Halves => slot != clients - 1,
            Reach::Ends => slot != clients - 1 && slot != 0,
        }
    }
}

/// Requests of some sort that are late more often than others.
#[derive(Clone, Copy)]
pub(crate) struct Late {
    pub(crate) which: fn(&Frame) -> bool,
    /// How many of a hundred.
    pub(crate) percent: u64,
    /// By how much, at least and at most.
    pub(crate) ms: (u64, u64),
}

/// What makes a world hot.
#[derive(Clone, Copy)]
pub(crate) struct Heat {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) reach: Reach,
    /// How far apart the servers' clocks are.
    pub(crate) off_ms: u64,
    /// They run at one rate.
    pub(crate) one_rate: bool,
    /// An operator has raised the fence far above all clocks: tokens are counted one by one.
    pub(crate) raised: bool,
    /// The longest lease, and the wait of whoever forgot.
    pub(crate) max_lease_s: u64,
    pub(crate) leases_s: &'static [u64],
    pub(crate) names: &'static [&'static str],
    /// How many of a hundred attempts are dropped, and guards held for seconds.
    pub(crate) drops: u64,
    pub(crate) long: u64,
    /// How long after one fault the next comes.
    pub(crate) every_ms: (u64, u64),
    pub(crate) faults: &'static [Fault],
    /// How many of a hundred meet a client that holds something, where there is one.
    pub(crate) holders: u64,
    /// The server that faults meet, if not any.
    pub(crate) node: Option<usize>,
    /// For how long clients stand still, and by how much clocks are set.
    pub(crate) stands_ms: (u64, u64),
    pub(crate) late: Option<Late>,
    /// How long one server may take.
    pub(crate) patience_ms: u64,
}

/// A hot world of nothing special.
const WARM: Heat = Heat {
    name: "",
    kind: Kind::Tame,
    reach: Reach::All,
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

/// The server in the middle forgets again and again, and what tokens it should know of is far
/// above its clock.
pub(crate) const FORGETFUL_MIDDLE: Heat = Heat {
    name: "forgetful-middle",
    reach: Reach::Halves,
    raised: true,
    max_lease_s: 1,
    leases_s: &[1],
    long: 2,
    every_ms: (1_500, 3_000),
    faults: &[Fault::Flush],
    node: Some(2),
    ..WARM
};

/// The server in the middle forgets, and who tells it to vote again is late: it may have forgotten
/// once more by then.
pub(crate) const LATE_RECOVERY: Heat = Heat {
    name: "late-recovery",
    reach: Reach::Ends,
    max_lease_s: 4,
    leases_s: &[4],
    long: 90,
    every_ms: (50, 700),
    faults: &[Fault::Flush, Fault::Kill, Fault::Kill],
    holders: 0,
    node: Some(2),
    late: Some(Late { which: recovers, percent: 60, ms: (500, 8_000) }),
    ..WARM
};

/// The server in the middle forgets, and its clock is set forward while it waits.
pub(crate) const CLOCK_OF_THE_WAIT: Heat = Heat {
    name: "clock-of-the-wait",
    reach: Reach::Halves,
    max_lease_s: 4,
    leases_s: &[4],
    long: 80,
    every_ms: (50, 700),
    faults: &[Fault::Flush, Fault::LeapInWait, Fault::LeapInWait],
    node: Some(2),
    ..WARM
};

/// The server in the middle comes back with what it knew some time ago.
pub(crate) const OLD_COPIES: Heat = Heat {
    name: "old-copies",
    reach: Reach::Halves,
    max_lease_s: 4,
    leases_s: &[4],
    long: 80,
    every_ms: (50, 1_000),
    faults: &[Fault::Snapshot, Fault::Crash, Fault::Crash],
    node: Some(2),
    ..WARM
};

/// The server in the middle wrote all down, until somebody switched that off; it comes back with
/// its file.
pub(crate) const SWITCHED_OFF: Heat = Heat {
    name: "switched-off",
    every_ms: (500, 2_500),
    faults: &[Fault::SwitchOff],
    ..OLD_COPIES
};

/// One server is of another set from the first fault on.
pub(crate) const ODD_SERVER: Heat = Heat {
    name: "odd-server",
    every_ms: (200, 2_000),
    faults: &[Fault::Dump, Fault::Cut, Fault::Stall, Fault::Kill],
    ..WARM
};

/// Servers are replaced, and those that were there live on for whoever is connected to them.
pub(crate) const REPLACED_MIDDLE: Heat = Heat {
    name: "replaced-middle",
    reach: Reach::Middle,
    max_lease_s: 1,
    leases_s: &[1],
    names: &["m1", "m2"],
    long: 80,
    every_ms: (200, 2_500),
    faults: &[Fault::Replace, Fault::Cut, Fault::Cut],
    node: Some(2),
    ..WARM
};

/// Leases end early where clocks are set, and tokens are counted one by one, at other paces.
pub(crate) const LEAPING_CLOCKS: Heat = Heat {
    name: "leaping-clocks",
    kind: Kind::Clocks,
    reach: Reach::Threes,
    raised: true,
    leases_s: &[1, 2],
    every_ms: (5, 60),
    faults: &[Fault::SetClock, Fault::SetClock, Fault::SetClock, Fault::Revoke],
    stands_ms: (1_000, 3_000),
    late: Some(Late { which: writes_back, percent: 60, ms: (5, 150) }),
    ..WARM
};

/// Leases are taken again late, by clients that may be gone.
pub(crate) const LATE_HEALING: Heat = Heat {
    name: "late-healing",
    reach: Reach::Middle,
    leases_s: &[1, 10],
    long: 60,
    every_ms: (200, 2_000),
    faults: &[Fault::Kill, Fault::Kill, Fault::Freeze],
    node: Some(2),
    late: Some(Late { which: heals, percent: 80, ms: (200, 4_000) }),
    ..WARM
};

/// All forget at once and are vouched for at once, and the clocks differ by almost the second that
/// tokens may be ahead. They run at one rate, so that it does not become more; and between two
/// forgettings more time passes than they differ by, as that second lasts for one.
pub(crate) const ALL_FORGET: Heat = Heat {
    name: "all-forget",
    kind: Kind::Wild,
    reach: Reach::Halves,
    off_ms: 480,
    one_rate: true,
    names: &["m1", "m2"],
    long: 2,
    every_ms: (2_500, 5_000),
    faults: &[Fault::FlushAll],
    ..WARM
};

/// Answers are slow, and whoever holds something stands still until its lease is over.
pub(crate) const SLOW_ANSWERS: Heat = Heat {
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

pub(crate) const ALL: [Heat; 11] = [
    SLOW_ANSWERS,
    FORGETFUL_MIDDLE,
    LATE_RECOVERY,
    CLOCK_OF_THE_WAIT,
    OLD_COPIES,
    SWITCHED_OFF,
    ODD_SERVER,
    REPLACED_MIDDLE,
    LEAPING_CLOCKS,
    LATE_HEALING,
    ALL_FORGET,
];

/// The names of hot worlds are among those that are looked at for what is left.
const _: () = assert!(NAMES.len() > 2);

fn has(frame: &Frame, word: &[u8]) -> bool {
    frame.words().any(|one| one == word)
}

fn recovers(frame: &Frame) -> bool {
    has(frame, b"recover")
}

/// A record as another server has it: nothing else has a token in its place, at the end of nothing
/// but a lease.
fn heals(frame: &Frame) -> bool {
    frame.len() == 7 && frame[5].len() > 104 && frame.is_script()
}

/// A lease id and a token of 16 digits.
fn writes_back(frame: &Frame) -> bool {
    frame.len() == 7 && frame.is_script() && frame[5].len() == 32 && frame[6].len() == 16
}
