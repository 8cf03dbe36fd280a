//! Clients that measure the quarantine of one node, explored in full: they read it, are slow, die,
//! and their messages arrive late, twice or never.

use std::collections::BTreeSet;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{TestSet, desired};
use crate::quorum::node::Quarantine;
use crate::quorum::{NodeCommand, NodeId, QuorumNode, Stamp};

/// The length of the quarantine, and of a world, in microseconds.
const WAIT: u64 = 2;
const END: u64 = 4;
const CLIENTS: usize = 2;
/// How many messages are sent; each may arrive any number of times.
const MESSAGES: usize = 3;
const WHOLE: &str = "a quarantine that is over has lasted its full length";

/// A planted bug: a rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// Each client's time counts, even where both measured the same.
    Summed,
    /// A restarted quarantine is not distinguished from the one before.
    AnyQuarantine,
    /// A client measures from before its request.
    FromTheRequest,
    /// A client continues measuring across a restarted quarantine.
    AcrossBoth,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Client {
    /// When it last asked, while the answer is pending.
    asked: Option<u64>,
    /// The answer that leaves the least, and from when on the client measures that.
    known: Option<(Quarantine, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: u64,
    node: QuorumNode,
    /// When the quarantine last began.
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
    Restart,
}

struct Small {
    episode: NodeId,
    stamp: Stamp,
    start: QuorumNode,
    planted: Option<Planted>,
}

impl Small {
    fn new(planted: Option<Planted>) -> Small {
        let mut set = TestSet::initial(3);
        set.wipe(2, "again");
        set.settle(&desired(3, false));
        let (stamp, mut start) = (set.configuration(2).stamp(), set.nodes.remove(2));
        start.quarantine = Some(Quarantine { left: WAIT, by_time: false });
        Small { episode: start.id, stamp, start, planted }
    }

    fn send(&self, node: &mut QuorumNode, command: NodeCommand) {
        let marker = node.marker.clone();
        node.apply(&marker, command, 0);
    }
}

/// Returns whether the quarantine is over.
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
            // The time of the request matters only to the bug that measures from it.
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
            actions.push(Action::Restart);
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
                let answer = world.node.quarantine?;
                let known = &mut world.clients[at].known;
                let both = self.planted == Some(Planted::AcrossBoth);
                *known = match *known {
                    Some((before, from)) if both || before.by_time == answer.by_time => {
                        let earlier = before.left + from <= answer.left + since;
                        let (left, since) =
                            if earlier { (before.left, from) } else { (answer.left, since) };
                        Some((Quarantine { left, by_time: answer.by_time }, since))
                    }
                    _ => Some((answer, since)),
                };
            }
            Action::Send(at) => {
                let (known, since) = world.clients[at].known?;
                world.sent.insert((known, now - since));
            }
            Action::Arrive(known, passed) => {
                let mine = world.node.quarantine?;
                let known = match self.planted {
                    Some(Planted::Summed) => Quarantine { by_time: known.by_time, ..mine },
                    Some(Planted::AnyQuarantine) => Quarantine { left: known.left, ..mine },
                    _ => known,
                };
                let (left, passed) =
                    (Duration::from_micros(known.left), Duration::from_micros(passed));
                let by_time = known.by_time;
                self.send(
                    &mut world.node,
                    NodeCommand::ReportWait { episode, stamp, by_time, left, passed },
                );
            }
            Action::Restart => {
                let (quarantine, by_time) = (Duration::from_micros(WAIT), true);
                self.send(
                    &mut world.node,
                    NodeCommand::BeginQuarantine { episode, stamp, quarantine, by_time },
                );
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
            Property::sometimes("a quarantine ends", |_, world: &World| over(world)),
            Property::sometimes("it ends after a restart", |_, world: &World| {
                over(world) && world.began > 0
            }),
        ]
    }
}

#[test]
fn a_quarantine_is_measured_in_full_by_any_clients() {
    let checker = Small::new(None).checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    assert_eq!(checker.unique_state_count(), 17_021);
}

#[test]
fn planted_bugs_in_measuring_are_detected() {
    for planted in
        [Planted::Summed, Planted::AnyQuarantine, Planted::FromTheRequest, Planted::AcrossBoth]
    {
        let any = HasDiscoveries::AnyFailures;
        let world = Small::new(Some(planted));
        let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
        assert!(checker.discovery(WHOLE).is_some(), "{planted:?} was not found");
    }
}
