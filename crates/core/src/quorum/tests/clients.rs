//! Clients that found a set and maintain it, each by a list of its own, explored in full.
//!
//! A client sees one server at a time, so its views are of different moments. It may die between
//! any two steps, and what it has sent arrives in any order, late, twice or never. Nobody holds a
//! lock here: the subject is who belongs to a set. A wait may end at any moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{Set, node_id, wish};
use super::walk::walk;
use crate::quorum::configuration::DEFAULT_MAX_LEASE;
use crate::quorum::{
    Configuration, Gate, Node, NodeId, Plan, Stamp, Standing, Told, View, Wish, majority, plan,
};

const SOUND: &str = "nothing breaks";
const SHARED: &str = "two sets were founded that share a server";
const TWO: &str = "two configurations have a majority each";
const EVICTED: &str = "a server that forgot nothing lost its slot";
const BACK: &str = "a majority that forgot is back";
const STOPPED: &str = "a majority that votes under one configuration is of no use";

/// A rule left out or written wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// A set is founded once a majority has accepted it.
    FoundedByMajority,
    /// A server takes a proposal in place of any other.
    AnyProposal,
    /// A newcomer takes the only slot whose server is not seen, whatever its address.
    RestTakesRest,
    /// One server of another set stops everybody.
    OneStopsAll,
    /// A client does not know which member it saw at an address before.
    NoMemory,
}

/// What a client is given.
#[derive(Clone, Copy)]
struct Client {
    /// The servers that it lists.
    list: &'static [usize],
    /// How it names them: this, and the server's number.
    names: &'static str,
    max_lease: Duration,
    vouched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    servers: Vec<Arc<Node>>,
    /// What each client has seen last of each server on its list.
    views: Vec<Vec<Option<Arc<View>>>>,
    /// Which member each client saw last at each place.
    before: Vec<Vec<Option<NodeId>>>,
    /// What was sent to which server.
    sent: BTreeSet<(usize, Arc<Told>)>,
    acts: Vec<u8>,
    forgotten: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    See { client: usize, at: usize },
    Miss { client: usize, at: usize },
    Act { client: usize },
    Arrive { which: usize },
    Forget { server: usize },
    EndWait { server: usize },
}

struct Small {
    servers: usize,
    clients: &'static [Client],
    /// The servers that are a set from the start.
    founded: &'static [usize],
    /// This one is of another set from the start.
    foreign: Option<usize>,
    /// How often each client looks and acts.
    acts: &'static [u8],
    forgettings: u8,
    /// How many servers may be silent for a client at a time.
    silences: usize,
    planted: Option<Planted>,
}

const PLAIN: Client =
    Client { list: &[0, 1, 2], names: "10.0.0.", max_lease: DEFAULT_MAX_LEASE, vouched: true };

const SMALL: Small = Small {
    servers: 3,
    clients: &[PLAIN, PLAIN],
    founded: &[],
    foreign: None,
    acts: &[2, 2],
    forgettings: 0,
    silences: 0,
    planted: None,
};

impl Client {
    fn wish(&self) -> Wish {
        let name = |server: &usize| format!("{}{server}:6379", self.names);
        let addresses = self.list.iter().map(name).collect();
        Wish { addresses, max_lease: self.max_lease, ..wish(self.list.len(), self.vouched) }
    }
}

fn is_founded(node: &Node) -> bool {
    !matches!(node.gate, Gate::Blank | Gate::Proposed)
}

fn stamp_of(view: &View) -> Option<Stamp> {
    view.configuration.as_ref().map(Configuration::stamp)
}

/// The id of a member.
fn member(view: &View) -> Option<NodeId> {
    view.configuration.as_ref().filter(|mine| mine.has(view.id)).map(|_| view.id)
}

impl Small {
    /// What a client that sees a server knows of it, and which member it saw there before.
    fn view(&self, node: &Node, before: Option<NodeId>) -> View {
        let view = node.view();
        let before = member(&view).or(before);
        let remembers = self.planted != Some(Planted::NoMemory);
        View { before: before.filter(|_| remembers), ..view }
    }

    fn start(&self) -> World {
        let mut set = Set::blank(self.servers);
        if !self.founded.is_empty() {
            let rest = set.nodes.split_off(self.founded.len());
            set.settle(&wish(self.founded.len(), true));
            set.nodes.extend(rest);
        }
        if let Some(foreign) = self.foreign {
            let mut others = Set::blank(3);
            others.nodes.iter_mut().zip(90..).for_each(|(node, id)| {
                *node = Node::blank("first".to_owned(), node_id(id));
            });
            others.settle(&wish(3, true));
            set.nodes[foreign] = others.nodes.swap_remove(0);
        }
        let view = |server: &usize| Some(Arc::new(self.view(&set.nodes[*server], None)));
        let views: Vec<Vec<_>> =
            self.clients.iter().map(|client| client.list.iter().map(view).collect()).collect();
        let before = |view: &Option<Arc<View>>| view.as_ref().and_then(|view| view.before);
        World {
            before: views.iter().map(|views| views.iter().map(before).collect()).collect(),
            views,
            servers: set.nodes.into_iter().map(Arc::new).collect(),
            sent: BTreeSet::new(),
            acts: vec![0; self.clients.len()],
            forgotten: 0,
            broken: None,
        }
    }

