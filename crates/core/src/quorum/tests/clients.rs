//! Clients that initialise a set and maintain it, each with its own list, explored in full.
//!
//! A client sees one server at a time, so its reports are of different moments. It may die between
//! any two steps, and its commands arrive in any order, late, twice or never. There are no locks
//! here: the subject is the membership. A quarantine may end at any moment.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{TestSet, desired, node_id};
use super::walk::walk;
use crate::quorum::configuration::{DEFAULT_MAX_LEASE, quarantine_of};
use crate::quorum::{
    Configuration, DesiredConfiguration, MemberState, MembershipPlan, NodeCommand, NodeId,
    NodeReport, QuorumNode, SetStatus, Stamp, majority, plan,
};

const SOUND: &str = "nothing breaks";
const SHARED: &str = "two sets share a server";
const TWO: &str = "two configurations have a majority each";
const EVICTED: &str = "a server that kept its data lost its slot";
const BACK: &str = "a majority that lost its data is back";
const STOPPED: &str = "a majority that votes under one configuration is not usable";

/// A planted bug: a rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// A set is initialised once a majority has accepted it.
    InitialisedByMajority,
    /// A server takes a proposal in place of any other.
    AnyProposal,
    /// A new node takes the only slot whose server is not seen, whatever its address.
    RestTakesRest,
    /// One server of another set stops every client.
    OneStopsAll,
    /// A client does not remember which member it saw by a name.
    NoMemory,
    /// An address is believed to lead to the same server for all clients.
    AddressBelieved,
}

/// The settings of a client.
#[derive(Clone, Copy)]
struct Client {
    /// The servers that its names lead to.
    list: &'static [usize],
    /// The numbers in these names, if they are not those of the servers.
    called: Option<&'static [usize]>,
    /// The prefix of the names, before the number.
    names: &'static str,
    max_lease: Duration,
    vouched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    servers: Vec<Arc<QuorumNode>>,
    /// Each client's last report of each server on its list.
    reports: Vec<Vec<Option<Arc<NodeReport>>>>,
    /// The member that each client last saw at each index.
    last_seen: Vec<Vec<Option<NodeId>>>,
    /// The commands that were sent, each with its server.
    sent: BTreeSet<(usize, Arc<NodeCommand>)>,
    acts: Vec<u8>,
    lost_data: u8,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    See { client: usize, at: usize },
    Miss { client: usize, at: usize },
    Act { client: usize },
    Arrive { which: usize },
    LoseData { server: usize },
    EndWait { server: usize },
}

#[derive(Clone, Copy)]
struct Small {
    servers: usize,
    clients: &'static [Client],
    /// The servers that are a set from the start.
    initialised: &'static [usize],
    /// A server of another set.
    foreign: Option<usize>,
    /// A server that keeps its data.
    keeps: Option<usize>,
    /// How often each client plans and sends.
    acts: &'static [u8],
    data_losses: u8,
    /// How many servers may be silent for a client at a time.
    silences: usize,
    planted: Option<Planted>,
}

const PLAIN: Client = Client {
    list: &[0, 1, 2],
    called: None,
    names: "10.0.0.",
    max_lease: DEFAULT_MAX_LEASE,
    vouched: true,
};

const SMALL: Small = Small {
    servers: 3,
    clients: &[PLAIN, PLAIN],
    initialised: &[],
    foreign: None,
    keeps: None,
    acts: &[2, 2],
    data_losses: 0,
    silences: 0,
    planted: None,
};

impl Client {
    fn desired(&self) -> DesiredConfiguration {
        let name = |number: &usize| format!("{}{number}:6379", self.names);
        let addresses = self.called.unwrap_or(self.list).iter().map(name).collect();
        DesiredConfiguration {
            addresses,
            max_lease: self.max_lease,
            ..desired(self.list.len(), self.vouched)
        }
    }
}

fn is_initialised(node: &QuorumNode) -> bool {
    !matches!(node.state, MemberState::Blank | MemberState::Proposed)
}

fn stamp_of(report: &NodeReport) -> Option<Stamp> {
    report.configuration.as_ref().map(Configuration::stamp)
}

/// The id of a member.
fn member(report: &NodeReport) -> Option<NodeId> {
    report.configuration.as_ref().filter(|mine| mine.has(report.id)).map(|_| report.id)
}

