//! The state that one node keeps of the set that it belongs to, and how it answers.
//!
//! This is the executable definition of the node's side: the scripts of a store must answer as it
//! does. [`super::register`] is that of a single name. A node does not decide who else belongs to
//! the set: it accepts commands in the order of epochs, and compares.
//!
//! - N1: a node votes only in the state `Voting`, and only for a request that names its marker and
//!   the stamp of its configuration.
//! - N2: a configuration is replaced only by a later epoch of the same set, and only by a command
//!   that names the configuration which it replaces.
//! - N3: a node whose marker has changed is treated as one that has lost data, even if its store
//!   flushes each write. It takes a new id. It votes again only after the others have agreed to
//!   that id, its quarantine has ended, and it has received a floor.
//! - N4: every grant is above the floor, whatever the counters of the names say. For a node that
//!   was restored from an old copy has old counters.
//! - N5: a quarantine ends only when clients have measured all of it with their monotonic clocks.
//!   Each client reports how much was left when it read the node, and how long ago that was. The
//!   node keeps the smallest remainder that follows. So no moment counts twice, and no client's
//!   time is lost to another's. The clock of the node plays no part.

use std::time::Duration;

use crate::quorum::SKEW;
use crate::quorum::configuration::{Configuration, NodeId, Stamp};

/// Identifies one run of a node's store: it changes at each restart. For Redis, its `run_id`.
pub type Marker = String;

/// Whether a node votes, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemberState {
    /// The node has an id and belongs to no set.
    Blank,
    /// The node accepted an initial configuration, which other nodes may not have accepted yet.
    Proposed,
    /// The node votes.
    Voting,
    /// The node lost its data, or is new, and does not vote until it is readmitted.
    Recovering,
    /// The node's slot was given to another node.
    Replaced,
}

/// The time in which a recovering node does not vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quarantine {
    /// How much of it no client has measured yet, in microseconds.
    pub left: u64,
    /// The floor is taken from the clock as well, because no majority has kept its data.
    pub by_time: bool,
}

/// The state that a node keeps beside its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuorumNode {
    pub(super) marker: Marker,
    pub(super) id: NodeId,
    pub(super) previous_id: Option<NodeId>,
    pub(super) state: MemberState,
    pub(super) configuration: Option<Configuration>,
    pub(super) quarantine: Option<Quarantine>,
    pub(super) largest: u64,
    pub(super) floor: u64,
    pub(super) previous_marker: Option<Marker>,
}

/// A node's answer about its own state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeReport {
    /// The node's id.
    pub id: NodeId,
    /// The node's id before it lost data, if it kept that.
    pub previous_id: Option<NodeId>,
    /// Whether the node votes.
    pub state: MemberState,
    /// The configuration that the node has.
    pub configuration: Option<Configuration>,
    /// The rest of the quarantine, zero when it is over, and whether no majority of the others has
    /// kept its data. `None` until the others have agreed to the node.
    pub quarantine: Option<(Duration, bool)>,
    /// How much of the quarantine has passed since the node's answer, by the monotonic clock of the
    /// reading client. Filled in by the client.
    pub measured: Duration,
    /// The id of the member that the reading client last saw at this address. Filled in by the
    /// client.
    pub last_seen_id: Option<NodeId>,
    /// The largest token that the node knows of.
    pub largest: u64,
}

/// Why a node gives no vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VoteRefusal {
    /// The request named another marker: the node may have lost data, or is another one.
    Marker,
    /// The node is in a state in which it does not vote.
    State(MemberState),
    /// The node has another configuration.
    Configuration,
}