    /// What a client does about what it has seen.
    fn plan(&self, client: &Client, views: &[Option<View>]) -> Plan {
        let mut planned = plan(views, &client.wish());
        let stamps: BTreeSet<Stamp> = views.iter().flatten().filter_map(stamp_of).collect();
        match self.planted {
            Some(Planted::FoundedByMajority) => {
                let of = |stamp: &Stamp, view: &&View| stamp_of(view) == Some(*stamp);
                let alike = |stamp: &&Stamp| {
                    let alike = views.iter().flatten().filter(|view| of(stamp, view));
                    alike.count() >= majority(views.len())
                };
                if let Some(stamp) = stamps.iter().find(alike) {
                    let told = Told::Activate { stamp: *stamp, quarantine: None };
                    planned.steps.extend((0..views.len()).map(|at| (at, told.clone())));
                }
            }
            Some(Planted::RestTakesRest) => planned.steps.extend(rest_takes_rest(client, views)),
            Some(Planted::OneStopsAll) => {
                let sets: BTreeSet<_> = stamps.iter().map(|stamp| stamp.set).collect();
                if sets.len() > 1 {
                    let sets = views.iter().map(|view| view.as_ref().and_then(stamp_of)).collect();
                    planned.standing = Standing::Foreign { sets };
                    planned.steps.clear();
                }
            }
            Some(Planted::AnyProposal | Planted::NoMemory) | None => {}
        }
        planned
    }

    fn act(&self, world: &mut World, number: usize) {
        let client = &self.clients[number];
        let views: Vec<Option<View>> =
            world.views[number].iter().map(|view| view.as_deref().cloned()).collect();
        let planned = self.plan(client, &views);
        if !matches!(planned.standing, Standing::Agreed(_))
            && votes(&views) >= majority(views.len())
        {
            world.broken = Some(STOPPED);
        }
        world.acts[number] += 1;
        let sent = planned.steps.into_iter();
        world.sent.extend(sent.map(|(at, told)| (client.list[at], Arc::new(told))));
    }

    fn arrive(&self, world: &mut World, server: usize, told: &Told) {
        let mut told = told.clone();
        let node = Arc::make_mut(&mut world.servers[server]);
        if let (Some(Planted::AnyProposal), Told::Propose { from, .. }) = (self.planted, &mut told)
        {
            *from = stamp_of(&node.view());
        }
        let marker = node.marker.clone();
        node.told(&marker, told, 1_000_000);
        world.broken = world.broken.or_else(|| broken(world));
    }
}

/// Counts the servers that vote under the newest configuration that is seen.
fn votes(views: &[Option<View>]) -> usize {
    let members = || views.iter().flatten().filter(|view| view.gate == Gate::Open);
    let count = |stamp: Stamp| members().filter(|view| stamp_of(view) == Some(stamp)).count();
    let newest = views.iter().flatten().filter_map(stamp_of).map(|stamp| stamp.epoch).max();
    let stamps = members().filter_map(stamp_of).filter(|stamp| Some(stamp.epoch) == newest);
    stamps.map(count).max().unwrap_or(0)
}

/// The rule of before: who is left takes what is left.
fn rest_takes_rest(client: &Client, views: &[Option<View>]) -> Vec<(usize, Told)> {
    let seen = || views.iter().enumerate().filter_map(|(at, view)| Some((at, view.as_ref()?)));
    let newest = seen().filter_map(|(_, view)| view.configuration.as_ref());
    let Some(current) = newest.max_by_key(|one| one.epoch()) else { return Vec::new() };
    let lacks = |id: NodeId| seen().all(|(_, view)| view.id != id);
    let free: Vec<NodeId> =
        current.slots().iter().map(|slot| slot.id).filter(|id| lacks(*id)).collect();
    let new = |view: &View| !current.has(view.id) && view.gate == Gate::Blank;
    let newcomers: Vec<(usize, &View)> = seen().filter(|(_, view)| new(view)).collect();
    let ([old], [(at, view)]) = (&free[..], &newcomers[..]) else { return Vec::new() };
    let address = client.wish().addresses.swap_remove(*at);
    let next = current.successor(&[(*old, view.id, &address)]);
    let adopt = |(at, view): (usize, &View)| {
        (at, Told::Adopt { from: stamp_of(view), configuration: next.clone() })
    };
    seen().map(adopt).collect()
}

