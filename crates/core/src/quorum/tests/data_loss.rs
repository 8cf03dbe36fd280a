//! Small worlds of nodes that lose their data, explored in full: attempts, data losses and clients
//! that readmit nodes interleave in any order. Their messages arrive in any order, late or never.
//!
//! A request and its answer are one step here, since the other model covers the order of answers;
//! either may be lost. In a world *with clocks* a lease ends on a node only once no client relies
//! on it. A quarantine ends only once no client relies on what the node had granted before. There
//! at most one client holds the lock. Without clocks both end at any moment, and tokens are
//! distinct and grow all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{TestSet, address, desired, node_id, run};
use super::{id, token};
use crate::Moment;
use crate::quorum::ballot::VoteEntry;
use crate::quorum::{
    Ballot, BallotOutcome, DesiredConfiguration, MemberState, NameRegister, NoVote, NodeCommand,
    NodeId, NodeReport, QuorumNode, RenewalOutcome, SKEW, SetStatus, Stamp, Tally, Vote, WriteBack,
    WriteBackReply, plan, proven,
};
use crate::token::FencingToken;

const GROW: &str = "tokens are distinct and grow";
const ALONE: &str = "with clocks, at most one holds";
const SOUND: &str = "nothing breaks";
const LATE: &str = "a renewed lease had no successor";
const ONE: &str = "at most one configuration has a majority";
const EVICTED: &str = "a wrong list of servers evicts no member";
const HEALED: &str = "a lease is healed only with the token that it was granted with";
const SAME: &str = "a repeated request under a lease id returns the granted token";

/// A planted bug: a rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// A node votes as soon as the others have agreed to it.
    NoWait,
    /// The floor is the largest token of the node itself.
    NoFloor,
    /// The floor is taken from recovering nodes as well.
    FloorOfRecoveringNodes,
    /// The quarantine begins before the others have agreed.
    WaitBeforeAgreed,
    /// A node obeys `ReportWait` whatever its episode.
    AnyEpisode,
    /// A silent node counts as having the configuration.
    SilentAgrees,
    /// A node does not detect its loss of data.
    Undetected,
    /// A name whose counter was deleted on purpose starts at zero.
    OldBase,
    /// A node that was restored from an old copy continues its old counters.
    OldCopy,
    /// A healed record counts in the same renewal.
    HealedAtOnce,
    /// A healed record is evidence when the lease id is asked for again.
    HealedProves,
    /// A process that renews by lease id heals with the token that the most records have, and of
    /// equally many with any.
    HealedWithTheMost,
    /// A lease id is asked for again after it was undone.
    AskedAfterUndo,
    /// A vote under an old configuration still counts.
    AnyStamp,
    /// Every node that answers counts as a member.
    NonMembersCount,
    /// Where no majority remembers, it is enough that all listed servers answer, though a member is
    /// neither seen nor placed.
    MembersUnseen,
    /// A new node that no client knows takes the free slot when all answer.
    LeftoverSlotTaken,
    /// A readmitted server votes at once with its old state.
    ReadmittedAtOnce,
    /// A vouch of an operator ends any quarantine, whenever it arrives.
    VouchForAny,
    /// Where no node has its data, the floor is the clock, without the second.
    ClockAlone,
}

const PLANTED: [Planted; 11] = [
    Planted::NoWait,
    Planted::NoFloor,
    Planted::FloorOfRecoveringNodes,
    Planted::SilentAgrees,
    Planted::Undetected,
    Planted::OldBase,
    Planted::OldCopy,
    Planted::HealedAtOnce,
    Planted::AskedAfterUndo,
    Planted::AnyStamp,
    Planted::ClockAlone,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    node: QuorumNode,
    register: NameRegister,
    /// The holders whose grants are older than the quarantine that began here.
    waits_for: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Life {
    Open,
    /// It holds the lease by the votes of these nodes.
    Holding(BTreeSet<NodeId>),
    Over,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    ballot: Ballot,
    stamp: Stamp,
    life: Life,
    to_write: BTreeSet<(usize, u64)>,
    /// The nodes that voted, with their ids at that time.
    voters: BTreeSet<(usize, NodeId)>,
    floor: u64,
    proposed: u64,
    won: Option<u64>,
    /// The number of its lease id.
    id: usize,
    /// The nodes that have not executed its request yet.
    asked: BTreeSet<usize>,
    /// Those of its nodes that are the old servers.
    old: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    places: Vec<Place>,
    /// Replaced servers that still run elsewhere, where contenders may reach them.
    old: Vec<Option<Place>>,
    /// A backup of each node.
    copies: Vec<Option<Place>>,
    saved: u8,
    restored: u8,
    attempts: Vec<Attempt>,
    sent: BTreeSet<(usize, NodeCommand)>,
    lost_data: u8,
    late: u8,
    losses: u8,
    renewals: u8,
    readmitted: u8,
    vouched: u8,
    /// The last reports, where a later plan may still use one of them.
    seen: Vec<NodeReport>,
    stale_reports: u8,
    clock: u64,
    broken: Option<&'static str>,
    healed: bool,
    /// A lease was healed by its winner where no token had a majority of the records.
    by_winner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Begin {
        stamp: Stamp,
        ahead: bool,
    },
    Ask {
        attempt: usize,
        node: usize,
        lost: bool,
    },
    Meet {
        attempt: usize,
        node: usize,
    },
    Write {
        attempt: usize,
        node: usize,
        token: u64,
    },
    Renew {
        attempt: usize,
        silent: Option<usize>,
        healer: Healer,
    },
    End {
        attempt: usize,
    },
    Undo {
        attempt: usize,
        node: usize,
    },
    Retry {
        attempt: usize,
    },
    Release {
        attempt: usize,
    },
    Expire {
        node: usize,
    },
    ExpireOld {
        node: usize,
    },
    DeleteCounter {
        node: usize,
    },
    LoseData {
        node: usize,
        stays_reachable: bool,
    },
    Save {
        node: usize,
    },
    Restore {
        node: usize,
    },
    Plan {
        silent: Option<usize>,
        late: Option<usize>,
    },
    /// A client whose addresses lead to the old servers plans.
    PlanWithOldServers {
        silent: Option<usize>,
    },
    /// A client plans with an old report of one node.
    PlanWithAStaleReport {
        at: usize,
    },
    /// An operator confirms that no lock is held.
    Vouch {
        late: Option<usize>,
    },
    /// The replaced server comes back, and the other one still runs elsewhere.
    Return {
        node: usize,
    },
    /// An operator readmits it.
    Readmit {
        node: usize,
    },
    Deliver {
        which: usize,
    },
    EndQuarantine {
        node: usize,
    },
    EndQuarantineOld {
        node: usize,
    },
    /// An operator gives the slot of the old server to the one that a client with another list
    /// reaches.
    Replace {
        node: usize,
        silent: Option<usize>,
    },
}

/// Which process renews a lease, and so heals it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Healer {
    /// The one that was granted it, and knows its token.
    Winner,
    /// Another one, which has the lease id and no more.
    ByLeaseId,
}