impl Small {
    /// Returns a client's report of a server, with the member that it last saw there.
    fn report(&self, node: &QuorumNode, last_seen_id: Option<NodeId>) -> NodeReport {
        let report = node.report();
        let last_seen_id = member(&report).or(last_seen_id);
        let remembers = self.planted != Some(Planted::NoMemory);
        NodeReport { last_seen_id: last_seen_id.filter(|_| remembers), ..report }
    }

    fn start(&self) -> World {
        let mut set = TestSet::blank(self.servers);
        if !self.initialised.is_empty() {
            let rest = set.nodes.split_off(self.initialised.len());
            set.settle(&desired(self.initialised.len(), true));
            set.nodes.extend(rest);
        }
        if let Some(foreign) = self.foreign {
            let mut others = TestSet::blank(3);
            others.nodes.iter_mut().zip(90..).for_each(|(node, id)| {
                *node = QuorumNode::blank("first".to_owned(), node_id(id));
            });
            others.settle(&desired(3, true));
            set.nodes[foreign] = others.nodes.swap_remove(0);
        }
        let report = |server: &usize| Some(Arc::new(self.report(&set.nodes[*server], None)));
        let reports: Vec<Vec<_>> =
            self.clients.iter().map(|client| client.list.iter().map(report).collect()).collect();
        let last_seen = |report: &Option<Arc<NodeReport>>| {
            report.as_ref().and_then(|report| report.last_seen_id)
        };
        World {
            last_seen: reports
                .iter()
                .map(|reports| reports.iter().map(last_seen).collect())
                .collect(),
            reports,
            servers: set.nodes.into_iter().map(Arc::new).collect(),
            sent: BTreeSet::new(),
            acts: vec![0; self.clients.len()],
            lost_data: 0,
            broken: None,
        }
    }

    /// Returns the steps of a client with these reports.
    fn plan(&self, client: &Client, reports: &[Option<NodeReport>]) -> MembershipPlan {
        let by_address = self.planted == Some(Planted::AddressBelieved);
        let mut planned = plan(reports, &DesiredConfiguration { by_address, ..client.desired() });
        let stamps: BTreeSet<Stamp> = reports.iter().flatten().filter_map(stamp_of).collect();
        match self.planted {
            Some(Planted::InitialisedByMajority) => {
                let of = |stamp: &Stamp, report: &&NodeReport| stamp_of(report) == Some(*stamp);
                let alike = |stamp: &&Stamp| {
                    let alike = reports.iter().flatten().filter(|report| of(stamp, report));
                    alike.count() >= majority(reports.len())
                };
                if let Some(stamp) = stamps.iter().find(alike) {
                    let quarantine = quarantine_of(DEFAULT_MAX_LEASE);
                    let command = NodeCommand::Activate { stamp: *stamp, quarantine };
                    planned.steps.extend((0..reports.len()).map(|at| (at, command.clone())));
                }
            }
            Some(Planted::RestTakesRest) => planned.steps.extend(rest_takes_rest(client, reports)),
            Some(Planted::OneStopsAll) => {
                let sets: BTreeSet<_> = stamps.iter().map(|stamp| stamp.set).collect();
                if sets.len() > 1 {
                    let sets =
                        reports.iter().map(|report| report.as_ref().and_then(stamp_of)).collect();
                    planned.status = SetStatus::Foreign { sets };
                    planned.steps.clear();
                }
            }
            Some(Planted::AnyProposal | Planted::NoMemory | Planted::AddressBelieved) | None => {}
        }
        planned
    }

    fn act(&self, world: &mut World, number: usize) {
        let client = &self.clients[number];
        let reports: Vec<Option<NodeReport>> =
            world.reports[number].iter().map(|report| report.as_deref().cloned()).collect();
        let planned = self.plan(client, &reports);
        if !matches!(planned.status, SetStatus::Agreed(_))
            && votes(&reports) >= majority(reports.len())
        {
            world.broken = Some(STOPPED);
        }
        world.acts[number] += 1;
        let sent = planned.steps.into_iter();
        world.sent.extend(sent.map(|(at, command)| (client.list[at], Arc::new(command))));
    }