/// Looks at the servers themselves.
fn broken(world: &World) -> Option<&'static str> {
    let founded = || world.servers.iter().filter(|node| is_founded(node));
    let configurations: Vec<&Configuration> =
        founded().filter_map(|node| node.configuration.as_ref()).collect();
    let shared = configurations.iter().enumerate().any(|(at, one)| {
        let others = configurations[at + 1..].iter().filter(|other| other.set() != one.set());
        others.into_iter().any(|other| other.slots().iter().any(|slot| one.has(slot.id)))
    });
    if shared {
        return Some(SHARED);
    }
    let open: Vec<&Configuration> = founded()
        .filter(|node| node.gate == Gate::Open)
        .filter_map(|node| node.configuration.as_ref())
        .collect();
    let stamps: BTreeSet<Stamp> = open.iter().map(|one| one.stamp()).collect();
    let has_majority = |stamp: &&Stamp| {
        let alike: Vec<_> = open.iter().filter(|one| one.stamp() == **stamp).collect();
        alike.first().is_some_and(|one| alike.len() >= majority(one.slots().len()))
    };
    if stamps.iter().filter(has_majority).count() > 1 {
        return Some(TWO);
    }
    // No server moves to another address here.
    founded().any(|node| node.gate == Gate::Out && node.marker == "first").then_some(EVICTED)
}