struct Small {
    nodes: usize,
    attempts: usize,
    data_losses: u8,
    /// How often a node is saved, and how often one is restored.
    restores: u8,
    /// How many commands arrive late.
    late: u8,
    /// How many answers are lost.
    losses: u8,
    /// A node without data may be another server, and the old one still runs elsewhere.
    replaced: bool,
    /// A node recovered before, and the command that ended its quarantine arrives once more.
    again: bool,
    clocks: bool,
    /// How many renewals there are.
    renewals: u8,
    counters_deleted: bool,
    /// Only the membership matters: nodes lose their data one after the other, the old servers
    /// still run, and some clients know no others.
    lists: bool,
    /// Some clients list a blank server in place of a member.
    wrong: bool,
    /// An operator may give the slot to that server.
    replaces: bool,
    /// Requests arrive after the attempt was decided, and the holder may release.
    late_votes: bool,
    /// Attempts may propose the largest token that a node accepts: its clock and a second.
    ahead: bool,
    /// How often operators readmit replaced servers.
    readmits: u8,
    /// How often an operator vouches, and is right: no lock is held then.
    vouches: u8,
    /// How many plans use an old report of one node.
    stale_reports: u8,
    /// A node may not answer a client that plans.
    silences: bool,
    planted: Option<Planted>,
}

const SMALL: Small = Small {
    nodes: 3,
    attempts: 2,
    data_losses: 1,
    restores: 0,
    late: 0,
    losses: 0,
    replaced: false,
    again: false,
    clocks: false,
    renewals: 0,
    counters_deleted: false,
    lists: false,
    wrong: false,
    replaces: false,
    late_votes: false,
    ahead: false,
    readmits: 0,
    vouches: 0,
    stale_reports: 0,
    silences: true,
    planted: None,
};

/// The index with a wrong address in the lists of some clients, and the blank server there.
const WRONG: usize = 2;
const STRANGER: u8 = 90;

fn mine(attempt: usize) -> crate::LeaseId {
    id(u8::try_from(attempt + 1).expect("few attempts"))
}

impl World {
    /// Returns the attempts that may still hold something.
    fn may_hold(&self) -> BTreeSet<usize> {
        let attempts = self.attempts.iter().enumerate();
        attempts.filter(|(_, one)| one.life != Life::Over).map(|(number, _)| number).collect()
    }

    /// Returns whether a node that lost its data votes again, with a further condition on its id.
    fn is_back(&self, also: impl Fn(NodeId) -> bool) -> bool {
        let mut open = self.places.iter().filter(|place| place.node.state == MemberState::Voting);
        open.any(|place| place.node.id > node_id(99) && also(place.node.id))
    }
}

/// Clients have measured the whole quarantine of a node, whose clock is `now`.
fn end_wait(place: &mut Place, now: u64) {
    place.waits_for.clear();
    let Some((left, _)) = place.node.report().quarantine else { return };
    let (marker, episode) = (place.node.marker.clone(), place.node.id);
    place.node.apply(&marker, NodeCommand::ReportWait { episode, left, passed: left }, now);
}

fn is_waiting(place: &Place) -> bool {
    place.node.quarantine.is_some_and(|begun| begun.left > 0)
}

impl Place {
    fn new(node: QuorumNode) -> Place {
        Place { node, register: NameRegister::default(), waits_for: BTreeSet::new() }
    }

    fn lose_data(&mut self, marker: String, fresh: NodeId) {
        *self = Place::new(QuorumNode::blank(marker, fresh));
    }
}

impl Small {
    fn admits(&self, place: &Place, stamp: Stamp) -> bool {
        let node = &place.node;
        match self.planted {
            Some(Planted::AnyStamp) => node.state == MemberState::Voting,
            _ => node.admit(&node.marker, stamp).is_ok(),
        }
    }

    fn begin(&self, world: &mut World, stamp: Stamp, id: usize, ahead: bool) {
        let mut ballot = Ballot::new(self.nodes, Duration::from_secs(10));
        (0..self.nodes).for_each(|node| ballot.asked(node, Moment::ORIGIN));
        let floor = world.attempts.iter().filter_map(|other| other.won).max().unwrap_or(0);
        let proposed = if ahead { world.clock + micros(SKEW) } else { 0 };
        world.attempts.push(Attempt {
            ballot,
            stamp,
            life: Life::Open,
            to_write: BTreeSet::new(),
            voters: BTreeSet::new(),
            floor,
            proposed,
            won: None,
            id,
            asked: (0..self.nodes).collect(),
            old: BTreeSet::new(),
        });
    }

    fn ask(&self, world: &mut World, number: usize, at: usize, lost: bool) {
        let attempt = &mut world.attempts[number];
        let place = match &mut world.old[at] {
            Some(old) if attempt.old.contains(&at) => old,
            _ => &mut world.places[at],
        };
        attempt.asked.remove(&at);
        if !self.admits(place, attempt.stamp) {
            attempt.ballot.refused(at, NoVote::Abstained);
            return self.decide(world, number);
        }
        let floor = match self.planted {
            Some(Planted::OldBase) => 0,
            Some(Planted::OldCopy) if place.register.last() > 0 => 0,
            _ => place.node.floor(place.register.last()),
        };
        let vote = place.register.acquire(mine(attempt.id), floor, attempt.proposed);
        let vote = vote.expect("small numbers");
        if let Vote::Granted { last } = vote {
            place.node.raise(last.get());
            attempt.voters.insert((at, place.node.id));
        }
        world.losses += u8::from(lost);
        match lost {
            true => attempt.ballot.unanswered(at),
            false => attempt.ballot.voted(at, vote),
        }
        self.decide(world, number);
    }

    fn write(&self, world: &mut World, number: usize, at: usize, written: u64) {
        let attempt = &mut world.attempts[number];
        let place = match &mut world.old[at] {
            Some(old) if attempt.old.contains(&at) => old,
            _ => &mut world.places[at],
        };
        attempt.to_write.remove(&(at, written));
        if !self.admits(place, attempt.stamp) {
            attempt.ballot.unanswered(at);
            return self.decide(world, number);
        }
        let answer = place.register.write_back(mine(attempt.id), token(written));
        if let WriteBackReply::Counter(last) = answer {
            place.node.raise(last.get());
        }
        attempt.ballot.written(at, answer);
        self.decide(world, number);
    }

    fn decide(&self, world: &mut World, number: usize) {
        let attempt = &mut world.attempts[number];
        let outcome = attempt.ballot.decide(Moment::ORIGIN);
        for WriteBack { node, token } in attempt.ballot.take_write_backs() {
            attempt.to_write.insert((node, token.get()));
        }
        match outcome {
            BallotOutcome::Won { token, .. }
                if attempt.won.is_none() && attempt.life == Life::Open =>
            {
                let proof = attempt
                    .voters
                    .iter()
                    .filter(|(at, _)| matches!(attempt.ballot.entry(*at), VoteEntry::Granted(_)));
                attempt.life = Life::Holding(proof.map(|(_, id)| *id).collect());
                self.win(world, number, token.get());
            }
            BallotOutcome::Lost if attempt.life == Life::Open => attempt.life = Life::Over,
            _ => {}
        }
    }

