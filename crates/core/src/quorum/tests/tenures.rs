//! Who has a slot, and for how long: small worlds with two clients, explored in full. Servers lose
//! their data, are restarted with it, or are replicas for a while. Names lead to other servers and
//! back, for one client and not for the other. Operators replace servers, readmit them, and vouch.
//!
//! Here a round of a client is one step: it asks the servers, plans, and all its commands arrive.
//! So is an attempt: it has a majority or leaves nothing. `data_loss` and `clients` take both
//! apart.
//! All clocks are right: a quarantine ends only when each lease is over that it is long enough for.

use std::collections::BTreeSet;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::set::{desired, node_id};
use super::{id, token};
use crate::quorum::configuration::{DEFAULT_MAX_LEASE, MAX_LEASE_CAP, quarantine_of};
use crate::quorum::node::Run;
use crate::quorum::{
    Configuration, DesiredConfiguration, MemberState, NameRegister, NodeCommand, NodeId,
    NodeReport, QuorumNode, SetStatus, Vote, majority, plan, vouchable,
};

const SOUND: &str = "nothing breaks";
const ALONE: &str = "at most one holds";
const GROW: &str = "tokens grow";
const EVICTED: &str = "a client that never saw a member evicts none";

/// The number of members. One more server is blank, and two where a client has wrong names.
const MEMBERS: usize = 3;
/// By how much an operator raises the fence above the clock.
const RAISED: u64 = 1_000_000_000;

/// A planted bug: a rule that is left out or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    /// A node that has lost its slot during its quarantine keeps both its id and the quarantine,
    /// and gets the slot again by its address.
    TenureForgotten,
    /// An address is believed to lead to the same server for all clients.
    AddressBelieved,
    /// The quarantine of a new set is that of its own longest lease.
    ShortFirstQuarantine,
    /// What an operator confirms is an address, and not what is there.
    AddressConfirmed,
    /// Where no majority has its data, the floor is the clock alone.
    ClockAlone,
    /// A node does not detect that it was a replica.
    ReplicaUnnoticed,
    /// A merge that finds one node in two slots keeps one of them.
    MergeKeepsOne,
    /// A node that knows the id of a member gets its slot, also under another address.
    FormerIdBelieved,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    run: Run,
    node: QuorumNode,
    register: NameRegister,
    /// The leases that must be over before its quarantine is.
    waits_for: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    is_held: bool,
    /// It is as long as that of any set may be: an earlier set on these servers granted it.
    is_long: bool,
    token: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    /// To which server each name leads.
    names: [usize; MEMBERS],
    /// The member that it last saw by each name.
    last_seen: [Option<NodeId>; MEMBERS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    servers: Vec<Server>,
    clients: Vec<Client>,
    leases: Vec<Lease>,
    /// A former state of a server, which its replica has kept.
    copy: Option<(usize, Server)>,
    /// Commands of operators that are still on their way.
    in_flight: Vec<(usize, NodeCommand)>,
    /// The nodes that an operator was asked about, by name.
    asked: Option<Vec<(usize, NodeId)>>,
    /// How many ids and markers were drawn.
    drawn: u8,
    lost: u8,
    moved: u8,
    orders: u8,
    raised: bool,
    /// A slot went to another server and back.
    has_returned: bool,
    broken: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// A client asks all servers but one, and sends the steps that follow.
    Maintain {
        client: usize,
        silent: Option<usize>,
    },
    /// The same by an operator, who confirms that the names are right, and readmits servers.
    Rejoin,
    /// An operator gives the slot of a name to the server there.
    Replace {
        name: usize,
    },
    /// A client's operator gives the slot that the client does not name to the last server. The
    /// commands are on their way.
    Order {
        client: usize,
    },
    Deliver {
        command: usize,
    },
    /// A client asks for the lock.
    Acquire {
        client: usize,
        silent: Option<usize>,
    },
    End {
        lease: usize,
    },
    EndQuarantine {
        server: usize,
    },
    LoseData {
        server: usize,
    },
    Restart {
        server: usize,
    },
    /// A server gets a replica.
    Copy {
        server: usize,
    },
    /// It becomes a replica of its former replica, and a master again.
    BecomeReplica,
    Move {
        client: usize,
        name: usize,
        to: usize,
    },
    RaiseFence,
    Ask,
    Confirm,
}