impl Model for Small {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.start()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        for (client, views) in world.views.iter().enumerate() {
            if world.acts[client] >= self.acts[client] {
                continue;
            }
            let silent = views.iter().filter(|view| view.is_none()).count();
            for (at, view) in views.iter().enumerate() {
                let server = self.clients[client].list[at];
                let now = self.view(&world.servers[server], world.before[client][at]);
                if view.as_deref() != Some(&now) {
                    actions.push(Action::See { client, at });
                }
                if view.is_some() && silent < self.silences {
                    actions.push(Action::Miss { client, at });
                }
            }
            actions.push(Action::Act { client });
        }
        actions.extend((0..world.sent.len()).map(|which| Action::Arrive { which }));
        for (server, node) in world.servers.iter().enumerate() {
            if world.forgotten < self.forgettings && Some(server) != self.foreign {
                actions.push(Action::Forget { server });
            }
            if node.quarantine.is_some_and(|begun| begun.left > 0) {
                actions.push(Action::EndWait { server });
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::See { client, at } => {
                let server = self.clients[client].list[at];
                let view = self.view(&world.servers[server], world.before[client][at]);
                world.before[client][at] = view.before;
                world.views[client][at] = Some(Arc::new(view));
            }
            Action::Miss { client, at } => world.views[client][at] = None,
            Action::Act { client } => {
                self.act(&mut world, client);
                // What nobody can tell from not having acted is left out.
                if world.sent == last.sent && world.broken.is_none() {
                    return None;
                }
            }
            Action::Arrive { which } => {
                let (server, told) = world.sent.iter().nth(which).cloned()?;
                self.arrive(&mut world, server, &told);
            }
            Action::Forget { server } => {
                world.forgotten += 1;
                let (marker, fresh) = (world.forgotten.to_string(), node_id(100 + world.forgotten));
                world.servers[server] = Arc::new(Node::blank(marker, fresh));
            }
            Action::EndWait { server } => {
                let node = Arc::make_mut(&mut world.servers[server]);
                node.quarantine.as_mut()?.left = 0;
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties =
            vec![Property::always(SOUND, |_, world: &World| world.broken.is_none())];
        if self.founded.is_empty() {
            properties.push(Property::sometimes("all of one list vote", |_, world: &World| {
                world.servers.iter().filter(|node| node.gate == Gate::Open).count() > 2
            }));
        }
        if self.founded.is_empty() && self.clients[0].list != self.clients[1].list {
            properties.push(Property::sometimes(
                "the other list has a set",
                |model: &Small, world| {
                    let last = model.servers - 1;
                    world.servers[last].gate == Gate::Open
                },
            ));
        }
        if self.forgettings > 1 {
            properties.push(Property::sometimes(BACK, |_, world: &World| {
                world.forgotten > 1 && world.servers.iter().all(|node| node.gate == Gate::Open)
            }));
        }
        if self.forgettings == 1 {
            properties.push(Property::sometimes("a server is back", |_, world: &World| {
                let back = |node: &Arc<Node>| node.marker != "first" && node.gate == Gate::Open;
                world.servers.iter().any(back)
            }));
        }
        properties
    }
}

fn explore(world: Small) -> usize {
    let checker = world.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    println!("{} states, {} unique", checker.state_count(), checker.unique_state_count());
    checker.unique_state_count()
}

fn finds(world: Small, what: &str) {
    let planted = world.planted;
    let any = HasDiscoveries::AnyFailures;
    let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
    let path = checker.discovery(SOUND).unwrap_or_else(|| panic!("{planted:?} was not found"));
    assert_eq!(path.last_state().broken, Some(what), "{planted:?}");
    let states = checker.unique_state_count();
    println!("{planted:?}: {states} states, {} steps", path.into_actions().len());
}

/// Two that found the same servers at once, and want different longest leases.
const LEASES: Small =
    Small { clients: &[PLAIN, Client { max_lease: Duration::from_secs(300), ..PLAIN }], ..SMALL };

/// Two lists that differ by one server.
const DIFFERENT: Small =
    Small { servers: 4, clients: &[PLAIN, Client { list: &[1, 2, 3], ..PLAIN }], ..SMALL };

/// Two lists that share one server.
const ONE_SHARED: Small =
    Small { servers: 5, clients: &[PLAIN, Client { list: &[2, 3, 4], ..PLAIN }], ..SMALL };

/// A set, and a client that lists another server in the place of one of its members.
const WRONG_LIST: Small = Small {
    servers: 4,
    clients: &[PLAIN, Client { list: &[0, 1, 3], ..PLAIN }],
    founded: &[0, 1, 2],
    silences: 1,
    ..SMALL
};

/// A set, one of whose servers has another set's memory.
const FOREIGN: Small = Small {
    servers: 5,
    clients: &[FIVE],
    founded: &[0, 1, 2, 3, 4],
    foreign: Some(4),
    acts: &[4],
    forgettings: 1,
    ..SMALL
};

#[test]
fn two_who_found_the_same_servers_with_different_leases_have_one_set() {
    assert_eq!(explore(LEASES), 12_810);
}

#[test]
fn two_lists_that_differ_by_one_server_are_never_two_sets() {
    assert_eq!(explore(Small { acts: &[3, 3], ..DIFFERENT }), 2_416);
}

#[test]
fn two_lists_that_share_one_server_are_never_two_sets() {
    assert_eq!(explore(Small { acts: &[3, 3], ..ONE_SHARED }), 2_260);
}

#[test]
fn a_server_that_forgets_while_a_set_is_founded_splits_nothing() {
    let world = Small { forgettings: 1, acts: &[3, 1], ..SMALL };
    assert_eq!(explore(world), 449_887);
}

#[test]
fn a_wrong_list_never_evicts_a_server_that_forgot_nothing() {
    assert_eq!(explore(WRONG_LIST), 16);
    assert_eq!(explore(Small { forgettings: 1, acts: &[4, 2], ..WRONG_LIST }), 7_784);
}

#[test]
fn a_majority_of_one_set_is_of_use_beside_a_server_of_another() {
    assert_eq!(explore(FOREIGN), 369);
}

/// More of everything than can be explored in full.
const LARGE: Small = Small {
    servers: 6,
    clients: &[FIVE, Client { names: "redis-", ..FIVE }, Client { list: &[1, 2, 3, 4, 5], ..FIVE }],
    acts: &[8; 3],
    forgettings: 2,
    silences: 1,
    ..SMALL
};

const FIVE: Client = Client { list: &[0, 1, 2, 3, 4], vouched: false, ..PLAIN };

#[test]
fn larger_worlds_of_clients_at_random() {
    for founded in [&[][..], &[0, 1, 2, 3, 4]] {
        let world = Small { founded, ..LARGE };
        let (broken, steps) = walk(&world, 1, 3_000, |world| world.broken);
        assert_eq!(broken, None, "founded: {founded:?}");
        println!("founded: {founded:?}: {steps} steps");
    }
}

/// A set whose clients name the servers otherwise than who founded it, and a majority forgets.
const OTHER_NAMES: Small = Small {
    clients: &[Client { names: "redis-", ..PLAIN }],
    founded: &[0, 1, 2],
    forgettings: 2,
    acts: &[4],
    ..SMALL
};

#[test]
fn servers_that_are_named_otherwise_come_back_while_a_client_lives_that_saw_them() {
    assert_eq!(explore(OTHER_NAMES), 34_366);
    let forgetful = Small { planted: Some(Planted::NoMemory), ..OTHER_NAMES };
    let checker = forgetful.checker().threads(2).spawn_dfs().join();
    assert!(checker.discovery(BACK).is_none(), "only an operator could bring them back");
    assert!(checker.discovery(SOUND).is_none());
}

#[test]
fn rules_of_founding_and_of_lists_that_are_left_out_are_found() {
    let with = |planted, world| Small { planted: Some(planted), ..world };
    finds(with(Planted::FoundedByMajority, DIFFERENT), SHARED);
    finds(with(Planted::AnyProposal, DIFFERENT), SHARED);
    finds(with(Planted::RestTakesRest, WRONG_LIST), EVICTED);
    finds(with(Planted::OneStopsAll, FOREIGN), STOPPED);
}