/// A command of a client that maintains a set to one of its nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeCommand {
    /// Accept an initial configuration, in place of another initial one or of none.
    Propose {
        /// The stamp of the configuration that it replaces.
        from: Option<Stamp>,
        /// The configuration.
        configuration: Configuration,
    },
    /// All nodes have accepted the configuration: vote. With a `quarantine`, only after that time:
    /// no operator has confirmed that these nodes are new, so they may have been in use before.
    Activate {
        /// The stamp of the accepted configuration.
        stamp: Stamp,
        /// How long to wait first.
        quarantine: Option<Duration>,
    },
    /// Accept a later configuration.
    Adopt {
        /// The stamp of the configuration that it replaces.
        from: Option<Stamp>,
        /// The configuration.
        configuration: Configuration,
    },
    /// The others have agreed to the node: begin the quarantine.
    BeginQuarantine {
        /// The id that the node took when it lost its data.
        episode: NodeId,
        /// The stamp of the agreed configuration.
        stamp: Stamp,
        /// How long it lasts.
        quarantine: Duration,
        /// Whether no majority has kept its data.
        by_time: bool,
    },
    /// A client has measured this much of the quarantine.
    ReportWait {
        /// The id that the node took when it lost its data.
        episode: NodeId,
        /// The stamp of the agreed configuration.
        stamp: Stamp,
        /// Which quarantine of the episode: see [`NodeCommand::BeginQuarantine`].
        by_time: bool,
        /// How much was left when the client read the node.
        left: Duration,
        /// How much time has passed since.
        passed: Duration,
    },
    /// The quarantine is over: vote, with tokens above this floor.
    Recover {
        /// The id that the node took when it lost its data.
        episode: NodeId,
        /// The stamp of the agreed configuration.
        stamp: Stamp,
        /// The largest token of the nodes that have kept their data.
        floor: u64,
    },
    /// An operator confirms that no lock is held on these nodes: ends a quarantine that is there
    /// only because no majority has kept its data.
    Vouch {
        /// The id that the node took when it lost its data.
        episode: NodeId,
        /// The stamp of the agreed configuration.
        stamp: Stamp,
    },
    /// An operator readmits a node whose slot was given to another: it counts as a new node.
    Readmit {
        /// The node's id.
        id: NodeId,
        /// The node's new id.
        fresh: NodeId,
    },
}

impl QuorumNode {
    /// Creates a node without data. `fresh` is its id.
    pub fn blank(marker: Marker, fresh: NodeId) -> QuorumNode {
        QuorumNode {
            marker,
            id: fresh,
            previous_id: None,
            state: MemberState::Blank,
            configuration: None,
            quarantine: None,
            largest: 0,
            floor: 0,
            previous_marker: None,
        }
    }

    /// Handles a handshake that names the marker of the current run. If the marker has changed, the
    /// node has lost some data, and it takes the id `fresh`. A marker never comes back, so the
    /// previous one means that two servers answer in turn under one address. In that case nothing
    /// changes and the result is `false`.
    pub fn handshake(&mut self, marker: &str, fresh: NodeId) -> bool {
        if self.marker == marker {
            return true;
        }
        if self.state == MemberState::Blank {
            marker.clone_into(&mut self.marker);
            self.id = fresh;
            return true;
        }
        if self.previous_marker.as_deref() == Some(marker) {
            return false;
        }
        if self.configuration.as_ref().is_some_and(|known| known.has(self.id)) {
            self.previous_id = Some(self.id);
        }
        self.previous_marker = Some(std::mem::replace(&mut self.marker, marker.to_owned()));
        (self.id, self.state, self.quarantine) = (fresh, MemberState::Recovering, None);
        true
    }

    /// Returns the node's answer about its own state.
    pub fn report(&self) -> NodeReport {
        let left = |begun: Quarantine| (Duration::from_micros(begun.left), begun.by_time);
        NodeReport {
            id: self.id,
            previous_id: self.previous_id,
            state: self.state,
            configuration: self.configuration.clone(),
            quarantine: self.quarantine.map(left),
            measured: Duration::ZERO,
            last_seen_id: None,
            largest: self.largest,
        }
    }

    /// Checks that the node votes for a request that names this marker and stamp.
    ///
    /// # Errors
    /// The reason why it does not vote. The request may then change nothing.
    pub fn admit(&self, marker: &str, stamp: Stamp) -> Result<(), VoteRefusal> {
        if self.marker != marker {
            return Err(VoteRefusal::Marker);
        }
        if self.state != MemberState::Voting {
            return Err(VoteRefusal::State(self.state));
        }
        match &self.configuration {
            Some(mine) if mine.stamp() == stamp => Ok(()),
            _ => Err(VoteRefusal::Configuration),
        }
    }