    fn arrive(&self, world: &mut World, server: usize, command: &NodeCommand) {
        let mut command = command.clone();
        let node = Arc::make_mut(&mut world.servers[server]);
        if let (Some(Planted::AnyProposal), NodeCommand::Propose { from, .. }) =
            (self.planted, &mut command)
        {
            *from = stamp_of(&node.report());
        }
        let marker = node.marker.clone();
        node.apply(&marker, command, 1_000_000);
        world.broken = world.broken.or_else(|| broken(world));
    }
}

/// Counts the servers that vote under the newest configuration that is seen.
fn votes(reports: &[Option<NodeReport>]) -> usize {
    let members = || reports.iter().flatten().filter(|report| report.state == MemberState::Voting);
    let count = |stamp: Stamp| members().filter(|report| stamp_of(report) == Some(stamp)).count();
    let newest = reports.iter().flatten().filter_map(stamp_of).map(|stamp| stamp.epoch).max();
    let stamps = members().filter_map(stamp_of).filter(|stamp| Some(stamp.epoch) == newest);
    stamps.map(count).max().unwrap_or(0)
}

/// A former rule: the only new node takes the only free slot.
fn rest_takes_rest(client: &Client, reports: &[Option<NodeReport>]) -> Vec<(usize, NodeCommand)> {
    let seen =
        || reports.iter().enumerate().filter_map(|(at, report)| Some((at, report.as_ref()?)));
    let newest = seen().filter_map(|(_, report)| report.configuration.as_ref());
    let Some(current) = newest.max_by_key(|one| one.epoch()) else { return Vec::new() };
    let lacks = |id: NodeId| seen().all(|(_, report)| report.id != id);
    let free: Vec<NodeId> =
        current.slots().iter().map(|slot| slot.id).filter(|id| lacks(*id)).collect();
    let new = |report: &NodeReport| !current.has(report.id) && report.state == MemberState::Blank;
    let newcomers: Vec<(usize, &NodeReport)> = seen().filter(|(_, report)| new(report)).collect();
    let ([old], [(at, report)]) = (&free[..], &newcomers[..]) else { return Vec::new() };
    let address = client.desired().addresses.swap_remove(*at);
    let next = current.successor(&[(*old, report.id, &address)]);
    let adopt = |(at, report): (usize, &NodeReport)| {
        (at, NodeCommand::Adopt { from: stamp_of(report), configuration: next.clone() })
    };
    seen().map(adopt).collect()
}