#[derive(Clone, Copy)]
struct Small {
    /// How many servers there are, the members first.
    servers: usize,
    /// To which servers the names of each client lead at first.
    names: &'static [[usize; MEMBERS]],
    /// The set was emptied, and a lease of before is still held.
    is_new: bool,
    /// The servers that may lose their data or be restarted, and how often.
    fragile: &'static [usize],
    losses: u8,
    /// The names of the first client that may lead elsewhere, and how often they change.
    unsteady: &'static [usize],
    moves: u8,
    leases: usize,
    orders: u8,
    vouches: bool,
    raises: bool,
    replicas: bool,
    /// Servers are restarted with their data, too.
    restarts: bool,
    /// One server may be silent when a client maintains the set.
    silences: bool,
    /// All servers grant the first lease, so that one survivor knows its token.
    first_of_all: bool,
    /// The operators of two clients give two slots to the last server.
    has_two_operators: bool,
    /// The last server has a copy of the data of the first member, in a run of its own. The second
    /// client names the servers by other addresses.
    has_backup: bool,
    planted: Option<Planted>,
}

const SMALL: Small = Small {
    servers: MEMBERS + 1,
    names: &[[0, 1, 2]],
    is_new: false,
    fragile: &[0, 1],
    losses: 0,
    unsteady: &[],
    moves: 0,
    leases: 2,
    orders: 0,
    vouches: false,
    raises: false,
    replicas: false,
    restarts: true,
    silences: true,
    first_of_all: false,
    has_two_operators: false,
    has_backup: false,
    planted: None,
};

/// The clock of every server at first, and how far it has moved at each loss of data.
const CLOCK: u64 = 10_000_000;

fn mine(lease: usize) -> crate::LeaseId {
    id(u8::try_from(lease + 1).expect("few leases"))
}

fn first_run() -> Run {
    Run { marker: "0".to_owned(), replica_until: None }
}

impl Server {
    fn blank(run: Run, fresh: NodeId) -> Server {
        Server {
            node: QuorumNode::blank(run.marker.clone(), fresh),
            run,
            register: NameRegister::default(),
            waits_for: BTreeSet::new(),
        }
    }
}

impl World {
    fn draw(&mut self) -> NodeId {
        self.drawn += 1;
        node_id(100 + self.drawn)
    }

    fn clock(&self) -> u64 {
        CLOCK * (1 + u64::from(self.lost))
    }

    fn held(&self) -> impl Iterator<Item = (usize, &Lease)> {
        self.leases.iter().enumerate().filter(|(_, lease)| lease.is_held)
    }

    /// Returns the newest configuration that any server has.
    fn newest(&self) -> Option<&Configuration> {
        let known = self.servers.iter().filter_map(|server| server.node.configuration.as_ref());
        known.max_by_key(|one| one.epoch())
    }
}