    /// Repeats the request of a holder at any moment.
    fn check(&self, mut world: World) -> World {
        if world.broken.is_none() && self.late_votes {
            let holds = |at: &usize| matches!(world.attempts[*at].life, Life::Holding(_));
            let won = (0..world.attempts.len()).filter(holds);
            world.broken = won.filter_map(|number| self.ask_again(&world, number)).next();
        }
        world
    }

    fn win(&self, world: &mut World, number: usize, won: u64) {
        if won <= world.attempts[number].floor {
            world.broken = Some(GROW);
        }
        let others = world.attempts.iter().enumerate().filter(|(at, _)| *at != number);
        for (_, other) in others {
            if other.won == Some(won) {
                world.broken = Some(GROW);
            }
            if self.clocks && matches!(other.life, Life::Holding(_)) {
                world.broken = Some(ALONE);
            }
        }
        world.attempts[number].won = Some(won);
    }

    /// One renewal: asks all nodes but the silent one, and heals the lease where it is missing.
    fn renew(&self, world: &mut World, number: usize, silent: Option<usize>, healer: Healer) {
        let newest = world.places.iter().filter_map(|place| place.node.configuration.as_ref());
        let Some(newest) = newest.max_by_key(|one| one.epoch()) else { return };
        let stamp = newest.stamp();
        let mut tally = Tally::new(self.nodes, Duration::from_secs(10));
        let mut proof = BTreeSet::new();
        for at in (0..self.nodes).filter(|at| Some(*at) != silent) {
            tally.asked(at, Moment::ORIGIN);
            let place = &mut world.places[at];
            if !self.admits(place, stamp) {
                tally.unanswered(at);
                continue;
            }
            if self.planted == Some(Planted::HealedAtOnce) && place.register.holder().is_none() {
                let floor = place.node.floor(place.register.last());
                place.register.acquire(mine(number), floor, 0).expect("small numbers");
            }
            match place.register.holder() {
                Some(holder) if holder == mine(number) => {
                    tally.kept(at);
                    proof.insert(place.node.id);
                }
                other => tally.gone(at, other.is_none()),
            }
        }
        match tally.decide(Moment::ORIGIN) {
            RenewalOutcome::Renewed { .. } => {
                let (won, over) =
                    (world.attempts[number].won, world.attempts[number].life == Life::Over);
                // A late vote may renew a lease that a stepped clock had ended: its token is older.
                if !self.late_votes && world.attempts.iter().any(|other| other.won > won) {
                    world.broken = Some(LATE);
                }
                if !over {
                    world.places.iter_mut().for_each(|place| {
                        place.waits_for.remove(&number);
                    });
                    world.attempts[number].life = Life::Holding(proof);
                }
            }
            RenewalOutcome::Lost => world.attempts[number].life = Life::Over,
            RenewalOutcome::Pending | RenewalOutcome::Unknown => return,
        }
        let records = self.tokens(world, stamp, silent, |at| at.recorded(mine(number)));
        let won = world.attempts[number].won.map(token);
        let granted = won.filter(|_| healer == Healer::Winner);
        let Some(healed_with) = self.heals_with(granted, &records) else { return };
        for at in tally.to_heal() {
            if Some(healed_with) != won {
                world.broken = Some(HEALED);
            }
            world.by_winner |= proven(&records, self.nodes).is_none();
            let place = &mut world.places[at];
            let floor = place.node.floor(place.register.last());
            place.register.heal(mine(number), floor, healed_with);
            place.node.raise(place.register.last());
            world.healed = true;
        }
    }

    /// Returns the answers of the nodes that vote under this stamp, but for the silent one.
    fn tokens(
        &self,
        world: &World,
        stamp: Stamp,
        silent: Option<usize>,
        say: impl Fn(&NameRegister) -> Option<FencingToken>,
    ) -> Vec<FencingToken> {
        let places = world.places.iter().enumerate().filter(|(at, _)| Some(*at) != silent);
        let places = places.filter(|(_, place)| self.admits(place, stamp));
        places.filter_map(|(_, place)| say(&place.register)).collect()
    }

    /// The winner heals with the token that it was granted, any other process with one that is
    /// proven; neither unless a record carries it.
    fn heals_with(
        &self,
        granted: Option<FencingToken>,
        records: &[FencingToken],
    ) -> Option<FencingToken> {
        let like = |one: &&FencingToken| records.iter().filter(|two| two == one).count();
        let of_records = || match self.planted {
            Some(Planted::HealedWithTheMost) => records.iter().max_by_key(like).copied(),
            _ => proven(records, self.nodes),
        };
        granted.or_else(of_records).filter(|token| records.contains(token))
    }

