//! Small worlds of attempts and nodes, explored in full: requests and answers arrive in any order,
//! late, twice or never, and each lease on each node may end at any moment.
//!
//! This checks fencing alone, so no time enters: what holds here holds with any clock.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, Model, Property};

use super::{id, token};
use crate::Moment;
use crate::quorum::ballot::VoteEntry;
use crate::quorum::{Ballot, BallotOutcome, NameRegister, Vote, WriteBack, WriteBackReply};

const GROW: &str = "tokens are distinct and grow";

/// A planted bug: a rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// The largest token in the answers is granted without evidence.
    NoWriteBack,
    /// A write-back does not check the holder.
    WriteBackWithoutOwnership,
    /// A counter above the token counts as evidence.
    HigherIsGoodEnough,
    /// A grant does not raise the counter.
    GrantRaisesNothing,
    /// A minority is enough.
    TooFew,
}

const PLANTED: [Planted; 5] = [
    Planted::NoWriteBack,
    Planted::WriteBackWithoutOwnership,
    Planted::HigherIsGoodEnough,
    Planted::GrantRaisesNothing,
    Planted::TooFew,
];

/// A message in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Packet {
    Ask { attempt: usize, node: usize },
    Vote { attempt: usize, node: usize, last: Option<u64> },
    Write { attempt: usize, node: usize, token: u64 },
    Written { attempt: usize, node: usize, last: Option<u64> },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    ballot: Ballot,
    proposed: u64,
    /// The largest token that was granted before this attempt began.
    floor: u64,
    wrote: bool,
    won: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    nodes: Vec<NameRegister>,
    attempts: Vec<Attempt>,
    net: BTreeSet<Packet>,
    repeats: u8,
    silences: u8,
    broken: Option<&'static str>,
    seen: Seen,
}

/// What has happened before this state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    one_round: bool,
    two_rounds: bool,
    overlap: bool,
    nobody: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Begin { proposed: u64 },
    Deliver(Packet),
    Repeat(Packet),
    Silence { attempt: usize, node: usize },
    Expire { node: usize },
}

struct Small {
    counters: Vec<Vec<u64>>,
    attempts: usize,
    proposals: Vec<u64>,
    repeats: u8,
    silences: u8,
    planted: Option<Planted>,
}

impl World {
    /// Orders the nodes: worlds that differ only by that order are equal.
    fn canonical(self) -> World {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_cached_key(|node| self.seen_from(*node));
        if order.is_sorted() {
            return self;
        }
        let place = |node: usize| order.iter().position(|old| *old == node).unwrap_or(node);
        let net = self.net.iter().map(|packet| packet.at(place)).collect();
        let nodes = order.iter().map(|old| self.nodes[*old]).collect();
        let mut attempts = self.attempts;
        attempts.iter_mut().for_each(|attempt| attempt.ballot.reorder(&order));
        World { nodes, attempts, net, ..self }
    }

    /// Returns everything that concerns one node.
    fn seen_from(&self, node: usize) -> (NameRegister, Vec<Packet>, Vec<VoteEntry>) {
        let packets = self.net.iter().filter(|packet| packet.node() == node);
        let packets = packets.map(|packet| packet.at(|_| 0)).collect();
        let entries = self.attempts.iter().map(|attempt| attempt.ballot.entry(node)).collect();
        (self.nodes[node], packets, entries)
    }
}

impl Packet {
    fn node(&self) -> usize {
        match *self {
            Packet::Ask { node, .. }
            | Packet::Vote { node, .. }
            | Packet::Write { node, .. }
            | Packet::Written { node, .. } => node,
        }
    }

    fn at(self, place: impl FnOnce(usize) -> usize) -> Packet {
        let mut moved = self;
        match &mut moved {
            Packet::Ask { node, .. }
            | Packet::Vote { node, .. }
            | Packet::Write { node, .. }
            | Packet::Written { node, .. } => *node = place(*node),
        }
        moved
    }
}

impl Small {
    fn id(attempt: usize) -> crate::LeaseId {
        id(u8::try_from(attempt + 1).expect("few attempts"))
    }