impl Small {
    fn start(&self) -> World {
        let number = |at: usize| node_id(u8::try_from(at + 1).expect("few servers"));
        let servers = (0..self.servers).map(|at| Server::blank(first_run(), number(at))).collect();
        let client =
            |names: &[usize; MEMBERS]| Client { names: *names, last_seen: [None; MEMBERS] };
        let mut world = World {
            servers,
            clients: self.names.iter().map(client).collect(),
            leases: Vec::new(),
            copy: None,
            in_flight: Vec::new(),
            asked: None,
            drawn: 0,
            lost: 0,
            moved: 0,
            orders: 0,
            raised: false,
            has_returned: false,
            broken: None,
        };
        if self.is_new {
            world.leases.push(Lease { is_held: true, is_long: true, token: 1 });
            return world;
        }
        let operator = DesiredConfiguration {
            vouched: (0..MEMBERS).map(number).collect(),
            ..desired(MEMBERS, false)
        };
        world.clients[0].names = [0, 1, 2];
        while world.newest().is_none_or(Configuration::is_new)
            || world.servers[..MEMBERS].iter().any(|one| one.node.state != MemberState::Voting)
        {
            self.maintain(&mut world, 0, None, &operator);
        }
        world.clients[0] = client(&self.names[0]);
        if self.has_backup {
            let run = Run { marker: "copy".to_owned(), replica_until: None };
            let last = world.servers.len() - 1;
            world.servers[last] = Server { run, ..world.servers[0].clone() };
        }
        for client in 0..world.clients.len() {
            self.look(&mut world, client, None);
        }
        world
    }

    /// A client asks the servers that its names lead to; each detects what has happened to it.
    fn look(
        &self,
        world: &mut World,
        client: usize,
        silent: Option<usize>,
    ) -> Vec<Option<NodeReport>> {
        let mut reports = Vec::new();
        for name in 0..MEMBERS {
            if silent == Some(name) {
                reports.push(None);
                continue;
            }
            let at = world.clients[client].names[name];
            let mut run = world.servers[at].run.clone();
            if self.planted == Some(Planted::ReplicaUnnoticed) {
                run.replica_until = None;
            }
            let mut node = world.servers[at].node.clone();
            node.handshake(&run, node_id(100 + world.drawn + 1));
            if node.id != world.servers[at].node.id {
                world.draw();
                world.servers[at].waits_for.clear();
            }
            world.servers[at].node = node;
            let report = world.servers[at].node.report();
            let last_seen = &mut world.clients[client].last_seen[name];
            if report.configuration.as_ref().is_some_and(|known| known.has(report.id)) {
                *last_seen = Some(report.id);
            }
            reports.push(Some(NodeReport { last_seen_id: *last_seen, ..report }));
        }
        reports
    }

    /// A round of a client.
    fn maintain(
        &self,
        world: &mut World,
        client: usize,
        silent: Option<usize>,
        desired: &DesiredConfiguration,
    ) {
        let reports = self.look(world, client, silent);
        let believes =
            matches!(self.planted, Some(Planted::AddressBelieved | Planted::TenureForgotten));
        let by_address = desired.by_address || believes;
        let mut desired = DesiredConfiguration { by_address, ..desired.clone() };
        if self.has_backup && client > 0 {
            desired.addresses = (0..MEMBERS).map(|name| format!("10.1.0.{name}:6379")).collect();
        }
        for (name, command) in self.plan(&reports, &desired) {
            let at = world.clients[client].names[name];
            self.deliver(world, at, command);
        }
    }

    fn plan(
        &self,
        reports: &[Option<NodeReport>],
        desired: &DesiredConfiguration,
    ) -> Vec<(usize, NodeCommand)> {
        let mut reports = reports.to_vec();
        if self.planted == Some(Planted::TenureForgotten) {
            // A former member is taken for a new node.
            let newest = reports.iter().flatten().filter_map(|report| report.configuration.clone());
            let newest = newest.max_by_key(|one| one.epoch());
            for report in reports.iter_mut().flatten() {
                let is_out = newest.as_ref().is_some_and(|newest| !newest.has(report.id));
                if report.state == MemberState::Recovering && is_out {
                    report.configuration = newest.clone();
                }
            }
        }
        if self.planted == Some(Planted::FormerIdBelieved) {
            for report in reports.iter_mut().flatten() {
                report.last_seen_id = report.previous_id.or(report.last_seen_id);
            }
        }
        if self.planted == Some(Planted::MergeKeepsOne) {
            without_two_slots(&mut reports);
        }
        let mut steps = plan(&reports, desired).steps;
        for (_, command) in &mut steps {
            match command {
                NodeCommand::BeginQuarantine { quarantine, .. }
                    if self.planted == Some(Planted::ShortFirstQuarantine) =>
                {
                    *quarantine = quarantine_of(DEFAULT_MAX_LEASE);
                }
                NodeCommand::BeginQuarantine { floor, by_time: true, .. }
                    if self.planted == Some(Planted::ClockAlone) =>
                {
                    *floor = 0;
                }
                _ => {}
            }
        }
        steps
    }

