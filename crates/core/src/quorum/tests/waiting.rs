//! Clients that measure the quarantine of one node, explored in full: they read it, are slow, die,
//! and their messages arrive late, twice or never.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{TestSet, desired, node_id};
use crate::quorum::node::Quarantine;
use crate::quorum::{Configuration, MemberState, NodeCommand, NodeId, QuorumNode};

/// The length of the quarantine, and of a world, in microseconds.
const WAIT: u64 = 2;
const END: u64 = 4;
const CLIENTS: usize = 2;
/// How many messages are sent; each may arrive any number of times.
const MESSAGES: usize = 3;
const WHOLE: &str = "a quarantine that is over has lasted its full length";
/// The node that has the slot in between, and the id under which the first node comes back.
const BETWEEN: u8 = 90;
const RETURNED: u8 = 91;

/// A planted bug: a rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// Each client's time counts, even where both measured the same.
    Summed,
    /// The quarantine of another tenure is not distinguished from this one.
    AnyTenure,
    /// A client measures from before its request.
    FromTheRequest,
    /// A client continues measuring across two tenures.
    AcrossBoth,
}

/// What was left of the quarantine of an id at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Reading {
    id: NodeId,
    left: u64,
    at: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// When it last asked, while the answer is pending.
    asked: Option<u64>,
    /// The answer that leaves the least, and from when on the client measures that.
    known: Option<Reading>,
}

/// A report on its way: the quarantine of this id had so much left, and so much has passed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    id: NodeId,
    left: u64,
    passed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    node: QuorumNode,
    /// When the quarantine last began.
    began: u64,
    clients: Vec<Client>,
    sent: BTreeSet<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask(usize),
    Answer(usize),
    Send(usize),
    Arrive(Message),
    /// Another node is given the slot, and the first one is readmitted.
    Return,
}

struct Small {
    start: QuorumNode,
    planted: Option<Planted>,
}

impl Small {
    fn new(planted: Option<Planted>) -> Small {
        let mut set = TestSet::initial(3);
        set.wipe(2, "again");
        set.settle(&desired(3, false));
        let mut start = set.nodes.remove(2);
        start.quarantine = Some(Quarantine { left: WAIT, by_time: false });
        Small { start, planted }
    }

    fn send(node: &mut QuorumNode, command: NodeCommand) -> bool {
        let marker = node.marker.clone();
        node.apply(&marker, command, 0)
    }

    /// The slot goes to another node and back.
    fn return_node(&self, world: &mut World) {
        let [between, returned] = [BETWEEN, RETURNED].map(node_id);
        let first = self.start.id;
        let known = self.start.configuration.clone().expect("it is a member");
        let without = known.successor(&[(first, between, "b")]);
        let again = without.successor(&[(between, returned, "c")]);
        let adopt = |from: &Configuration, next: &Configuration| NodeCommand::Adopt {
            from: Some(from.stamp()),
            configuration: next.clone(),
        };
        let commands = [
            adopt(&known, &without),
            NodeCommand::Readmit { id: first, fresh: returned },
            adopt(&without, &again),
            NodeCommand::BeginQuarantine {
                episode: returned,
                stamp: again.stamp(),
                quarantine: Duration::from_micros(WAIT),
                by_time: false,
                floor: 0,
            },
        ];
        for command in commands {
            assert!(Small::send(&mut world.node, command.clone()), "{command:?}");
        }
        world.began = world.now;
    }
}

/// Returns whether the quarantine is over.
fn over(world: &World) -> bool {
    world.node.state == MemberState::Voting
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            node: self.start.clone(),
            began: 0,
            clients: vec![Client::default(); CLIENTS],
            sent: BTreeSet::new(),
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < END {
            actions.push(Action::Tick);
        }
        for (at, client) in world.clients.iter().enumerate() {
            // The time of the request matters only to the bug that measures from it.
            let waits = client.asked.is_some() || self.planted != Some(Planted::FromTheRequest);
            actions.push(if waits { Action::Answer(at) } else { Action::Ask(at) });
            let has_measured = |known: Reading| known.left > 0 && known.at < world.now;
            if world.sent.len() < MESSAGES && client.known.is_some_and(has_measured) {
                actions.push(Action::Send(at));
            }
        }
        actions.extend(world.sent.iter().map(|message| Action::Arrive(*message)));
        if !over(world) && world.node.id == self.start.id {
            actions.push(Action::Return);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let now = world.now;
        match action {
            Action::Tick => world.now += 1,
            Action::Ask(at) => world.clients[at].asked = Some(now),
            Action::Answer(at) => {
                let since = world.clients[at].asked.take().unwrap_or(now);
                let left = world.node.quarantine?.left;
                let answer = Reading { id: world.node.id, left, at: since };
                let both = self.planted == Some(Planted::AcrossBoth);
                let before = world.clients[at].known;
                let before = before.filter(|before| both || before.id == answer.id);
                let is_earlier =
                    |before: &Reading| before.left + before.at <= answer.left + answer.at;
                let known = before.filter(is_earlier).unwrap_or(answer);
                world.clients[at].known = Some(Reading { id: answer.id, ..known });
            }
            Action::Send(at) => {
                let Reading { id, left, at } = world.clients[at].known?;
                world.sent.insert(Message { id, left, passed: now - at });
            }
            Action::Arrive(message) => {
                let mine = world.node.quarantine?;
                let episode = match self.planted {
                    Some(Planted::AnyTenure) => world.node.id,
                    _ => message.id,
                };
                let left = match self.planted {
                    Some(Planted::Summed) => mine.left,
                    _ => message.left,
                };
                let left = Duration::from_micros(left);
                let passed = Duration::from_micros(message.passed);
                let report = NodeCommand::ReportWait { episode, left, passed };
                Small::send(&mut world.node, report);
            }
            Action::Return => self.return_node(&mut world),
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WHOLE, |_, world: &World| {
                !over(world) || world.now - world.began >= WAIT
            }),
            Property::sometimes("a quarantine ends", |_, world: &World| over(world)),
            Property::sometimes("that of a second tenure ends", |_, world: &World| {
                over(world) && world.began > 0
            }),
        ]
    }
}

#[test]
fn a_quarantine_is_measured_in_full_by_any_clients() {
    let checker = Small::new(None).checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 16_187);
}

#[test]
fn planted_bugs_in_measuring_are_detected() {
    for planted in
        [Planted::Summed, Planted::AnyTenure, Planted::FromTheRequest, Planted::AcrossBoth]
    {
        let any = HasDiscoveries::AnyFailures;
        let world = Small::new(Some(planted));
        let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
        assert!(checker.discovery(WHOLE).is_some(), "{planted:?} was not found");
    }
}