    fn deliver(&self, world: &mut World, packet: Packet) {
        match packet {
            Packet::Ask { attempt, node } => {
                let proposed = world.attempts[attempt].proposed;
                let register = &mut world.nodes[node];
                if self.planted == Some(Planted::GrantRaisesNothing) && register.holder().is_none()
                {
                    *register = register_at(register.last().saturating_sub(1));
                }
                let vote = register.acquire(Small::id(attempt), 0, proposed);
                let last = match vote.expect("small numbers") {
                    Vote::Granted { last } => Some(last.get()),
                    Vote::Busy | Vote::Healed => None,
                };
                world.net.insert(Packet::Vote { attempt, node, last });
            }
            Packet::Write { attempt, node, token: number } => {
                let mine = Small::id(attempt);
                let register = &mut world.nodes[node];
                let owner = match (self.planted, register.holder()) {
                    (Some(Planted::WriteBackWithoutOwnership), Some(holder)) => holder,
                    _ => mine,
                };
                let written = register.write_back(owner, token(number));
                let last = match written {
                    WriteBackReply::Counter(last) => Some(last.get()),
                    WriteBackReply::NotHeld => None,
                };
                world.net.insert(Packet::Written { attempt, node, last });
            }
            Packet::Vote { attempt, node, last } => {
                let vote = last.map_or(Vote::Busy, |last| Vote::Granted { last: token(last) });
                world.attempts[attempt].ballot.voted(node, vote);
                self.decide(world, attempt);
            }
            Packet::Written { attempt, node, last } => {
                let mut last = last.map(token);
                if self.planted == Some(Planted::HigherIsGoodEnough) {
                    let target = world.attempts[attempt].ballot.target;
                    last = last.and_then(|last| target.map(|target| last.min(target)));
                }
                let written = last.map_or(WriteBackReply::NotHeld, WriteBackReply::Counter);
                world.attempts[attempt].ballot.written(node, written);
                self.decide(world, attempt);
            }
        }
    }

    fn decide(&self, world: &mut World, number: usize) {
        let before = world.attempts[number].won;
        let attempt = &mut world.attempts[number];
        let was_open = attempt.ballot.outcome == BallotOutcome::Pending;
        let outcome = attempt.ballot.decide(Moment::ORIGIN);
        let commands = attempt.ballot.take_write_backs();
        let wrote = !commands.is_empty();
        attempt.wrote |= wrote;
        for command in commands {
            let WriteBack { node, token } = command;
            world.net.insert(Packet::Write { attempt: number, node, token: token.get() });
        }
        let won = match (outcome, self.planted) {
            (BallotOutcome::Won { token, .. }, _) => Some(token.get()),
            (BallotOutcome::Pending, Some(Planted::NoWriteBack)) if wrote => {
                world.attempts[number].ballot.target.map(|target| target.get())
            }
            (BallotOutcome::Pending | BallotOutcome::Lost, Some(Planted::TooFew)) => {
                world.attempts[number].ballot.largest_token().map(|last| last.get())
            }
            _ => None,
        };
        world.seen.nobody |= outcome == BallotOutcome::Lost;
        if let (Some(won), None, true) = (won, before, was_open) {
            self.win(world, number, won);
        }
    }

    fn win(&self, world: &mut World, number: usize, won: u64) {
        let attempt = &world.attempts[number];
        if won <= attempt.floor {
            world.broken = Some("a later grant has a smaller token");
        }
        if world.attempts.iter().any(|other| other.won == Some(won)) {
            world.broken = Some("two grants have one token");
        }
        let others = world.attempts.iter().enumerate();
        world.seen.overlap |= others.filter(|(at, _)| *at != number).any(|(_, o)| o.won.is_some());
        let direct = !world.attempts[number].wrote;
        world.seen.one_round |= direct;
        world.seen.two_rounds |= !direct;
        world.attempts[number].won = Some(won);
    }
}

