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
//!   flushes each write. So is one that was a replica in the meantime. It takes a new id. It votes
//!   again only after the others have agreed to that id, it has received a floor, and its
//!   quarantine has ended.
//! - N4: every grant is above the floor, whatever the counters of the names say. For a node that
//!   was restored from an old copy has old counters.
//! - N5: a quarantine ends only when clients have measured all of it with their monotonic clocks.
//!   Each client reports how much was left when it read the node, and how long ago that was. The
//!   node keeps the smallest remainder that follows. So no moment counts twice, and no client's
//!   time is lost to another's. The clock of the node plays no part.
//! - N6: an id has one tenure and one quarantine. A node that receives a configuration in which its
//!   tenure is over is `Replaced`, whatever it was before and even if it was given the slot again
//!   meanwhile. It keeps nothing of its tenure. Only an operator readmits it, under a new id.
//!
//! Why N6: a quarantine covers what was granted under the node's former ids. While another node has
//! the slot, that node grants, too. A quarantine that began before does not cover these grants.

use std::time::Duration;

use crate::quorum::SKEW;
use crate::quorum::configuration::{Configuration, NodeId, Stamp};

/// Identifies one run of a node's store: it changes at each restart. For Redis, its `run_id`.
pub type Marker = String;

/// What a client presents to a node about the run of its store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// Identifies the run.
    pub marker: Marker,
    /// Of which master the store was a replica, and until when, if it was one in this run. For
    /// Redis, its `master_replid2` and `second_repl_offset`. A store that was a replica may have
    /// the data of its former master, although its run is the same.
    pub replica_until: Option<String>,
}

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
    pub(super) replica_until: Option<String>,
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
    /// The rest of the quarantine, and whether no majority of the others has kept its data. `None`
    /// until the others have agreed to the node.
    pub quarantine: Option<(Duration, bool)>,
    /// How much of the quarantine has passed since the node's answer, by the monotonic clock of the
    /// reading client. Filled in by the client.
    pub measured: Duration,
    /// The id of the member that the reading client last saw by this name. Filled in by the
    /// client.
    pub last_seen_id: Option<NodeId>,
    /// The largest token that the node knows of.
    pub largest: u64,
}

impl NodeReport {
    /// Returns the rest of the quarantine, less what the reading client has measured.
    pub fn quarantine_left(&self) -> Option<Duration> {
        let (left, _) = self.quarantine?;
        Some(left.saturating_sub(self.measured))
    }