    /// Repeats a request under a known lease id. If a majority returns one token, it must be the
    /// token that was granted.
    fn ask_again(&self, world: &World, number: usize) -> Option<&'static str> {
        let newest = world.places.iter().filter_map(|place| place.node.configuration.as_ref());
        let stamp = newest.max_by_key(|one| one.epoch())?.stamp();
        let evidence = |register: &NameRegister| match self.planted {
            Some(Planted::HealedProves) if register.holder() == Some(mine(number)) => {
                FencingToken::new(register.last()).ok()
            }
            _ => register.evidence(mine(number)),
        };
        let answer = proven(&self.tokens(world, stamp, None, evidence), self.nodes)?;
        (Some(answer.get()) != world.attempts[number].won).then_some(SAME)
    }

    fn deliver(&self, world: &mut World, at: usize, command: NodeCommand) {
        self.deliver_to(world, at, false, command);
    }

    /// `old`: delivers to the old server, where it still runs.
    fn deliver_to(&self, world: &mut World, at: usize, old: bool, command: NodeCommand) {
        let may_hold = world.may_hold();
        let place = match &mut world.old[at] {
            Some(place) if old => place,
            _ => &mut world.places[at],
        };
        let marker = place.node.marker.clone();
        let begins = matches!(command, NodeCommand::BeginQuarantine { .. });
        let command = self.with_bug(&place.node, command);
        if self.planted == Some(Planted::ReadmittedAtOnce)
            && matches!(command, NodeCommand::Readmit { .. })
        {
            place.node.state = MemberState::Voting;
        }
        if self.planted == Some(Planted::VouchForAny)
            && matches!(command, NodeCommand::Vouch { .. })
        {
            end_wait(place, world.clock);
        }
        let now = self.clock(world.clock);
        let accepted = place.node.apply(&marker, command, now);
        if accepted
            && begins
            && let Some(begun) = &mut place.node.quarantine
        {
            begun.left = 1_000_000;
            place.waits_for = may_hold;
            if self.planted == Some(Planted::NoWait) {
                end_wait(place, now);
            }
        }
        if self.majorities(world) > 1 {
            world.broken = Some(ONE);
        }
        let belongs = |place: &Place| {
            let known = place.node.configuration.as_ref();
            known.is_some_and(|known| known.has(node_id(STRANGER)))
        };
        if self.wrong && !self.replaces && world.places.iter().any(belongs) {
            world.broken = Some(EVICTED);
        }
    }

    /// Returns what a node reads from its clock.
    fn clock(&self, now: u64) -> u64 {
        match self.planted {
            Some(Planted::ClockAlone) => now.saturating_sub(micros(SKEW)),
            _ => now,
        }
    }

    fn end(&self, place: &mut Place, now: u64) {
        end_wait(place, self.clock(now));
    }

    fn with_bug(&self, node: &QuorumNode, command: NodeCommand) -> NodeCommand {
        match (self.planted, command) {
            (
                Some(Planted::NoFloor),
                NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, .. },
            ) => {
                let floor = node.largest;
                NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, floor }
            }
            (Some(Planted::AnyEpisode), NodeCommand::ReportWait { .. }) => {
                let left = node.report().quarantine.map_or(Duration::ZERO, |(left, _)| left);
                NodeCommand::ReportWait { episode: node.id, left, passed: left }
            }
            (_, command) => command,
        }
    }

    /// Returns whether one more old server may run: they must be no majority under a configuration.
    fn may_stay_reachable(&self, world: &World, node: usize) -> bool {
        let living = || world.old.iter().flatten();
        if !self.lists {
            return 2 * (living().count() + 1) < self.nodes;
        }
        let stamp = |place: &Place| place.node.configuration.as_ref().map(|mine| mine.stamp());
        let mine = stamp(&world.places[node]);
        let alike = living().filter(|place| stamp(place) == mine).count();
        world.old[node].is_none() && alike + 1 < crate::quorum::majority(self.nodes)
    }

    /// Counts the configurations under which a majority votes.
    fn majorities(&self, world: &World) -> usize {
        let open = world.places.iter().chain(world.old.iter().flatten());
        let open = open.filter(|place| place.node.state == MemberState::Voting);
        let stamps: Vec<Stamp> = open
            .filter_map(|place| place.node.configuration.as_ref().map(|mine| mine.stamp()))
            .collect();
        let distinct: BTreeSet<&Stamp> = stamps.iter().collect();
        let majority = crate::quorum::majority(self.nodes);
        let has_majority =
            |stamp: &&&Stamp| stamps.iter().filter(|other| other == *stamp).count() >= majority;
        distinct.iter().filter(has_majority).count()
    }

    /// Returns whether an attempt may still rely on a grant of this node.
    fn validity_time(world: &World, granted: NodeId) -> bool {
        world.attempts.iter().any(|attempt| match &attempt.life {
            Life::Open => attempt.voters.iter().any(|(_, voter)| *voter == granted),
            Life::Holding(proof) => proof.contains(&granted),
            Life::Over => false,
        })
    }

    fn reports(
        &self,
        world: &World,
        silent: Option<usize>,
        stale: bool,
    ) -> Vec<Option<NodeReport>> {
        let seen = world.places.iter().zip(&world.old).enumerate();
        seen.map(|(at, (place, old))| {
            let place = old.as_ref().filter(|_| stale).unwrap_or(place);
            (Some(at) != silent).then(|| place.node.report())
        })
        .collect()
    }

    /// Returns the reports with what a client remembers that has always run: by each name it saw
    /// the member that has the slot now. A client with a wrong list never saw one by the wrong
    /// name.
    fn remembered(&self, reports: &[Option<NodeReport>], stale: bool) -> Vec<Option<NodeReport>> {
        let newest = reports.iter().flatten().filter_map(|report| report.configuration.as_ref());
        let newest = newest.max_by_key(|one| one.epoch());
        let seen = |(at, report): (usize, &Option<NodeReport>)| {
            let report = report.clone()?;
            let is_wrong = stale && self.wrong && at == WRONG;
            let member = newest.filter(|_| !is_wrong).map(|one| one.slots()[at].id);
            Some(NodeReport { last_seen_id: member, ..report })
        };
        reports.iter().enumerate().map(seen).collect()
    }

    fn desired(&self) -> DesiredConfiguration {
        desired(self.nodes, false)
    }

    /// The same for a client that lists a blank server in place of a member.
    fn stale_desired(&self) -> DesiredConfiguration {
        let mut desired = self.desired();
        if self.wrong {
            "elsewhere".clone_into(&mut desired.addresses[WRONG]);
        }
        desired
    }

    /// Returns the command of an operator who replaces this server. Where no majority has its data,
    /// the command cannot be checked and must be right: no server votes that the list lacks.
    fn replacement(
        &self,
        world: &World,
        node: usize,
        silent: Option<usize>,
    ) -> Option<DesiredConfiguration> {
        let reports = self.reports(world, silent, true);
        let newest = reports.iter().flatten().filter_map(|report| report.configuration.as_ref());
        let newest = newest.max_by_key(|one| one.epoch())?;
        let old = newest.slots().iter().find(|slot| slot.address == address(node))?.id;
        let remembers =
            |report: &&NodeReport| report.state == MemberState::Voting && newest.has(report.id);
        let remember = reports.iter().flatten().filter(remembers).count();
        let mut lacking = world.places.iter().zip(&world.old).filter(|(_, old)| old.is_some());
        let is_gone = lacking.all(|(place, _)| place.node.state != MemberState::Voting);
        let new = world.old[node].as_ref()?.node.id;
        let mut desired = self.stale_desired();
        desired.replace.push((old, new));
        (is_gone || remember >= crate::quorum::majority(self.nodes)).then_some(desired)
    }

    /// A client whose addresses lead to old servers plans, and sends the steps.
    fn plan_with_old_servers(
        &self,
        world: &mut World,
        silent: Option<usize>,
        mut desired: DesiredConfiguration,
    ) {
        let mut reports = self.reports(world, silent, true);
        if self.planted == Some(Planted::NonMembersCount) {
            let newest = reports.iter().flatten().filter_map(|report| report.configuration.clone());
            let newest = newest.max_by_key(|one| one.epoch()).expect("it was initialised");
            let seen: BTreeSet<NodeId> = reports.iter().flatten().map(|report| report.id).collect();
            let mut lacking = newest.slots().iter().filter(|slot| !seen.contains(&slot.id));
            let stranger = |report: &&mut NodeReport| {
                matches!(report.state, MemberState::Voting | MemberState::Replaced)
                    && !newest.has(report.id)
            };
            for report in reports.iter_mut().flatten().filter(stranger) {
                report.id = lacking.next().map_or(report.id, |slot| slot.id);
            }
        }
        if self.planted == Some(Planted::LeftoverSlotTaken)
            && let [stranger] = plan(&self.remembered(&reports, true), &desired).mislisted[..]
        {
            let newest = reports.iter().flatten().filter_map(|report| report.configuration.clone());
            let newest = newest.max_by_key(|one| one.epoch()).expect("it was initialised");
            let seen: BTreeSet<NodeId> = reports.iter().flatten().map(|report| report.id).collect();
            let lacking = newest.slots().iter().filter(|slot| !seen.contains(&slot.id));
            if let ([slot], [Some(_), Some(_), Some(new)]) =
                (&lacking.collect::<Vec<_>>()[..], &reports[..])
                && stranger == WRONG
            {
                desired.replace = vec![(slot.id, new.id)];
            }
        }
        if self.planted == Some(Planted::MembersUnseen) && reports.iter().all(Option::is_some) {
            Small::take_for_lost(&mut reports);
        }
        let reports = self.remembered(&reports, true);
        for (at, command) in plan(&reports, &desired).steps {
            self.deliver_to(world, at, true, command);
        }
    }

    /// Shows each member that is not seen as one that answers and has lost its data, in the slot of
    /// a former member: then each slot counts as seen.
    fn take_for_lost(reports: &mut [Option<NodeReport>]) {
        let newest = reports.iter().flatten().filter_map(|report| report.configuration.clone());
        let newest = newest.max_by_key(|one| one.epoch()).expect("it was initialised");
        let seen: BTreeSet<NodeId> = reports.iter().flatten().map(|report| report.id).collect();
        let mut unseen = newest.slots().iter().filter(|slot| !seen.contains(&slot.id));
        let former = |report: &&mut NodeReport| {
            matches!(report.state, MemberState::Voting | MemberState::Replaced)
                && !newest.has(report.id)
        };
        for report in reports.iter_mut().flatten().filter(former) {
            let Some(slot) = unseen.next() else { return };
            (report.id, report.state) = (slot.id, MemberState::Recovering);
        }
    }

    /// A client plans, and sends the steps; one node may be silent, one command may arrive later.
    fn plan_and_send(&self, world: &mut World, silent: Option<usize>, late: Option<usize>) {
        let reports = self.reports(world, silent, false);
        self.act(world, &reports, &self.desired(), silent, late);
    }

    /// Sends the steps that follow from these reports.
    fn act(
        &self,
        world: &mut World,
        reports: &[Option<NodeReport>],
        desired: &DesiredConfiguration,
        silent: Option<usize>,
        late: Option<usize>,
    ) {
        if self.stale_reports > 0 {
            world.seen = world.places.iter().map(|place| place.node.report()).collect();
        }
        let reports = &self.remembered(reports, false);
        let mut planned = plan(reports, desired);
        if let (Some(Planted::SilentAgrees), Some(silent)) = (self.planted, silent) {
            let newest = reports.iter().flatten().filter_map(|report| report.configuration.clone());
            let mut assumed = world.places[silent].node.report();
            assumed.configuration = newest.max_by_key(|one| one.epoch());
            let mut all = reports.to_vec();
            all[silent] = Some(assumed);
            planned = plan(&all, desired);
            planned.steps.retain(|(at, _)| *at != silent);
        }
        let agreed = matches!(planned.status, SetStatus::Agreed(_));
        for (at, command) in planned.steps {
            let command = match (self.planted, command) {
                (
                    Some(Planted::FloorOfRecoveringNodes),
                    NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, .. },
                ) => {
                    let other = reports
                        .iter()
                        .flatten()
                        .find(|report| report.state == MemberState::Recovering);
                    let floor = other.map_or(0, |report| report.largest);
                    NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time, floor }
                }
                (_, command) => command,
            };
            match Some(at) == late {
                true => {
                    world.late += 1;
                    world.sent.insert((at, command));
                }
                false => self.deliver(world, at, command),
            }
        }
        if self.planted == Some(Planted::WaitBeforeAgreed) && agreed {
            let may_hold = world.may_hold();
            let largest = world.places.iter().map(|place| place.node.largest).max();
            for place in &mut world.places {
                if place.node.state == MemberState::Recovering && place.node.quarantine.is_none() {
                    place.node.raise_floor(largest.unwrap_or(0));
                    let (left, by_time) = (1_000_000, false);
                    let begun = crate::quorum::node::Quarantine { left, by_time };
                    place.node.quarantine = Some(begun);
                    place.waits_for.clone_from(&may_hold);
                }
            }
        }
    }

    /// A node loses its data, or is replaced by a blank one.
    fn lose_data(&self, world: &mut World, node: usize, stays_reachable: bool) {
        if stays_reachable {
            world.old[node] = Some(world.places[node].clone());
        }
        world.lost_data += 1;
        world.clock += 1000;
        let number = 100 + world.lost_data;
        let marker = world.lost_data.to_string();
        let place = &mut world.places[node];
        match self.planted {
            Some(Planted::Undetected) => {
                place.node.largest = 0;
                place.register = NameRegister::default();
            }
            _ => place.lose_data(marker, node_id(number)),
        }
    }

    /// The old server answers at its address again.
    fn return_old(world: &mut World, node: usize) {
        let Some(old) = world.old[node].take() else { return };
        world.old[node] = Some(std::mem::replace(&mut world.places[node], old));
        // A client that is connected to a server stays connected to it.
        for attempt in &mut world.attempts {
            if !attempt.old.remove(&node) {
                attempt.old.insert(node);
            }
        }
    }

    fn plan_with_a_stale_report(&self, world: &mut World, at: usize) {
        let mut reports = self.reports(world, None, false);
        reports[at] = world.seen.get(at).cloned();
        world.stale_reports += 1;
        self.act(world, &reports, &self.desired(), None, None);
    }

    fn vouch(&self, world: &mut World, late: Option<usize>) {
        world.vouched += 1;
        let desired = desired(self.nodes, true);
        let reports = self.reports(world, None, false);
        self.act(world, &reports, &desired, None, late);
    }

    fn readmit(&self, world: &mut World, node: usize) {
        world.readmitted += 1;
        let (id, fresh) = (world.places[node].node.id, node_id(200 + world.readmitted));
        self.deliver(world, node, NodeCommand::Readmit { id, fresh });
    }

    /// The actions of operators, and of clients with reports of different moments.
    fn operator_actions(&self, world: &World, actions: &mut Vec<Action>) {
        let is_right = !self.clocks || world.may_hold().is_empty();
        if world.vouched < self.vouches && is_right {
            let late = (0..self.nodes).filter(|_| world.late < self.late).map(Some);
            actions.extend(std::iter::once(None).chain(late).map(|late| Action::Vouch { late }));
        }
        for (node, place) in world.places.iter().enumerate() {
            let returns = world.readmitted < self.readmits && world.old[node].is_some();
            if returns && place.node.marker != "0" {
                actions.push(Action::Return { node });
            }
            if world.readmitted < self.readmits && place.node.state == MemberState::Replaced {
                actions.push(Action::Readmit { node });
            }
            let differs = |seen: &NodeReport| *seen != place.node.report();
            if world.stale_reports < self.stale_reports && world.seen.get(node).is_some_and(differs)
            {
                actions.push(Action::PlanWithAStaleReport { at: node });
            }
        }
    }

    /// Starts after one node has lost its data and was readmitted, and repeats its last command. If
    /// operators vouch, a majority lost its data, and the vouch is repeated. If servers are
    /// readmitted, another server had taken the node's slot, and the old one is back.
    fn after_a_recovery(&self, mut world: World) -> World {
        let vouched = self.vouches > 0;
        let replaced = self.readmits > 0;
        (0..=usize::from(vouched)).for_each(|node| self.lose_data(&mut world, node, replaced));
        let desired = desired(self.nodes, vouched);
        let mut last = None;
        while world.places.iter().any(|place| place.node.state != MemberState::Voting) {
            let reports = self.reports(&world, None, false);
            self.act(&mut world, &reports, &desired, None, Some(0));
            for (at, command) in std::mem::take(&mut world.sent) {
                self.deliver(&mut world, at, command.clone());
                if matches!(command, NodeCommand::Vouch { .. }) {
                    last = Some((at, command));
                }
            }
            let report = world.places[0].node.report();
            if let Some((left, _)) = report.quarantine.filter(|_| !vouched) {
                let episode = report.id;
                let end = NodeCommand::ReportWait { episode, left, passed: left };
                self.deliver(&mut world, 0, end.clone());
                last = Some((0, end));
            }
        }
        if replaced {
            Small::return_old(&mut world, 0);
            self.plan_and_send(&mut world, None, None);
            return world;
        }
        world.sent.extend(last);
        (world.late, world.vouched) = (1, self.vouches);
        world
    }

    /// A node is restored from its backup, and detects that.
    fn restore(world: &mut World, node: usize) {
        let Some(mut copy) = world.copies[node].take() else { return };
        world.restored += 1;
        world.lost_data += 1;
        world.clock += 1000;
        let marker = world.lost_data.to_string();
        copy.waits_for.clear();
        copy.node.handshake(&run(&marker), node_id(100 + world.lost_data));
        world.places[node] = copy;
    }

    /// The next actions of attempts, and what may happen to their leases.
    fn attempt_actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (attempt, of) in world.attempts.iter().enumerate() {
            // A request that was delayed arrives after the decision, too.
            let late = of.won.is_some() && self.late_votes;
            if of.life == Life::Open || late {
                let may_lose = world.losses < self.losses;
                let each = move |node: &usize| [(*node, false), (*node, true)];
                let asked = of.asked.iter().flat_map(each).filter(|(_, lost)| !lost || may_lose);
                actions.extend(asked.map(|(node, lost)| Action::Ask { attempt, node, lost }));
                let old = of.asked.iter().filter(|node| world.old[**node].is_some());
                let old = old.filter(|node| !of.old.contains(node));
                actions.extend(old.map(|node| Action::Meet { attempt, node: *node }));
            } else if of.won.is_none() && self.planted == Some(Planted::AskedAfterUndo) {
                let has =
                    |(_, place): &(usize, &Place)| place.register.holder() == Some(mine(of.id));
                let held = world.places.iter().enumerate().filter(has);
                actions.extend(held.map(|(node, _)| Action::Undo { attempt, node }));
                if world.attempts.len() < self.attempts {
                    actions.push(Action::Retry { attempt });
                }
            }
            if late {
                actions.push(Action::Release { attempt });
            }
            let writes = of.to_write.iter();
            let write = |(node, token): &(usize, u64)| {
                let (node, token) = (*node, *token);
                Action::Write { attempt, node, token }
            };
            actions.extend(writes.map(write));
            // Late requests too, whose answer no client uses.
            if world.renewals < self.renewals && of.won.is_some() {
                let renew = |healer| Action::Renew { attempt, silent: None, healer };
                actions.extend([Healer::Winner, Healer::ByLeaseId].map(renew));
            }
            if of.life != Life::Over && self.clocks {
                actions.push(Action::End { attempt });
            }
        }
    }
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut set = TestSet::initial(self.nodes);
        set.nodes.iter_mut().for_each(|node| {
            node.marker = "0".to_owned();
            (node.largest, node.floor) = (0, 0);
        });
        let mut world = World {
            places: set.nodes.into_iter().map(Place::new).collect(),
            old: vec![None; self.nodes],
            copies: vec![None; self.nodes],
            saved: 0,
            restored: 0,
            attempts: Vec::new(),
            sent: BTreeSet::new(),
            lost_data: 0,
            late: 0,
            losses: 0,
            renewals: 0,
            readmitted: 0,
            vouched: 0,
            seen: Vec::new(),
            stale_reports: 0,
            clock: 10_000_000,
            broken: None,
            healed: false,
            by_winner: false,
        };
        if self.wrong {
            let stranger = QuorumNode::blank("0".to_owned(), node_id(STRANGER));
            world.old[WRONG] = Some(Place::new(stranger));
        }
        vec![if self.again { self.after_a_recovery(world) } else { world }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        if world.attempts.len() < self.attempts {
            let configured = world.places.iter().filter_map(|p| p.node.configuration.as_ref());
            let stamps: BTreeSet<Stamp> = configured.map(|one| one.stamp()).collect();
            for ahead in [false, true].into_iter().filter(|ahead| !ahead || self.ahead) {
                actions.extend(stamps.iter().map(|stamp| Action::Begin { stamp: *stamp, ahead }));
            }
        }
        self.attempt_actions(world, actions);
        let votes = |place: &Place| place.node.state == MemberState::Voting;
        for (node, place) in world.places.iter().enumerate() {
            let id = place.node.id;
            let held = place.register.holder().is_some();
            if held && !(self.clocks && Small::validity_time(world, id)) {
                actions.push(Action::Expire { node });
            }
            if let Some(old) = &world.old[node] {
                let held = old.register.holder().is_some();
                if held && !(self.clocks && Small::validity_time(world, old.node.id)) {
                    actions.push(Action::ExpireOld { node });
                }
            }
            if self.counters_deleted && !held && place.register.last() > 0 {
                actions.push(Action::DeleteCounter { node });
            }
            // Nodes are alike until one of them is saved or loses its data.
            let alike = world.lost_data == 0 && world.saved == 0;
            if world.saved < self.restores && votes(place) && (!alike || node == 0) {
                actions.push(Action::Save { node });
            }
            if world.restored < self.restores && world.copies[node].is_some() {
                actions.push(Action::Restore { node });
            }
            let settled = || world.places.iter().all(votes);
            let may_forget = world.lost_data - world.restored < self.data_losses;
            if may_forget && (!alike || node == 0) && (!self.lists || settled()) {
                actions.push(Action::LoseData { node, stays_reachable: false });
                if self.replaced && self.may_stay_reachable(world, node) {
                    actions.push(Action::LoseData { node, stays_reachable: true });
                }
            }
            if is_waiting(place) {
                let believes = |number: &usize| world.attempts[*number].life != Life::Over;
                if !self.clocks || !place.waits_for.iter().any(believes) {
                    actions.push(Action::EndQuarantine { node });
                }
            }
        }
        if self.wrong && world.old[WRONG].as_ref().is_some_and(is_waiting) {
            actions.push(Action::EndQuarantineOld { node: WRONG });
        }
        if world.lost_data > 0 || self.wrong {
            let each = || std::iter::once(None).chain((0..self.nodes).map(Some));
            let late = || each().filter(|late| late.is_none() || world.late < self.late);
            let silent = each().filter(|silent| silent.is_none() || self.silences);
            let looks = silent.flat_map(|silent| late().map(move |late| (silent, late)));
            actions.extend(looks.map(|(silent, late)| Action::Plan { silent, late }));
            if self.lists {
                actions.extend(each().map(|silent| Action::PlanWithOldServers { silent }));
            }
            if self.replaces {
                actions.extend(each().map(|silent| Action::Replace { node: WRONG, silent }));
            }
            self.operator_actions(world, actions);
        }
        actions.extend((0..world.sent.len()).map(|which| Action::Deliver { which }));
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Begin { stamp, ahead } => {
                let number = world.attempts.len();
                self.begin(&mut world, stamp, number, ahead);
            }
            Action::Undo { attempt, node } => {
                world.places[node].register.release(mine(world.attempts[attempt].id));
            }
            Action::Release { attempt } => {
                let released = mine(world.attempts[attempt].id);
                world.attempts[attempt].life = Life::Over;
                world.attempts[attempt].asked.clear();
                for place in &mut world.places {
                    place.register.release(released);
                }
            }
            Action::Retry { attempt } => {
                let (stamp, id) = (world.attempts[attempt].stamp, world.attempts[attempt].id);
                self.begin(&mut world, stamp, id, false);
            }
            Action::Ask { attempt, node, lost } => self.ask(&mut world, attempt, node, lost),
            Action::Meet { attempt, node } => {
                world.attempts[attempt].old.insert(node);
            }
            Action::Write { attempt, node, token } => self.write(&mut world, attempt, node, token),
            Action::Renew { attempt, silent, healer } => {
                world.renewals += 1;
                self.renew(&mut world, attempt, silent, healer);
            }
            Action::End { attempt } => world.attempts[attempt].life = Life::Over,
            Action::Expire { node } => world.places[node].register.expire(),
            Action::ExpireOld { node } => {
                if let Some(old) = &mut world.old[node] {
                    old.register.expire();
                }
            }
            Action::DeleteCounter { node } => world.places[node].register = NameRegister::default(),
            Action::LoseData { node, stays_reachable } => {
                self.lose_data(&mut world, node, stays_reachable);
            }
            Action::Save { node } => {
                world.saved += 1;
                world.copies[node] = Some(world.places[node].clone());
            }
            Action::Restore { node } => Small::restore(&mut world, node),
            Action::Plan { silent, late } => self.plan_and_send(&mut world, silent, late),
            Action::PlanWithOldServers { silent } => {
                self.plan_with_old_servers(&mut world, silent, self.stale_desired());
            }
            Action::Replace { node, silent } => {
                let replacement = self.replacement(&world, node, silent)?;
                self.plan_with_old_servers(&mut world, silent, replacement);
            }
            Action::EndQuarantineOld { node } => self.end(world.old[node].as_mut()?, last.clock),
            Action::PlanWithAStaleReport { at } => self.plan_with_a_stale_report(&mut world, at),
            Action::Vouch { late } => self.vouch(&mut world, late),
            Action::Return { node } => Small::return_old(&mut world, node),
            Action::Readmit { node } => self.readmit(&mut world, node),
            Action::Deliver { which } => {
                let (at, command) = world.sent.iter().nth(which).cloned()?;
                world.sent.remove(&(at, command.clone()));
                self.deliver(&mut world, at, command);
            }
            Action::EndQuarantine { node } => self.end(&mut world.places[node], last.clock),
        }
        let world = self.check(world);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties =
            vec![Property::always(SOUND, |_, world: &World| world.broken.is_none())];
        if self.lists {
            properties.push(Property::sometimes("two old servers run", |_, world: &World| {
                world.old.iter().flatten().count() > 1 && world.lost_data > 2
            }));
        }
        if self.replaces {
            properties.push(Property::sometimes("the other server votes", |_, world: &World| {
                world.old[WRONG].as_ref().is_some_and(|old| old.node.state == MemberState::Voting)
            }));
        }
        if self.attempts > 0 {
            properties.push(Property::sometimes("a token", |_, world: &World| {
                world.attempts.iter().any(|attempt| attempt.won.is_some())
            }));
        }
        if self.data_losses + self.restores > 0 {
            let back = |_: &Small, world: &World| world.is_back(|_| true);
            properties.push(Property::sometimes("a node is back", back));
        }
        if self.data_losses + self.restores > 0 && self.attempts > 0 {
            properties.extend([
                Property::sometimes("a token with its help", |_, world: &World| {
                    world.is_back(|id| {
                        let mut won = world.attempts.iter().filter(|one| one.won.is_some());
                        won.any(|one| one.voters.iter().any(|(_, voter)| *voter == id))
                    })
                }),
                Property::sometimes("a token while it is away", |_, world: &World| {
                    let away = world
                        .places
                        .iter()
                        .any(|place| place.node.state == MemberState::Recovering);
                    away && world.attempts.iter().any(|one| one.won.is_some())
                }),
            ]);
        }
        if self.renewals > 0 {
            properties.push(Property::sometimes("healed", |_, world: &World| world.healed));
        }
        if self.renewals > 0 && self.late_votes {
            let by_winner = |_: &Small, world: &World| world.by_winner;
            properties.push(Property::sometimes("healed though nothing is proven", by_winner));
        }
        properties
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("short")
}