    fn deliver(&self, world: &mut World, at: usize, command: NodeCommand) {
        let length = match &command {
            NodeCommand::BeginQuarantine { quarantine, .. }
            | NodeCommand::Activate { quarantine, .. } => Some(*quarantine),
            _ => None,
        };
        let is_long = length.is_some_and(|length| length >= quarantine_of(MAX_LEASE_CAP));
        let covered = world.held().filter(|(_, lease)| is_long || !lease.is_long);
        let covered: BTreeSet<usize> = covered.map(|(lease, _)| lease).collect();
        let now = world.clock();
        let server = &mut world.servers[at];
        let marker = server.node.marker.clone();
        let before = server.node.clone();
        let command = match command {
            // The node was evicted and has not received that: it compares with what it has.
            NodeCommand::Adopt { configuration, .. }
                if self.planted == Some(Planted::TenureForgotten) =>
            {
                NodeCommand::Adopt { from: stamp_of(&server.node), configuration }
            }
            command => command,
        };
        let accepted = server.node.apply(&marker, command, now);
        if self.planted == Some(Planted::TenureForgotten)
            && before.state == MemberState::Recovering
            && server.node.state == MemberState::Replaced
        {
            server.node.state = before.state;
            server.node.quarantine = before.quarantine;
        }
        if accepted && length.is_some() {
            server.waits_for = covered;
        }
        if server.node.state == MemberState::Replaced {
            server.waits_for.clear();
        }
    }

    fn desired(&self) -> DesiredConfiguration {
        desired(MEMBERS, false)
    }

    /// An attempt of a client. It presents the newest configuration that it sees.
    fn acquire(&self, world: &mut World, client: usize, silent: Option<usize>) {
        let reports = self.look(world, client, silent);
        let SetStatus::Agreed(configuration) = plan(&reports, &self.desired()).status else {
            return;
        };
        let stamp = configuration.stamp();
        let lease = world.leases.len();
        let before = world.servers.clone();
        let mut voters = Vec::new();
        for name in (0..MEMBERS).filter(|name| silent != Some(*name)) {
            let at = world.clients[client].names[name];
            let server = &mut world.servers[at];
            if server.node.admit(&server.run.marker, stamp).is_err() {
                continue;
            }
            let floor = server.node.floor(server.register.last());
            let vote = server.register.acquire(mine(lease), floor, 0).expect("small numbers");
            if let Vote::Granted { last } = vote {
                server.node.raise(last.get());
                voters.push((at, last.get()));
            }
        }
        if voters.len() < majority(MEMBERS) {
            // `data_loss` has attempts that fail and leave counters raised.
            world.servers = before;
            return;
        }
        let won = voters.iter().map(|(_, last)| *last).max().expect("a majority");
        for (at, _) in &voters {
            world.servers[*at].register.write_back(mine(lease), token(won));
            world.servers[*at].node.raise(won);
        }
        if world.held().next().is_some() {
            world.broken = Some(ALONE);
        }
        if world.leases.iter().any(|other| other.token >= won) {
            world.broken = Some(GROW);
        }
        world.leases.push(Lease { is_held: true, is_long: false, token: won });
    }

