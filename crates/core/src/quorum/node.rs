//! What one node keeps of the set that it belongs to, and how it answers.
//!
//! The executable definition of the node's side, beside [`super::register`] for a single name: what
//! a node's store runs must answer as this does. A node has no rules of its own about who else
//! belongs: it takes what it is told, in the order of epochs, and compares.
//!
//! - N1: a vote is given only while the gate is open, to who knows the node's marker and the stamp
//!   of its configuration.
//! - N2: a configuration is replaced only by a later epoch of the same set, and only by who knows
//!   which one it replaces.
//! - N3: a node whose marker is another than it was has lost its memory, however its store was
//!   configured: it takes a new id, and its gate opens again only after it was agreed to, has
//!   waited, and was told a floor.
//! - N4: what is granted is above the floor, whatever the counters of the names say: a node that
//!   was restored from an old copy has counters, and they are old.
//! - N5: a wait ends only when clients have measured all of it with their monotonic clocks. Each
//!   reports how much was left when it looked and how long ago that was, and the node keeps the
//!   least rest that follows. So no moment counts twice, and no client's time is lost to another's.
//!   The clock of the node plays no part.

use std::time::Duration;

use crate::quorum::SKEW;
use crate::quorum::configuration::{Configuration, NodeId, Stamp};

/// Tells one run of a node's store from the next.
pub type Marker = String;

/// Whether a node votes, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// It has an id and belongs to nothing.
    Blank,
    /// It has accepted a first configuration, which not all others may have accepted yet.
    Proposed,
    /// It votes.
    Open,
    /// It has lost its memory, and is to be taken in again.
    Forgot,
    /// Its place was given to another node.
    Out,
}

/// How a node that forgot waits until it may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quarantine {
    /// How much of the wait no client has measured yet, in microseconds.
    pub left: u64,
    /// No majority of the others remembers: its floor is taken from the clock as well.
    pub by_time: bool,
}

/// What a node keeps beside its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub(super) marker: Marker,
    pub(super) id: NodeId,
    pub(super) was: Option<NodeId>,
    pub(super) gate: Gate,
    pub(super) configuration: Option<Configuration>,
    pub(super) quarantine: Option<Quarantine>,
    pub(super) largest: u64,
    pub(super) floor: u64,
    /// The marker before this one.
    pub(super) former: Option<Marker>,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View {
    /// What it calls itself.
    pub id: NodeId,
    /// What it called itself before it lost its memory, if it knows.
    pub was: Option<NodeId>,
    /// Whether it votes.
    pub gate: Gate,
    /// What it belongs to.
    pub configuration: Option<Configuration>,
    /// How long it still waits, once it was agreed to; zero when that is over. And whether no
    /// majority of the others remembers.
    pub quarantine: Option<(Duration, bool)>,
    /// By how much less is left, as the client that looks has measured with its monotonic clock
    /// since any answer of the node during this wait. The node itself does not know.
    pub measured: Duration,
    /// The id of the member that the client that looks last saw at this address. The node itself
    /// does not know.
    pub before: Option<NodeId>,
    /// The largest token that it knows of.
    pub largest: u64,
}

/// Why a node gives no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Barred {
    /// It was asked under another marker: it may have lost its memory, or is another node.
    Marker,
    /// Its gate is not open.
    Gate(Gate),
    /// It has another configuration.
    Configuration,
}