    /// Returns the number that the next token of a name must exceed, apart from the name's counter
    /// `last`: the floor, or the largest token of the node if the counter was deleted (`last` is
    /// 0).
    pub fn floor(&self, last: u64) -> u64 {
        if last == 0 { self.largest } else { self.floor }
    }

    /// Records a token that was granted or seen here.
    pub fn raise(&mut self, token: u64) {
        self.largest = self.largest.max(token);
    }

    /// Raises the floor: every later grant is above it.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        self.raise(floor);
    }

    /// Raises the floor above every token granted until now, as far as clocks can show.
    fn raise_floor_by_time(&mut self, now: u64) {
        self.raise_floor(now.saturating_add(micros(SKEW)));
    }

    /// Applies a command, at `now` by the node's own clock. Returns `false` if the command does not
    /// match the node's state; nothing has changed then.
    pub fn apply(&mut self, marker: &str, command: NodeCommand, now: u64) -> bool {
        if self.marker != marker {
            return false;
        }
        match command {
            NodeCommand::Propose { from, configuration } => self.propose(from, configuration),
            NodeCommand::Activate { stamp, quarantine } => self.activate(stamp, quarantine, now),
            NodeCommand::Adopt { from, configuration } => self.adopt(from, configuration),
            NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time } => {
                let fits = self.is_episode(episode, stamp)
                    && self.quarantine.is_none_or(|begun| by_time && !begun.by_time);
                if fits {
                    self.quarantine = Some(Quarantine { left: micros(quarantine), by_time });
                }
                fits
            }
            NodeCommand::ReportWait { episode, stamp, by_time, left, passed } => {
                let rest = micros(left).saturating_sub(micros(passed));
                let lowers = |begun: Quarantine| begun.by_time == by_time && rest < begun.left;
                let fits = self.is_episode(episode, stamp) && self.quarantine.is_some_and(lowers);
                if fits {
                    self.quarantine = Some(Quarantine { left: rest, by_time });
                }
                fits
            }
            NodeCommand::Recover { episode, stamp, floor } => {
                let over = self.quarantine.filter(|begun| begun.left == 0);
                let Some(begun) = over.filter(|_| self.is_episode(episode, stamp)) else {
                    return false;
                };
                self.raise_floor(floor);
                if begun.by_time {
                    self.raise_floor_by_time(now);
                }
                (self.state, self.quarantine, self.previous_id) = (MemberState::Voting, None, None);
                true
            }
            NodeCommand::Vouch { episode, stamp } => self.vouch(episode, stamp),
            NodeCommand::Readmit { id, fresh } => {
                let fits = self.state == MemberState::Replaced && self.id == id;
                if fits {
                    (self.id, self.state, self.previous_id, self.quarantine) =
                        (fresh, MemberState::Recovering, None, None);
                }
                fits
            }
        }
    }

    /// Ends a quarantine that is there only because no majority has kept its data.
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
        self.state == MemberState::Recovering
            && self.id == episode
            && agreed.is_some_and(|mine| mine.stamp() == stamp)
    }

    fn propose(&mut self, from: Option<Stamp>, configuration: Configuration) -> bool {
        let first = matches!(self.state, MemberState::Blank | MemberState::Proposed);
        let fits = first && self.stamp() == from && configuration.has(self.id);
        if fits {
            (self.state, self.configuration) = (MemberState::Proposed, Some(configuration));
        }
        fits
    }

    fn activate(&mut self, stamp: Stamp, quarantine: Option<Duration>, now: u64) -> bool {
        let fits = self.state == MemberState::Proposed && self.stamp() == Some(stamp);
        if fits {
            self.quarantine =
                quarantine.map(|quarantine| Quarantine { left: micros(quarantine), by_time: true });
            self.state = if self.quarantine.is_some() {
                MemberState::Recovering
            } else {
                MemberState::Voting
            };
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
        self.state = match self.state {
            MemberState::Blank | MemberState::Recovering => MemberState::Recovering,
            MemberState::Replaced => MemberState::Replaced,
            MemberState::Voting | MemberState::Proposed if !configuration.has(self.id) => {
                MemberState::Replaced
            }
            MemberState::Voting => MemberState::Voting,
            MemberState::Proposed => MemberState::Proposed,
        };
        self.configuration = Some(configuration);
        true
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