    /// An operator gives the slot of a name to the server there, if a majority has its data.
    fn replace(&self, world: &mut World, name: usize) -> Option<()> {
        let at = world.clients[0].names[name];
        let newest = world.newest()?.clone();
        let votes = |server: &&Server| {
            server.node.state == MemberState::Voting && newest.has(server.node.id)
        };
        if newest.has(world.servers[at].node.id)
            || world.servers.iter().filter(votes).count() < majority(MEMBERS)
        {
            return None;
        }
        world.orders += 1;
        self.readmit(world, at);
        let address = format!("10.0.0.{name}:6379");
        let slot = newest.slots().iter().find(|slot| slot.address == address)?.id;
        let new = world.servers[at].node.id;
        let desired = DesiredConfiguration { replace: vec![(slot, new)], ..self.desired() };
        self.maintain(world, 0, None, &desired);
        world.has_returned |= at < MEMBERS;
        Some(())
    }

    /// The operator of a client replaces the member that the client does not name.
    fn order(&self, world: &mut World, client: usize) -> Option<()> {
        world.orders += 1;
        let name = client;
        let new = world.servers.last()?.node.id;
        let slot = node_id(u8::try_from(name + 1).ok()?);
        let reports = self.look(world, client, None);
        let desired = DesiredConfiguration { replace: vec![(slot, new)], ..self.desired() };
        for (name, command) in self.plan(&reports, &desired) {
            let at = world.clients[client].names[name];
            world.in_flight.push((at, command));
        }
        Some(())
    }

    fn readmit(&self, world: &mut World, at: usize) {
        let id = world.servers[at].node.id;
        if world.servers[at].node.state == MemberState::Replaced {
            let fresh = world.draw();
            self.deliver(world, at, NodeCommand::Readmit { id, fresh });
        }
    }

    fn rejoin(&self, world: &mut World) {
        world.orders += 1;
        self.look(world, 0, None);
        for name in 0..MEMBERS {
            self.readmit(world, world.clients[0].names[name]);
        }
        let desired = DesiredConfiguration { by_address: true, ..self.desired() };
        self.maintain(world, 0, None, &desired);
    }

    fn ask(&self, world: &mut World) {
        let reports = self.look(world, 0, None);
        let names = vouchable(&reports, &self.desired());
        let asked = names.into_iter().filter_map(|name| Some((name, reports[name].as_ref()?.id)));
        world.asked = Some(asked.collect());
    }

    fn confirm(&self, world: &mut World) {
        let Some(asked) = world.asked.clone() else { return };
        let reports = self.look(world, 0, None);
        let confirmed = |(name, id): (usize, NodeId)| match self.planted {
            Some(Planted::AddressConfirmed) => reports[name].as_ref().map_or(id, |now| now.id),
            _ => id,
        };
        let vouched = asked.into_iter().map(confirmed).collect();
        let desired = DesiredConfiguration { vouched, ..self.desired() };
        self.maintain(world, 0, None, &desired);
    }

    fn move_name(&self, world: &mut World, client: usize, name: usize, to: usize) {
        world.moved += 1;
        world.clients[client].names[name] = to;
        world.has_returned |= world.moved > 1 && to < MEMBERS;
    }

    /// The data of a server are those of its former replica, and its run is the same.
    fn become_replica(world: &mut World) -> Option<()> {
        let (at, copy) = world.copy.take()?;
        let server = &mut world.servers[at];
        server.node = copy.node;
        server.register = copy.register;
        server.waits_for = copy.waits_for;
        server.run.replica_until = Some("another master:1".to_owned());
        world.lost += 1;
        Some(())
    }

    /// Returns whether a server that kept its data and never left has lost its slot, though every
    /// client that saw it still sees it.
    fn has_evicted(&self, world: &World) -> bool {
        let kept = world.servers.iter().filter(|server| server.run == first_run());
        let untouched = self.moves == 0 && self.orders == 0 && !self.has_two_operators;
        untouched && kept.into_iter().any(|server| server.node.state == MemberState::Replaced)
    }
}

