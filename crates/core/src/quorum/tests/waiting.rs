//! Clients that measure the wait of one node, explored in full: they look, are slow, die, and their
//! messages arrive late, twice or never.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{Set, wish};
use crate::quorum::node::Quarantine;
use crate::quorum::{Node, NodeId, Stamp, Told};

/// How long the node must wait, and how long a world lasts, in microseconds.
const WAIT: u64 = 2;
const END: u64 = 4;
const CLIENTS: usize = 2;
/// How many messages are sent; each may arrive any number of times.
const MESSAGES: usize = 3;
const WHOLE: &str = "a wait that is over has lasted as long as it must";

/// A rule left out or written wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// The time that each client measured counts, also where both measured the same.
    Added,
    /// A wait that began anew is not told from the one before.
    EitherWait,
    /// A client measures from before it asked.
    FromTheRequest,
    /// A client goes on measuring over a wait that began anew.
    OverBoth,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// When it asked last, while the answer is not there.
    asked: Option<u64>,
    /// What the node answered when the least was left since, and from when on it measures that.
    known: Option<(Quarantine, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    node: Node,
    /// When the wait began, for the last time.
    began: u64,
    clients: Vec<Client>,
    sent: BTreeSet<(Quarantine, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    Ask(usize),
    Answer(usize),
    Send(usize),
    Arrive(Quarantine, u64),
    BeginAnew,
}

struct Small {
    episode: NodeId,
    stamp: Stamp,
    start: Node,
    planted: Option<Planted>,
}

impl Small {
    fn new(planted: Option<Planted>) -> Small {
        let mut set = Set::founded(3);
        set.wipe(2, "again");
        set.settle(&wish(3, false));
        let (stamp, mut start) = (set.configuration(2).stamp(), set.nodes.remove(2));
        start.quarantine = Some(Quarantine { left: WAIT, by_time: false });
        Small { episode: start.id, stamp, start, planted }
    }

    fn tell(&self, node: &mut Node, told: Told) {
        let marker = node.marker.clone();
        node.told(&marker, told, 0);
    }
}

/// Tells whether the wait is over.
fn over(world: &World) -> bool {
    world.node.quarantine.is_some_and(|begun| begun.left == 0)
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
            // When it asked is of interest only where it measures from then on.
            let waits = client.asked.is_some() || self.planted != Some(Planted::FromTheRequest);
            actions.push(if waits { Action::Answer(at) } else { Action::Ask(at) });
            if world.sent.len() < MESSAGES
                && client.known.is_some_and(|(known, since)| known.left > 0 && since < world.now)
            {
                actions.push(Action::Send(at));
            }
        }
        actions.extend(world.sent.iter().map(|(known, passed)| Action::Arrive(*known, *passed)));
        if world.node.quarantine.is_some_and(|begun| !begun.by_time && begun.left > 0) {
            actions.push(Action::BeginAnew);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let (episode, stamp, now) = (self.episode, self.stamp, world.now);
        match action {
            Action::Tick => world.now += 1,
            Action::Ask(at) => world.clients[at].asked = Some(now),
            Action::Answer(at) => {
                let since = world.clients[at].asked.take().unwrap_or(now);
                let said = world.node.quarantine?;
                let known = &mut world.clients[at].known;
                let both = self.planted == Some(Planted::OverBoth);
                *known = match *known {
                    Some((before, from)) if both || before.by_time == said.by_time => {
                        let earlier = before.left + from <= said.left + since;
                        let (left, since) =
                            if earlier { (before.left, from) } else { (said.left, since) };
                        Some((Quarantine { left, by_time: said.by_time }, since))
                    }
                    _ => Some((said, since)),
                };
            }
            Action::Send(at) => {
                let (known, since) = world.clients[at].known?;
                world.sent.insert((known, now - since));
            }
            Action::Arrive(known, passed) => {
                let mine = world.node.quarantine?;
                let known = match self.planted {
                    Some(Planted::Added) => Quarantine { by_time: known.by_time, ..mine },
                    Some(Planted::EitherWait) => Quarantine { left: known.left, ..mine },
                    _ => known,
                };
                let (left, passed) =
                    (Duration::from_micros(known.left), Duration::from_micros(passed));
                let by_time = known.by_time;
                self.tell(&mut world.node, Told::Waited { episode, stamp, by_time, left, passed });
            }
            Action::BeginAnew => {
                let (quarantine, by_time) = (Duration::from_micros(WAIT), true);
                self.tell(&mut world.node, Told::Begin { episode, stamp, quarantine, by_time });
                world.began = now;
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(WHOLE, |_, world: &World| {
                !over(world) || world.now - world.began >= WAIT
            }),
            Property::sometimes("a wait ends", |_, world: &World| over(world)),
            Property::sometimes("it ends after it began anew", |_, world: &World| {
                over(world) && world.began > 0
            }),
        ]
    }
}

#[test]
fn a_wait_lasts_as_long_as_it_must_whoever_measures_it() {
    let checker = Small::new(None).checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 17_021);
}

#[test]
fn a_wait_that_is_measured_wrongly_is_seen() {
    for planted in [Planted::Added, Planted::EitherWait, Planted::FromTheRequest, Planted::OverBoth]
    {
        let any = HasDiscoveries::AnyFailures;
        let world = Small::new(Some(planted));
        let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
        assert!(checker.discovery(WHOLE).is_some(), "{planted:?} was not found");
    }
}