/// Explores a world in full; returns its number of states.
fn explore(world: Small) -> usize {
    let checker = world.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    println!("{} states, {} unique", checker.state_count(), checker.unique_state_count());
    checker.unique_state_count()
}

/// Searches a world for the shortest path to the property that a planted bug breaks.
fn finds(world: Small, what: &str) {
    let planted = world.planted;
    let any = HasDiscoveries::AnyFailures;
    let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
    let path = checker.discovery(SOUND).unwrap_or_else(|| panic!("{planted:?} was not found"));
    assert_eq!(path.last_state().broken, Some(what), "{planted:?}");
    let states = checker.unique_state_count();
    println!("{planted:?}: {states} states, {} steps", path.into_actions().len());
}

/// Walks through a world at random; returns the property that broke, and the number of steps.
fn walk(world: &Small, seed: u64, walks: usize) -> (Option<&'static str>, usize) {
    super::walk::walk(world, seed, walks, |world| world.broken)
}

/// Larger than can be explored in full.
const LARGE: Small = Small {
    attempts: 4,
    data_losses: 2,
    late: 2,
    losses: 2,
    replaced: true,
    counters_deleted: true,
    ..SMALL
};

#[test]
fn one_node_loses_its_data_without_clocks() {
    assert_eq!(explore(SMALL), 162_067);
}