/// What the members of a set tell a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Told {
    /// Accept a first configuration, instead of another first one or of none.
    Propose {
        /// What it replaces.
        from: Option<Stamp>,
        /// What it is.
        configuration: Configuration,
    },
    /// All have accepted it: vote. `quarantine`: but only after this long, as nobody said that
    /// these nodes are new, so they may have been in use before.
    Activate {
        /// What was accepted.
        stamp: Stamp,
        /// How long to wait first.
        quarantine: Option<Duration>,
    },
    /// Take a later configuration.
    Adopt {
        /// What it replaces.
        from: Option<Stamp>,
        /// What it is.
        configuration: Configuration,
    },
    /// The others have agreed to you: wait.
    Begin {
        /// What the node calls itself since it forgot.
        episode: NodeId,
        /// What was agreed on.
        stamp: Stamp,
        /// How long.
        quarantine: Duration,
        /// Whether no majority remembers.
        by_time: bool,
    },
    /// So much of the wait has passed, as a client measured.
    Waited {
        /// What the node calls itself since it forgot.
        episode: NodeId,
        /// What was agreed on.
        stamp: Stamp,
        /// Which of the waits of the episode: see [`Told::Begin`].
        by_time: bool,
        /// How much was left when the client looked.
        left: Duration,
        /// How much has passed since.
        passed: Duration,
    },
    /// The wait is over: vote, above this floor.
    Recover {
        /// What the node calls itself since it forgot.
        episode: NodeId,
        /// What was agreed on.
        stamp: Stamp,
        /// The largest token that those who remember know of.
        floor: u64,
    },
    /// An operator vouches for it that nothing is held on these nodes from before: a wait that
    /// is there only because no majority remembers is over.
    Vouch {
        /// What the node calls itself since it forgot.
        episode: NodeId,
        /// What was agreed on.
        stamp: Stamp,
    },
    /// An operator takes a node in again whose place was given to another: it is a newcomer.
    Readmit {
        /// What the node calls itself.
        id: NodeId,
        /// What it calls itself from now on.
        fresh: NodeId,
    },
}

impl Node {
    /// Makes a node that knows nothing. `fresh` is what it calls itself.
    pub fn blank(marker: Marker, fresh: NodeId) -> Node {
        Node {
            marker,
            id: fresh,
            was: None,
            gate: Gate::Blank,
            configuration: None,
            quarantine: None,
            largest: 0,
            floor: 0,
            former: None,
        }
    }

    /// Notes under which marker it is greeted. If that is another than before, it has lost its
    /// memory, or some of it: it takes a new id. A marker never comes back, so the one before this
    /// one means two servers that answer in turn under one address: `false`, nothing has changed.
    pub fn greet(&mut self, marker: &str, fresh: NodeId) -> bool {
        if self.marker == marker {
            return true;
        }
        if self.gate == Gate::Blank {
            marker.clone_into(&mut self.marker);
            self.id = fresh;
            return true;
        }
        if self.former.as_deref() == Some(marker) {
            return false;
        }
        if self.configuration.as_ref().is_some_and(|known| known.has(self.id)) {
            self.was = Some(self.id);
        }
        self.former = Some(std::mem::replace(&mut self.marker, marker.to_owned()));
        (self.id, self.gate, self.quarantine) = (fresh, Gate::Forgot, None);
        true
    }

    /// Returns what the node says of itself.
    pub fn view(&self) -> View {
        let left = |begun: Quarantine| (Duration::from_micros(begun.left), begun.by_time);
        View {
            id: self.id,
            was: self.was,
            gate: self.gate,
            configuration: self.configuration.clone(),
            quarantine: self.quarantine.map(left),
            measured: Duration::ZERO,
            before: None,
            largest: self.largest,
        }
    }

    /// Tells whether the node votes for who asks.
    ///
    /// # Errors
    /// Why not. Nothing may be changed then.
    pub fn admit(&self, marker: &str, stamp: Stamp) -> Result<(), Barred> {
        if self.marker != marker {
            return Err(Barred::Marker);
        }
        if self.gate != Gate::Open {
            return Err(Barred::Gate(self.gate));
        }
        match &self.configuration {
            Some(mine) if mine.stamp() == stamp => Ok(()),
            _ => Err(Barred::Configuration),
        }
    }

    /// Returns what a counter that stands at `last` is counted on above of: the floor, and where it
    /// was forgotten (`last` is 0) all that is known of.
    pub fn floor(&self, last: u64) -> u64 {
        if last == 0 { self.largest } else { self.floor }
    }

    /// Notes a token that was given or heard of here.
    pub fn raise(&mut self, token: u64) {
        self.largest = self.largest.max(token);
    }