/// Checks the servers themselves.
fn broken(world: &World) -> Option<&'static str> {
    let initialised = || world.servers.iter().filter(|node| is_initialised(node));
    let configurations: Vec<&Configuration> =
        initialised().filter_map(|node| node.configuration.as_ref()).collect();
    let shared = configurations.iter().enumerate().any(|(at, one)| {
        let others = configurations[at + 1..].iter().filter(|other| other.set() != one.set());
        others.into_iter().any(|other| other.slots().iter().any(|slot| one.has(slot.id)))
    });
    if shared {
        return Some(SHARED);
    }
    let open: Vec<&Configuration> = initialised()
        .filter(|node| node.state == MemberState::Voting)
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
    initialised()
        .any(|node| node.state == MemberState::Replaced && node.marker == "first")
        .then_some(EVICTED)
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
        for (client, reports) in world.reports.iter().enumerate() {
            if world.acts[client] >= self.acts[client] {
                continue;
            }
            let silent = reports.iter().filter(|report| report.is_none()).count();
            for (at, report) in reports.iter().enumerate() {
                let server = self.clients[client].list[at];
                let now = self.report(&world.servers[server], world.last_seen[client][at]);
                if report.as_deref() != Some(&now) {
                    actions.push(Action::See { client, at });
                }
                if report.is_some() && silent < self.silences {
                    actions.push(Action::Miss { client, at });
                }
            }
            actions.push(Action::Act { client });
        }
        actions.extend((0..world.sent.len()).map(|which| Action::Arrive { which }));
        for (server, node) in world.servers.iter().enumerate() {
            let keeps = [self.foreign, self.keeps].contains(&Some(server));
            if world.lost_data < self.data_losses && !keeps {
                actions.push(Action::LoseData { server });
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
                let report = self.report(&world.servers[server], world.last_seen[client][at]);
                world.last_seen[client][at] = report.last_seen_id;
                world.reports[client][at] = Some(Arc::new(report));
            }
            Action::Miss { client, at } => world.reports[client][at] = None,
            Action::Act { client } => {
                self.act(&mut world, client);
                // A step without an effect is left out.
                if world.sent == last.sent && world.broken.is_none() {
                    return None;
                }
            }
            Action::Arrive { which } => {
                let (server, command) = world.sent.iter().nth(which).cloned()?;
                self.arrive(&mut world, server, &command);
            }
            Action::LoseData { server } => {
                world.lost_data += 1;
                let (marker, fresh) = (world.lost_data.to_string(), node_id(100 + world.lost_data));
                world.servers[server] = Arc::new(QuorumNode::blank(marker, fresh));
            }
            Action::EndWait { server } => {
                let node = Arc::make_mut(&mut world.servers[server]);
                let (left, _) = node.report().quarantine?;
                let (marker, episode) = (node.marker.clone(), node.id);
                let end = NodeCommand::ReportWait { episode, left, passed: left };
                node.apply(&marker, end, 1_000_000);
                world.broken = world.broken.or_else(|| broken(&world));
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties =
            vec![Property::always(SOUND, |_, world: &World| world.broken.is_none())];
        if self.initialised.is_empty() {
            properties.push(Property::sometimes("all of one list vote", |_, world: &World| {
                world.servers.iter().filter(|node| node.state == MemberState::Voting).count() > 2
            }));
        }
        if self.initialised.is_empty() && self.clients[0].list != self.clients[1].list {
            properties.push(Property::sometimes(
                "the other list has a set",
                |model: &Small, world| {
                    let last = model.servers - 1;
                    world.servers[last].state == MemberState::Voting
                },
            ));
        }
        if self.data_losses > 1 {
            properties.push(Property::sometimes(BACK, |_, world: &World| {
                world.lost_data > 1
                    && world.servers.iter().all(|node| node.state == MemberState::Voting)
            }));
        }
        if self.data_losses == 1 {
            properties.push(Property::sometimes("a server is back", |_, world: &World| {
                let back = |node: &Arc<QuorumNode>| {
                    node.marker != "first" && node.state == MemberState::Voting
                };
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

fn finds(world: Small, what: &[&str]) {
    let planted = world.planted;
    let any = HasDiscoveries::AnyFailures;
    let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
    let path = checker.discovery(SOUND).unwrap_or_else(|| panic!("{planted:?} was not found"));
    let broken = path.last_state().broken.expect("a promise is broken");
    assert!(what.contains(&broken), "{planted:?}: {broken}");
    let states = checker.unique_state_count();
    println!("{planted:?}: {states} states, {} steps", path.into_actions().len());
}

/// Two clients that initialise the same servers at once, with different longest leases.
const LEASES: Small =
    Small { clients: &[PLAIN, Client { max_lease: Duration::from_secs(300), ..PLAIN }], ..SMALL };

/// Two lists that differ by one server.
const DIFFERENT: Small =
    Small { servers: 4, clients: &[PLAIN, Client { list: &[1, 2, 3], ..PLAIN }], ..SMALL };

/// Two lists that share one server.
const ONE_SHARED: Small =
    Small { servers: 5, clients: &[PLAIN, Client { list: &[2, 3, 4], ..PLAIN }], ..SMALL };

/// A set, and a client that lists another server in place of a member.
const WRONG_LIST: Small = Small {
    servers: 4,
    clients: &[PLAIN, Client { list: &[0, 1, 3], ..PLAIN }],
    initialised: &[0, 1, 2],
    silences: 1,
    ..SMALL
};

/// Two names of the second client lead to blank servers. (If the third server loses its data, all
/// its servers are blank: it founds another set. No rule can prevent that.)
const WRONG_NAMES: Small = Small {
    servers: 5,
    clients: &[PLAIN, Client { list: &[3, 4, 2], called: Some(&[0, 1, 2]), ..PLAIN }],
    ..SMALL
};

#[test]
fn a_client_whose_names_lead_elsewhere_neither_takes_a_set_over_nor_shares_its_initialisation() {
    assert_eq!(explore(Small { acts: &[3, 3], ..WRONG_NAMES }), 36_040);
    let in_use = Small { initialised: &[0, 1, 2], keeps: Some(2), ..WRONG_NAMES };
    let in_use = Small { data_losses: 1, silences: 1, acts: &[4, 2], ..in_use };
    assert_eq!(explore(in_use), 1_484);
    let planted = Some(Planted::AddressBelieved);
    finds(Small { planted, acts: &[3, 3], ..WRONG_NAMES }, &[SHARED, EVICTED]);
    finds(Small { planted, ..in_use }, &[EVICTED]);
}

/// A set with a server that has the data of another set.
const FOREIGN: Small = Small {
    servers: 5,
    clients: &[FIVE],
    initialised: &[0, 1, 2, 3, 4],
    foreign: Some(4),
    acts: &[4],
    data_losses: 1,
    ..SMALL
};

#[test]
fn two_clients_that_initialise_with_different_leases_make_one_set() {
    assert_eq!(explore(LEASES), 131_284);
}

#[test]
fn two_lists_that_differ_by_one_server_are_never_two_sets() {
    assert_eq!(explore(Small { acts: &[3, 3], ..DIFFERENT }), 66_288);
}

#[test]
fn two_lists_that_share_one_server_are_never_two_sets() {
    assert_eq!(explore(Small { acts: &[3, 3], ..ONE_SHARED }), 36_040);
}

#[test]
fn a_data_loss_during_initialisation_splits_nothing() {
    let world = Small { data_losses: 1, acts: &[3, 1], ..SMALL };
    assert_eq!(explore(world), 849_138);
}

#[test]
fn a_wrong_list_never_evicts_a_server_that_kept_its_data() {
    assert_eq!(explore(WRONG_LIST), 16);
    assert_eq!(explore(Small { data_losses: 1, acts: &[4, 2], ..WRONG_LIST }), 6_528);
}

#[test]
fn a_majority_of_one_set_works_beside_a_server_of_another() {
    assert_eq!(explore(FOREIGN), 357);
}

/// Larger than can be explored in full.
const LARGE: Small = Small {
    servers: 6,
    clients: &[FIVE, Client { names: "redis-", ..FIVE }, Client { list: &[1, 2, 3, 4, 5], ..FIVE }],
    acts: &[8; 3],
    data_losses: 2,
    silences: 1,
    ..SMALL
};

const FIVE: Client = Client { list: &[0, 1, 2, 3, 4], vouched: false, ..PLAIN };

#[test]
fn random_walks_through_larger_worlds_of_clients() {
    for initialised in [&[][..], &[0, 1, 2, 3, 4]] {
        let world = Small { initialised, ..LARGE };
        let (broken, steps) = walk(&world, 1, 3_000, |world| world.broken);
        assert_eq!(broken, None, "initialised: {initialised:?}");
        println!("initialised: {initialised:?}: {steps} steps");
    }
}

/// The clients use other server names than the client that initialised the set, and a majority
/// loses its data.
const OTHER_NAMES: Small = Small {
    clients: &[Client { names: "redis-", ..PLAIN }],
    initialised: &[0, 1, 2],
    data_losses: 2,
    acts: &[4],
    ..SMALL
};

#[test]
fn servers_with_other_names_are_readmitted_by_a_client_that_saw_them() {
    assert_eq!(explore(OTHER_NAMES), 27_529);
    let forgetful = Small { planted: Some(Planted::NoMemory), ..OTHER_NAMES };
    let checker = forgetful.checker().threads(2).spawn_dfs().join();
    assert!(checker.discovery(BACK).is_none(), "only an operator could bring them back");
    assert!(checker.discovery(SOUND).is_none());
}

#[test]
fn planted_bugs_in_initialisation_and_lists_are_detected() {
    let with = |planted, world| Small { planted: Some(planted), ..world };
    finds(with(Planted::InitialisedByMajority, DIFFERENT), &[SHARED]);
    finds(with(Planted::AnyProposal, DIFFERENT), &[SHARED]);
    finds(with(Planted::RestTakesRest, WRONG_LIST), &[EVICTED]);
    finds(with(Planted::OneStopsAll, FOREIGN), &[STOPPED]);
}