#[test]
fn one_node_loses_its_data_with_clocks() {
    assert_eq!(explore(Small { clocks: true, ..SMALL }), 87_560);
}

#[test]
fn two_nodes_lose_their_data_and_commands_arrive_late() {
    let world = Small { attempts: 1, data_losses: 2, late: 1, clocks: true, ..SMALL };
    assert_eq!(explore(world), 95_117);
}

#[test]
fn two_attempts_a_data_loss_and_lost_and_late_messages() {
    let world = Small { late: 1, losses: 1, clocks: true, silences: false, ..SMALL };
    assert_eq!(explore(world), 1_986_139);
}

#[test]
fn tokens_are_proposed_from_clocks_and_one_node_loses_its_data() {
    assert_eq!(explore(Small { ahead: true, ..SMALL }), 586_077);
}

/// A replaced server comes back, and an operator readmits it.
const READMITTED: Small = Small { readmits: 1, again: true, clocks: true, ..SMALL };

#[test]
fn readmitting_a_server_with_its_old_state_is_detected() {
    let planted = Some(Planted::ReadmittedAtOnce);
    finds(Small { clocks: false, planted, ..READMITTED }, GROW);
}

#[test]
fn a_replaced_server_is_readmitted() {
    assert_eq!(explore(READMITTED), 264_938);
}