    /// Returns whether the node's tenure is over under this configuration, which the node may not
    /// have received yet (N6).
    pub fn is_evicted(&self, current: &Configuration) -> bool {
        let tenure = self.configuration.as_ref().and_then(|known| known.member_since(self.id));
        tenure.is_some() && tenure != current.member_since(self.id)
    }
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
    /// All nodes have accepted the configuration: begin the first quarantine, and vote when it
    /// ends. These nodes may have been in use before.
    Activate {
        /// The stamp of the accepted configuration.
        stamp: Stamp,
        /// How long it lasts.
        quarantine: Duration,
    },
    /// Accept a later configuration.
    Adopt {
        /// The stamp of the configuration that it replaces.
        from: Option<Stamp>,
        /// The configuration.
        configuration: Configuration,
    },
    /// The others have agreed to the node: begin the quarantine, and vote when it ends.
    BeginQuarantine {
        /// The id that the node took when it lost its data.
        episode: NodeId,
        /// The stamp of the agreed configuration.
        stamp: Stamp,
        /// How long it lasts.
        quarantine: Duration,
        /// Whether no majority has kept its data.
        by_time: bool,
        /// The largest token of the nodes that were asked. All later tokens of the node are above.
        floor: u64,
    },
    /// A client has measured this much of the quarantine.
    ReportWait {
        /// The id that the node took when it lost its data.
        episode: NodeId,
        /// How much was left when the client read the node.
        left: Duration,
        /// How much time has passed since.
        passed: Duration,
    },
    /// An operator confirms that no lock is held on this node: ends a quarantine that is there only
    /// because no majority has kept its data.
    Vouch {
        /// The id that the node took when it lost its data.
        episode: NodeId,
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
            replica_until: None,
        }
    }

    /// Handles a handshake that names the current run. If the marker has changed, or the store was
    /// a replica since the last handshake, the node may have lost some data, and it takes the id
    /// `fresh`. A marker comes back only with the data of another store, of which this one was a
    /// replica. So without that the previous marker means that two servers answer in turn under one
    /// address. In that case nothing changes and the result is `false`.
    pub fn handshake(&mut self, run: &Run, fresh: NodeId) -> bool {
        let is_same_run = self.marker == run.marker;
        // The store forgets in time that it was a replica.
        let was_replica = run.replica_until.is_some() && run.replica_until != self.replica_until;
        if is_same_run && !was_replica {
            return true;
        }
        let is_previous_run = self.previous_marker.as_deref() == Some(run.marker.as_str());
        if is_previous_run && !was_replica {
            return false;
        }
        let is_member = self.configuration.as_ref().is_some_and(|known| known.has(self.id));
        if was_replica {
            self.replica_until.clone_from(&run.replica_until);
        }
        if !is_same_run {
            let previous_marker = std::mem::replace(&mut self.marker, run.marker.clone());
            if self.state != MemberState::Blank {
                self.previous_marker = Some(previous_marker);
            }
        }
        match self.state {
            MemberState::Blank | MemberState::Replaced => {}
            MemberState::Proposed | MemberState::Voting | MemberState::Recovering => {
                self.previous_id = Some(self.id).filter(|_| is_member).or(self.previous_id);
                self.state = MemberState::Recovering;
                self.quarantine = None;
            }
        }
        self.id = fresh;
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

    /// Applies a command, at `now` by the node's own clock. Returns `false` if the command does not
    /// match the node's state; nothing has changed then.
    pub fn apply(&mut self, marker: &str, command: NodeCommand, now: u64) -> bool {
        if self.marker != marker {
            return false;
        }
        match command {
            NodeCommand::Propose { from, configuration } => self.propose(from, configuration),
            NodeCommand::Activate { stamp, quarantine } => self.activate(stamp, quarantine),
            NodeCommand::Adopt { from, configuration } => self.adopt(from, configuration),
            NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, floor } => {
                let fits = self.is_episode(episode)
                    && self.stamp() == Some(stamp)
                    && self.quarantine.is_none();
                if fits {
                    self.quarantine = Some(Quarantine { left: micros(quarantine), by_time });
                    self.raise_floor(floor);
                }
                fits
            }
            NodeCommand::ReportWait { episode, left, passed } => {
                let rest = micros(left).saturating_sub(micros(passed));
                self.shorten(episode, rest, now)
            }
            NodeCommand::Vouch { episode } => {
                let is_by_time = self.quarantine.is_some_and(|begun| begun.by_time);
                is_by_time && self.shorten(episode, 0, now)
            }
            NodeCommand::Readmit { id, fresh } => {
                let fits = self.state == MemberState::Replaced && self.id == id;
                if fits {
                    self.id = fresh;
                    self.state = MemberState::Recovering;
                }
                fits
            }
        }
    }

    /// Shortens the quarantine to `rest`, if more was left. The node votes when nothing is left.
    fn shorten(&mut self, episode: NodeId, rest: u64, now: u64) -> bool {
        let begun = self.quarantine.filter(|begun| rest < begun.left || rest == 0);
        let Some(begun) = begun.filter(|_| self.is_episode(episode)) else { return false };
        if rest > 0 {
            self.quarantine = Some(Quarantine { left: rest, ..begun });
            return true;
        }
        if begun.by_time {
            // Above every token granted until now, as far as clocks can show.
            self.raise_floor(now.saturating_add(micros(SKEW)));
        }
        self.state = MemberState::Voting;
        self.quarantine = None;
        self.previous_id = None;
        true
    }

    fn stamp(&self) -> Option<Stamp> {
        self.configuration.as_ref().map(Configuration::stamp)
    }

    /// Returns whether the node has lost its data, and is a member under this new id.
    fn is_episode(&self, episode: NodeId) -> bool {
        let is_member = self.configuration.as_ref().is_some_and(|mine| mine.has(episode));
        self.state == MemberState::Recovering && self.id == episode && is_member
    }

    fn propose(&mut self, from: Option<Stamp>, configuration: Configuration) -> bool {
        let first = matches!(self.state, MemberState::Blank | MemberState::Proposed);
        let fits = first && self.stamp() == from && configuration.has(self.id);
        if fits {
            self.state = MemberState::Proposed;
            self.configuration = Some(configuration);
        }
        fits
    }

    fn activate(&mut self, stamp: Stamp, quarantine: Duration) -> bool {
        let fits = self.state == MemberState::Proposed && self.stamp() == Some(stamp);
        if fits {
            self.quarantine = Some(Quarantine { left: micros(quarantine), by_time: true });
            self.state = MemberState::Recovering;
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
        let tenure = |one: &Configuration| one.member_since(self.id);
        let before = self.configuration.as_ref().and_then(tenure);
        if self.state == MemberState::Blank {
            self.state = MemberState::Recovering;
        } else if before.is_some() && before != tenure(&configuration) {
            // Its tenure is over (N6).
            self.state = MemberState::Replaced;
            self.quarantine = None;
            self.previous_id = None;
        }
        self.configuration = Some(configuration);
        true
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