    /// Raises the floor: all that is granted from now on is above it.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.raise(floor);
    }

    /// Raises it above all that was given by now, as far as clocks can tell.
    fn raise_floor_by_time(&mut self, now: u64) {
        self.raise_floor(now.saturating_add(micros(SKEW)));
    }

    /// Carries out what it is told, at `now` by its own clock; `false` when it does not fit how
    /// things stand: nothing has changed then.
    pub fn told(&mut self, marker: &str, told: Told, now: u64) -> bool {
        if self.marker != marker {
            return false;
        }
        match told {
            Told::Propose { from, configuration } => self.propose(from, configuration),
            Told::Activate { stamp, quarantine } => self.activate(stamp, quarantine, now),
            Told::Adopt { from, configuration } => self.adopt(from, configuration),
            Told::Begin { episode, stamp, quarantine, by_time } => {
                let fits = self.is_episode(episode, stamp)
                    && self.quarantine.is_none_or(|begun| by_time && !begun.by_time);
                if fits {
                    self.quarantine = Some(Quarantine { left: micros(quarantine), by_time });
                }
                fits
            }
            Told::Waited { episode, stamp, by_time, left, passed } => {
                let rest = micros(left).saturating_sub(micros(passed));
                let lowers = |begun: Quarantine| begun.by_time == by_time && rest < begun.left;
                let fits = self.is_episode(episode, stamp) && self.quarantine.is_some_and(lowers);
                if fits {
                    self.quarantine = Some(Quarantine { left: rest, by_time });
                }
                fits
            }
            Told::Recover { episode, stamp, floor } => {
                let over = self.quarantine.filter(|begun| begun.left == 0);
                let Some(begun) = over.filter(|_| self.is_episode(episode, stamp)) else {
                    return false;
                };
                self.raise_floor(floor);
                if begun.by_time {
                    self.raise_floor_by_time(now);
                }
                (self.gate, self.quarantine, self.was) = (Gate::Open, None, None);
                true
            }
            Told::Vouch { episode, stamp } => self.vouch(episode, stamp),
            Told::Readmit { id, fresh } => {
                let fits = self.gate == Gate::Out && self.id == id;
                if fits {
                    (self.id, self.gate, self.was, self.quarantine) =
                        (fresh, Gate::Forgot, None, None);
                }
                fits
            }
        }
    }

    /// Ends a wait that only the clock asks for.
    fn vouch(&mut self, episode: NodeId, stamp: Stamp) -> bool {
        if !self.is_episode(episode, stamp) {
            return false;
        }
        let begun = self.quarantine.as_mut().filter(|begun| begun.by_time && begun.left > 0);
        begun.map(|begun| begun.left = 0).is_some()
    }

    fn stamp(&self) -> Option<Stamp> {
        self.configuration.as_ref().map(Configuration::stamp)
    }

    fn is_episode(&self, episode: NodeId, stamp: Stamp) -> bool {
        let agreed = self.configuration.as_ref().filter(|mine| mine.has(episode));
        self.gate == Gate::Forgot
            && self.id == episode
            && agreed.is_some_and(|mine| mine.stamp() == stamp)
    }

    fn propose(&mut self, from: Option<Stamp>, configuration: Configuration) -> bool {
        let first = matches!(self.gate, Gate::Blank | Gate::Proposed);
        let fits = first && self.stamp() == from && configuration.has(self.id);
        if fits {
            (self.gate, self.configuration) = (Gate::Proposed, Some(configuration));
        }
        fits
    }

    fn activate(&mut self, stamp: Stamp, quarantine: Option<Duration>, now: u64) -> bool {
        let fits = self.gate == Gate::Proposed && self.stamp() == Some(stamp);
        if fits {
            self.quarantine =
                quarantine.map(|quarantine| Quarantine { left: micros(quarantine), by_time: true });
            self.gate = if self.quarantine.is_some() { Gate::Forgot } else { Gate::Open };
            self.raise_floor_by_time(now);
        }
        fits
    }

    fn adopt(&mut self, from: Option<Stamp>, configuration: Configuration) -> bool {
        let later = self.configuration.as_ref().is_none_or(|mine| {
            mine.set() == configuration.set() && mine.epoch() < configuration.epoch()
        });
        if self.stamp() != from || !later {
            return false;
        }
        self.gate = match self.gate {
            Gate::Blank | Gate::Forgot => Gate::Forgot,
            Gate::Out => Gate::Out,
            Gate::Open | Gate::Proposed if !configuration.has(self.id) => Gate::Out,
            Gate::Open => Gate::Open,
            Gate::Proposed => Gate::Proposed,
        };
        self.configuration = Some(configuration);
        true
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