#[test]
fn a_majority_loses_its_data_and_an_operator_vouches() {
    let world = Small { attempts: 1, data_losses: 2, vouches: 1, late: 1, clocks: true, ..SMALL };
    assert_eq!(explore(world), 199_239);
}

#[test]
fn a_repeated_vouch_that_ends_a_later_quarantine_is_detected() {
    let planted = Some(Planted::VouchForAny);
    let world = Small { vouches: 1, data_losses: 3, again: true, clocks: true, ..SMALL };
    finds(Small { silences: false, planted, ..world }, ALONE);
}

#[test]
fn a_repeated_report_that_ends_a_later_quarantine_is_detected() {
    let planted = Some(Planted::AnyEpisode);
    let world = Small { data_losses: 2, again: true, clocks: true, ..SMALL };
    finds(Small { silences: false, planted, ..world }, ALONE);
}

#[test]
fn one_node_is_replaced_and_stays_reachable() {
    assert_eq!(explore(Small { replaced: true, clocks: true, ..SMALL }), 439_054);
}

#[test]
fn one_node_is_restored_from_an_old_copy() {
    assert_eq!(explore(Small { restores: 1, data_losses: 0, clocks: true, ..SMALL }), 187_934);
}

/// Only the membership: nodes are replaced one after the other, and still run.
const LISTS: Small = Small { attempts: 0, data_losses: 3, replaced: true, lists: true, ..SMALL };