/// Lets a merge that would give one node two slots see only one of the configurations.
fn without_two_slots(reports: &mut [Option<NodeReport>]) {
    let known = || reports.iter().flatten().filter_map(|report| report.configuration.clone());
    let Some(epoch) = known().map(|one| one.epoch()).max() else { return };
    let newest: BTreeSet<Configuration> = known().filter(|one| one.epoch() == epoch).collect();
    if Configuration::merged(newest.iter().cloned().collect()).is_some() {
        return;
    }
    let Some(kept) = newest.first().cloned() else { return };
    for report in reports.iter_mut().flatten() {
        if report.configuration.as_ref().is_some_and(|one| one.epoch() == epoch) {
            report.configuration = Some(kept.clone());
        }
    }
}

fn stamp_of(node: &QuorumNode) -> Option<crate::quorum::Stamp> {
    node.configuration.as_ref().map(Configuration::stamp)
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
        let silent = |may_be: bool| {
            let each = (0..MEMBERS).filter(move |_| may_be).map(Some);
            std::iter::once(None).chain(each)
        };
        for client in 0..world.clients.len() {
            actions.extend(silent(self.silences).map(|silent| Action::Maintain { client, silent }));
            if world.leases.len() < self.leases {
                let may_be = !self.first_of_all || !world.leases.is_empty();
                actions.extend(silent(may_be).map(|silent| Action::Acquire { client, silent }));
            }
        }
        actions.extend(world.held().map(|(lease, _)| Action::End { lease }));
        for (server, of) in world.servers.iter().enumerate() {
            let held = |lease: &usize| world.leases[*lease].is_held;
            if of.node.quarantine.is_some() && !of.waits_for.iter().any(held) {
                actions.push(Action::EndQuarantine { server });
            }
        }
        if world.lost < self.losses {
            actions.extend(self.fragile.iter().map(|server| Action::LoseData { server: *server }));
            let restarted = self.fragile.iter().filter(|_| self.restarts);
            actions.extend(restarted.map(|server| Action::Restart { server: *server }));
        }
        if self.replicas && world.lost == 0 {
            match world.copy {
                None => actions.push(Action::Copy { server: 0 }),
                Some(_) => actions.push(Action::BecomeReplica),
            }
        }
        if world.moved < self.moves {
            for name in self.unsteady {
                let now = world.clients[0].names[*name];
                let to = if now == *name { MEMBERS } else { *name };
                actions.push(Action::Move { client: 0, name: *name, to });
            }
        }
        if world.orders < self.orders {
            actions.push(Action::Rejoin);
            actions.extend(self.unsteady.iter().map(|name| Action::Replace { name: *name }));
        }
        if self.has_two_operators {
            let orders = usize::from(world.orders)..2;
            actions.extend(orders.take(1).map(|client| Action::Order { client }));
            let commands = 0..world.in_flight.len();
            actions.extend(commands.map(|command| Action::Deliver { command }));
        }
        if self.raises && !world.raised {
            actions.push(Action::RaiseFence);
        }
        if self.vouches {
            match world.asked {
                // The operator is right.
                None if world.held().next().is_none() => actions.push(Action::Ask),
                None => {}
                Some(_) => actions.push(Action::Confirm),
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Maintain { client, silent } => {
                self.maintain(&mut world, client, silent, &self.desired());
            }
            Action::Rejoin => self.rejoin(&mut world),
            Action::Replace { name } => self.replace(&mut world, name)?,
            Action::Order { client } => self.order(&mut world, client)?,
            Action::Deliver { command } => {
                let (at, command) = world.in_flight.remove(command);
                self.deliver(&mut world, at, command);
            }
            Action::Acquire { client, silent } => self.acquire(&mut world, client, silent),
            Action::End { lease } => {
                world.leases[lease].is_held = false;
                for server in &mut world.servers {
                    server.register.release(mine(lease));
                }
            }
            Action::EndQuarantine { server } => {
                let report = world.servers[server].node.report();
                let (left, _) = report.quarantine?;
                let end = NodeCommand::ReportWait { episode: report.id, left, passed: left };
                self.deliver(&mut world, server, end);
            }
            Action::LoseData { server } => {
                world.lost += 1;
                let fresh = world.draw();
                let run = Run { marker: world.drawn.to_string(), replica_until: None };
                world.servers[server] = Server::blank(run, fresh);
            }
            Action::Restart { server } => {
                world.lost += 1;
                world.draw();
                world.servers[server].run.marker = world.drawn.to_string();
            }
            Action::Copy { server } => world.copy = Some((server, world.servers[server].clone())),
            Action::BecomeReplica => Small::become_replica(&mut world)?,
            Action::Move { client, name, to } => self.move_name(&mut world, client, name, to),
            Action::RaiseFence => {
                world.raised = true;
                for server in &mut world.servers[..MEMBERS] {
                    server.node.raise_floor(RAISED);
                }
            }
            Action::Ask => self.ask(&mut world),
            Action::Confirm => self.confirm(&mut world),
        }
        if world.broken.is_none() && self.has_evicted(&world) {
            world.broken = Some(EVICTED);
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties =
            vec![Property::always(SOUND, |_, world: &World| world.broken.is_none())];
        let mut sometimes = |what, condition| properties.push(Property::sometimes(what, condition));
        sometimes("all leases are granted", |model: &Small, world: &World| {
            world.leases.len() == model.leases
        });
        if self.losses > 0 || self.replicas {
            sometimes("a server votes that has lost its data", |_, world| {
                let is_back = |server: &Server| {
                    server.run != first_run() && server.node.state == MemberState::Voting
                };
                world.servers.iter().any(is_back)
            });
        }
        if self.moves + self.orders > 1 {
            sometimes("a server votes whose slot went to another and back", |_, world| {
                let votes = |server: &Server| {
                    server.node.state == MemberState::Voting && server.node.id > node_id(200)
                };
                world.has_returned && (world.servers.iter().any(votes) || world.drawn > 1)
            });
        }
        properties
    }
}

/// Explores a world in full; returns its number of states.
fn explore(world: Small) -> usize {
    let checker = world.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    println!("{} states, {} unique", checker.state_count(), checker.unique_state_count());
    checker.unique_state_count()
}

/// Searches a world for the shortest path to a promise that a planted bug breaks.
fn finds(planted: Planted, world: Small, what: &[&str]) {
    let world = Small { planted: Some(planted), ..world };
    let any = HasDiscoveries::AnyFailures;
    let checker = world.checker().threads(2).finish_when(any).spawn_bfs().join();
    let path = checker.discovery(SOUND).unwrap_or_else(|| panic!("{planted:?} was not found"));
    let broken = path.last_state().broken.expect("a promise is broken");
    assert!(what.contains(&broken), "{planted:?}: {broken}");
    let states = checker.unique_state_count();
    println!("{planted:?}: {broken}: {states} states, {} steps", path.into_actions().len());
}

/// A server loses its data, an address leads elsewhere and back.
const ADDRESS: Small = Small { fragile: &[1], losses: 1, unsteady: &[1], moves: 2, ..SMALL };

#[test]
fn an_address_leads_elsewhere_and_back() {
    assert_eq!(explore(ADDRESS), 9_821);
    finds(Planted::TenureForgotten, ADDRESS, &[ALONE, GROW]);
}

/// A server loses its data, an operator replaces it, and takes it back.
const OPERATOR: Small = Small { orders: 2, ..ADDRESS };

#[test]
fn an_operator_replaces_a_server_and_takes_it_back() {
    assert_eq!(explore(OPERATOR), 54_750);
    finds(Planted::TenureForgotten, OPERATOR, &[ALONE, GROW]);
}

/// Names of the second client lead to blank servers; it never saw the members. (If all its names
/// lead to servers without data, it founds another set. No rule can prevent that.)
const WRONG_NAMES: Small =
    Small { servers: 5, names: &[[0, 1, 2], [3, 4, 2]], fragile: &[0], losses: 1, ..SMALL };

#[test]
fn a_client_with_wrong_names_evicts_no_member() {
    assert_eq!(explore(WRONG_NAMES), 381);
    assert_eq!(explore(Small { names: &[[0, 1, 2], [3, 1, 2]], ..WRONG_NAMES }), 381);
    finds(Planted::AddressBelieved, WRONG_NAMES, &[EVICTED]);
}

/// All servers were emptied, and an old lease is still held. Servers are restarted during the first
/// quarantine.
const NEW: Small = Small { servers: 3, is_new: true, losses: 2, ..SMALL };

#[test]
fn servers_are_restarted_during_the_first_quarantine_of_a_set() {
    assert_eq!(explore(NEW), 343_021);
    finds(Planted::ShortFirstQuarantine, NEW, &[ALONE]);
}

/// A majority loses its data, the operator is asked, and it loses them again.
const VOUCHED: Small =
    Small { servers: 3, losses: 4, vouches: true, restarts: false, silences: false, ..SMALL };

#[test]
fn an_operator_vouches_for_what_was_there_when_it_was_asked() {
    assert_eq!(explore(VOUCHED), 343_070);
    finds(Planted::AddressConfirmed, VOUCHED, &[ALONE, GROW]);
}

/// An operator raises the fence above all clocks, and a majority loses its data.
const RAISED_FENCE: Small =
    Small { servers: 3, losses: 2, raises: true, first_of_all: true, restarts: false, ..SMALL };

#[test]
fn a_survivor_that_is_silent_when_a_quarantine_ends_lowers_no_token() {
    assert_eq!(explore(RAISED_FENCE), 6_966);
    finds(Planted::ClockAlone, RAISED_FENCE, &[GROW]);
}

/// A server has the data of its former replica for a while.
const REPLICA: Small = Small { servers: 3, replicas: true, ..SMALL };

#[test]
fn a_server_that_was_a_replica_has_lost_its_data() {
    assert_eq!(explore(REPLICA), 552);
    finds(Planted::ReplicaUnnoticed, REPLICA, &[ALONE, GROW]);
}

#[test]
fn random_walks_through_a_world_with_all_faults() {
    let world = Small {
        servers: 5,
        names: &[[0, 1, 2], [3, 1, 2]],
        fragile: &[0, 1, 2],
        losses: 4,
        unsteady: &[1],
        moves: 3,
        leases: 4,
        orders: 3,
        vouches: true,
        replicas: true,
        ..SMALL
    };
    let (broken, steps) = super::walk::walk(&world, 1, 20_000, |world| world.broken);
    assert_eq!(broken, None);
    println!("{steps} steps");
}

/// Two operators give one blank server two slots at once. Each command comes when it comes.
const TWO_OPERATORS: Small =
    Small { names: &[[3, 1, 2], [0, 3, 2]], has_two_operators: true, ..SMALL };

#[test]
fn two_operators_give_one_server_two_slots() {
    assert_eq!(explore(TWO_OPERATORS), 88_759);
    finds(Planted::MergeKeepsOne, TWO_OPERATORS, &[ALONE, GROW]);
}

/// A server has a copy of a member's data, and a client names it instead of the member.
const BACKUP: Small = Small { names: &[[0, 1, 2], [3, 1, 2]], has_backup: true, ..SMALL };

#[test]
fn a_copy_of_the_data_of_a_member_evicts_it_from_no_slot() {
    assert_eq!(explore(BACKUP), 23);
    finds(Planted::FormerIdBelieved, BACKUP, &[EVICTED]);
}