/// A register that was used before.
fn register_at(last: u64) -> NameRegister {
    let mut register = NameRegister::default();
    if last > 0 {
        register.acquire(id(0xff), last - 1, 0).expect("small numbers");
        register.expire();
    }
    register
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let world = |counters: &Vec<u64>| World {
            nodes: counters.iter().map(|last| register_at(*last)).collect(),
            attempts: Vec::new(),
            net: BTreeSet::new(),
            repeats: self.repeats,
            silences: self.silences,
            broken: None,
            seen: Seen::default(),
        };
        self.counters.iter().map(world).collect()
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        if world.attempts.len() < self.attempts {
            actions.extend(self.proposals.iter().map(|p| Action::Begin { proposed: *p }));
        }
        for packet in &world.net {
            actions.push(Action::Deliver(*packet));
            if world.repeats > 0 && matches!(packet, Packet::Ask { .. } | Packet::Write { .. }) {
                actions.push(Action::Repeat(*packet));
            }
        }
        for (attempt, of) in world.attempts.iter().enumerate() {
            if world.silences > 0 && of.ballot.outcome == BallotOutcome::Pending {
                let silent = of.ballot.awaited().map(|node| Action::Silence { attempt, node });
                actions.extend(silent);
            }
        }
        for (node, register) in world.nodes.iter().enumerate() {
            if register.holder().is_some() {
                actions.push(Action::Expire { node });
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Begin { proposed } => {
                let nodes = world.nodes.len();
                let mut ballot = Ballot::new(nodes, Duration::from_secs(10));
                let attempt = world.attempts.len();
                for node in 0..nodes {
                    ballot.asked(node, Moment::ORIGIN);
                    world.net.insert(Packet::Ask { attempt, node });
                }
                let floor = world.attempts.iter().filter_map(|other| other.won).max().unwrap_or(0);
                world.attempts.push(Attempt { ballot, proposed, floor, wrote: false, won: None });
            }
            Action::Deliver(packet) => {
                world.net.remove(&packet);
                self.deliver(&mut world, packet);
            }
            Action::Repeat(packet) => {
                world.repeats -= 1;
                self.deliver(&mut world, packet);
            }
            Action::Silence { attempt, node } => {
                world.silences -= 1;
                world.attempts[attempt].ballot.unanswered(node);
                self.decide(&mut world, attempt);
            }
            Action::Expire { node } => world.nodes[node].expire(),
        }
        Some(world.canonical())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(GROW, |_, world: &World| world.broken.is_none()),
            Property::sometimes("a token in one round", |_, world: &World| world.seen.one_round),
            Property::sometimes("a token in two rounds", |_, world: &World| world.seen.two_rounds),
            Property::sometimes("two grants at once", |_, world: &World| world.seen.overlap),
            Property::sometimes("an attempt without success", |_, world: &World| world.seen.nobody),
        ]
    }
}

/// Two attempts over three nodes, whose counters differ.
fn two_attempts(planted: Option<Planted>) -> Small {
    Small {
        counters: vec![vec![0, 1, 2]],
        attempts: 2,
        proposals: vec![0],
        repeats: 0,
        silences: 1,
        planted,
    }
}

/// One request arrives once more, whenever that may be.
fn with_a_repeat(planted: Option<Planted>) -> Small {
    Small { counters: vec![vec![0, 0, 1]], repeats: 1, silences: 0, ..two_attempts(planted) }
}

fn explore(world: Small) -> impl Checker<Small> {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!("{} states, {} unique", checker.state_count(), checker.unique_state_count());
    checker
}

#[test]
fn two_attempts_in_full() {
    explore(two_attempts(None)).assert_properties();
}

#[test]
fn two_attempts_and_a_repeated_request_in_full() {
    explore(with_a_repeat(None)).assert_properties();
}

#[test]
fn planted_bugs_are_detected() {
    for planted in PLANTED {
        let world = match planted {
            Planted::HigherIsGoodEnough => with_a_repeat(Some(planted)),
            // With equal counters it takes the fewest steps.
            Planted::TooFew => Small { counters: vec![vec![0; 3]], ..two_attempts(Some(planted)) },
            _ => two_attempts(Some(planted)),
        };
        let found = explore(world).discovery(GROW);
        let path = found.unwrap_or_else(|| panic!("{planted:?} was not found"));
        println!("{planted:?}: {} steps", path.into_actions().len());
    }
}