#[test]
fn clients_that_reach_only_former_members_cannot_split_the_set() {
    assert_eq!(explore(LISTS), 1_033);
}

#[test]
fn clients_with_a_wrong_list_evict_nobody() {
    explore(Small { wrong: true, ..LISTS });
}

#[test]
fn a_replacement_by_an_operator_never_makes_a_second_majority() {
    explore(Small { wrong: true, replaces: true, ..LISTS });
}

#[test]
fn planted_bugs_in_membership_are_detected() {
    finds(Small { planted: Some(Planted::NonMembersCount), ..LISTS }, ONE);
    finds(Small { planted: Some(Planted::LeftoverSlotTaken), wrong: true, ..LISTS }, EVICTED);
}

/// Two majorities arise if former members answer at the addresses of the present ones, and a
/// member that has lost its data is readmitted beside them.
#[test]
fn a_change_while_members_are_neither_seen_nor_placed_makes_two_majorities() {
    finds(Small { planted: Some(Planted::MembersUnseen), ..LISTS }, ONE);
}

#[test]
fn leases_are_healed_where_they_were_lost() {
    let world = Small { renewals: 2, data_losses: 0, losses: 1, clocks: true, ..SMALL };
    assert_eq!(explore(world), 140_803);
}

/// No clock is right here: a lease ends on a node at any moment, and requests arrive at any.
const LATE_VOTES: Small =
    Small { renewals: 2, data_losses: 0, late_votes: true, clocks: false, ..SMALL };

#[test]
fn late_requests_do_not_change_the_token_of_a_known_lease_id() {
    for (data_losses, walks) in [(0, 60_000), (1, 15_000)] {
        let world = Small { renewals: 4, attempts: 3, data_losses, ..LATE_VOTES };
        let (broken, steps) = walk(&world, 1, walks);
        assert_eq!(broken, None, "{data_losses} forget");
        println!("{data_losses} forget: {steps} steps");
    }
    explore(LATE_VOTES);
}

#[test]
fn healing_with_an_unproven_token_and_healed_records_as_evidence_are_detected() {
    finds(Small { planted: Some(Planted::HealedProves), ..LATE_VOTES }, SAME);
    finds(Small { planted: Some(Planted::HealedWithTheMost), ..LATE_VOTES }, HEALED);
}

#[test]
fn random_walks_through_larger_worlds() {
    for clocks in [false, true] {
        for nodes in [3, 4, 5] {
            let world = Small { nodes, clocks, renewals: 4, restores: 2, ..LARGE };
            let world = Small { ahead: true, readmits: 1, vouches: 1, stale_reports: 2, ..world };
            let (broken, steps) = walk(&world, 1, 3_000);
            assert_eq!(broken, None, "{nodes} nodes, clocks: {clocks}");
            println!("{nodes} nodes, clocks: {clocks}: {steps} steps");
        }
    }
}

#[test]
fn planted_bugs_are_detected() {
    for planted in PLANTED {
        let timed = Small { clocks: true, ..LARGE };
        let world = match planted {
            Planted::NoWait => timed,
            Planted::HealedAtOnce => Small { renewals: 4, ..timed },
            Planted::AskedAfterUndo => Small { data_losses: 0, ..timed },
            Planted::OldBase => Small { data_losses: 0, ..LARGE },
            Planted::ClockAlone => Small { data_losses: 2, ahead: true, ..SMALL },
            Planted::OldCopy => Small { attempts: 4, data_losses: 0, restores: 1, ..SMALL },
            _ => Small { counters_deleted: false, ..LARGE },
        };
        let (broken, steps) = walk(&Small { planted: Some(planted), ..world }, 1, 30_000);
        let broken = broken.unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: {broken}, found after {steps} steps");
    }
}

/// It takes fourteen steps in one order, which no random walk finds.
#[test]
fn a_quarantine_that_begins_too_early_is_detected() {
    let planted = Some(Planted::WaitBeforeAgreed);
    let world = Small { replaced: true, late: 1, clocks: true, planted, ..SMALL };
    finds(world, ALONE);
}
