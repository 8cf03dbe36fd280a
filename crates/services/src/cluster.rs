//! A real Redis Cluster: masters, each with its replicas.

use crate::config::OBSERVER;
use crate::failure::log_ends;
use crate::hosts::{self, Host};
use crate::ports::Port;
use crate::redis::RedisServer;
use crate::wait::{LIMIT, until};
use crate::{Cut, Failure, PrivateNetwork, RedisConfig, Reply, programs};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SLOTS: usize = 16_384;
/// How long a message between two nodes may take before it counts as lost.
const MESSAGES_SEEN: Duration = Duration::from_millis(500);
/// How many keys one step of a move takes.
const KEYS_AT_ONCE: &str = "100";
/// After how long a replica gives up to take over in good order.
const GIVES_UP: Duration = Duration::from_secs(6);

/// Describes a cluster; by default three masters with a replica each, of which a silent one is
/// found dead after a second.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    servers: RedisConfig,
    masters: usize,
    replicas: usize,
    node_timeout: Duration,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        let node_timeout = Duration::from_secs(1);
        Self { servers: RedisConfig::default(), masters: 3, replicas: 1, node_timeout }
    }
}

impl ClusterConfig {
    /// Starts the servers like this.
    #[must_use]
    pub fn with_servers(mut self, servers: RedisConfig) -> Self {
        self.servers = servers;
        self
    }

    /// Sets how many masters there are, and how many replicas each has.
    #[must_use]
    pub fn with_size(mut self, masters: usize, replicas: usize) -> Self {
        self.masters = masters;
        self.replicas = replicas;
        self
    }

    /// Sets after how long a silent node is found dead.
    #[must_use]
    pub fn with_node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    /// How many nodes there are.
    fn count(&self) -> usize {
        self.masters * (1 + self.replicas)
    }
}

/// A running cluster: nodes by their number from 0, of which the first begin as masters.
///
/// Dropping it kills them all. Methods panic with the reason if a command to a node fails.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    buses: Vec<Port>,
    config: ClusterConfig,
    /// The machines of the nodes, where each has its own.
    hosts: Vec<Arc<Host>>,
}

impl RedisCluster {
    /// Starts the nodes, joins them, and waits until each sees the cluster as healthy.
    ///
    /// # Panics
    /// One of them does not start, or they do not join; the message says why.
    #[must_use]
    pub fn start(config: &ClusterConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts the nodes, joins them, and waits until each sees the cluster as healthy.
    ///
    /// # Errors
    /// One of them does not start, or they do not join. Nothing is left behind.
    pub fn try_start(config: &ClusterConfig) -> Result<Self, Failure> {
        Self::start_on(config, Vec::new())
    }

    /// The same on machines of their own, which can be cut off from one another.
    ///
    /// # Panics
    /// One of them does not start, or the network already has machines; the message says why.
    #[must_use]
    pub fn start_apart(config: &ClusterConfig, network: &PrivateNetwork) -> Self {
        let started = hosts::join(network, config.count())
            .and_then(|hosts| Self::start_on(config, hosts.into_iter().map(Arc::new).collect()));
        started.unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn start_on(config: &ClusterConfig, hosts: Vec<Arc<Host>>) -> Result<Self, Failure> {
        let nodes = Vec::new();
        let buses = Vec::new();
        let mut cluster = Self { nodes, buses, config: config.clone(), hosts };
        for at in 0..config.count() {
            let bus = Port::reserve()?;
            let [user, password] = OBSERVER;
            let mut server = config.servers.clone();
            for line in [
                "cluster-enabled yes".to_owned(),
                format!("cluster-port {}", bus.number()),
                format!("cluster-node-timeout {}", config.node_timeout.as_millis()),
                "cluster-replica-validity-factor 0".to_owned(),
                "cluster-allow-replica-migration no".to_owned(),
                format!("masteruser {user}"),
                format!("masterauth {password}"),
            ] {
                server = server.with_line(line);
            }
            let host = cluster.hosts.get(at).cloned();
            cluster.nodes.push(RedisServer::try_start_on(host, server)?);
            cluster.buses.push(bus);
        }
        cluster.join()?;
        Ok(cluster)
    }

    fn join(&self) -> Result<(), Failure> {
        let failed = |what: &str| Failure::new(format!("the nodes do not {what}"));
        for (at, node) in self.nodes.iter().enumerate() {
            self.command(at, &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
            if at > 0 {
                let address = node.address();
                let bus = self.buses[at].number();
                let meet = format!("CLUSTER MEET {} {} {bus}", address.ip(), address.port());
                self.command(0, &meet);
            }
        }
        for master in 0..self.config.masters {
            let bound = |at: usize| at * SLOTS / self.config.masters;
            let first = bound(master);
            let last = bound(master + 1) - 1;
            self.command(master, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
        }
        let count = self.nodes.len().to_string();
        let met = || self.all_report("cluster_known_nodes", &count).then_some(());
        until(LIMIT, met).ok_or_else(|| failed("meet"))?;
        for at in self.config.masters..self.nodes.len() {
            let id = self.id(at % self.config.masters);
            let follows = || {
                let reply = self.nodes[at].raw().say(&format!("CLUSTER REPLICATE {id}")).ok()?;
                (!matches!(reply, Reply::Error(_))).then_some(())
            };
            until(LIMIT, follows).ok_or_else(|| failed("know their masters"))?;
        }
        let all = || self.is_well().then_some(());
        until(LIMIT, all).ok_or_else(|| failed("agree"))?;
        until(LIMIT, || self.all_messages_arrive())
            .ok_or_else(|| failed("receive each other's messages"))
    }

    /// Returns whether a message of each running node arrives at all others. A new link may lose
    /// the first message: Valkey closes a link that does not begin with a handshake.
    fn all_messages_arrive(&self) -> Option<()> {
        const CHANNEL: &str = "services:probe";
        let running: Vec<_> = self.nodes.iter().filter(|node| node.is_running()).collect();
        for (at, listener) in running.iter().enumerate() {
            let mut subscribers = listener.raw();
            subscribers.send(&["SUBSCRIBE", CHANNEL]).ok()?;
            subscribers.set_timeout(MESSAGES_SEEN).ok()?;
            for (from, speaker) in running.iter().enumerate().filter(|(from, _)| *from != at) {
                let words = from.to_string();
                speaker.raw().send(&["PUBLISH", CHANNEL, &words]).ok()?;
                // A message of an earlier probe may come first.
                while subscribers.read().ok()?.items()?.get(2)?.text()? != words {}
            }
        }
        Some(())
    }

    /// Cuts the machine of a node off, both ways: packets are lost silently.
    ///
    /// # Panics
    /// The nodes share a machine, or it takes no rules.
    pub fn cut(&self, node: usize, from: Cut) {
        self.hosts[node].cut(from);
    }

    /// Lets every packet of a node's machine pass again.
    ///
    /// # Panics
    /// As [`cut`](Self::cut).
    pub fn heal(&self, node: usize) {
        self.hosts[node].heal();
    }

    /// The nodes, in the order in which they were started.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The URL, which names the masters of the beginning.
    #[must_use]
    pub fn url(&self) -> String {
        let masters = self.nodes[..self.config.masters].iter();
        let hosts: Vec<String> = masters.map(|node| node.address().to_string()).collect();
        let url = self.nodes[0].url();
        let secret = url.trim_start_matches("redis://").rsplit_once('@');
        let secret = secret.map(|(secret, _)| format!("{secret}@")).unwrap_or_default();
        format!("redis-cluster://{secret}{}", hosts.join(","))
    }

    /// Says something to a node, which must not refuse it.
    ///
    /// # Panics
    /// It does.
    pub fn command(&self, node: usize, line: &str) -> Reply {
        match self.nodes[node].raw().say(line) {
            Ok(Reply::Error(says)) => panic!("node {node} refuses `{line}`: {says}"),
            Ok(reply) => reply,
            Err(why) => panic!("node {node} does not answer `{line}`: {why}"),
        }
    }

    /// The id of a node.
    ///
    /// # Panics
    /// It does not answer.
    #[must_use]
    pub fn id(&self, node: usize) -> String {
        self.command(node, "CLUSTER MYID").text().expect("an id")
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// The nodes do not answer.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> u16 {
        let any = self.nodes.iter().position(|node| node.is_running()).expect("a node runs");
        let mut raw = self.nodes[any].raw();
        let reply = raw.send(&["CLUSTER", "KEYSLOT", key]).expect("an answer");
        u16::try_from(reply.integer().expect("a number")).expect("a slot")
    }

    /// The owner of a slot, as `witness` sees it.
    ///
    /// # Panics
    /// The witness does not answer.
    #[must_use]
    pub fn owner(&self, slot: u16, witness: usize) -> Option<usize> {
        let reply = self.command(witness, "CLUSTER SLOTS");
        let of = |range: &Reply| {
            let [first, last, master, ..] = range.items()? else { return None };
            let covers = (first.integer()?..=last.integer()?).contains(&i64::from(slot));
            let port = master.items()?.get(1)?.integer()?;
            covers.then(|| {
                let port_of = |node: &RedisServer| i64::from(node.address().port());
                self.nodes.iter().position(|node| port_of(node) == port)
            })?
        };
        reply.items().unwrap_or_default().iter().find_map(of)
    }

    /// The first replica that a master of the beginning has.
    #[must_use]
    pub fn replica_of(&self, master: usize) -> usize {
        master + self.config.masters
    }

    /// Waits until each node that runs finds all well and all slots served.
    ///
    /// # Panics
    /// They do not.
    pub fn await_well(&self) {
        let well = || self.all_report("cluster_state", "ok").then_some(());
        until(LIMIT, well).expect("the cluster is healthy");
        until(LIMIT, || self.all_messages_arrive())
            .expect("the nodes receive each other's messages");
    }

    /// Waits until all nodes that run, and are not stopped, see this node as the owner of a slot.
    ///
    /// # Panics
    /// They do not; the message shows the ends of all logs.
    pub fn await_owner(&self, slot: u16, owner: usize, witnesses: &[usize]) {
        let all = || {
            let sees = |witness: &usize| self.owner(slot, *witness) == Some(owner);
            (witnesses.iter().all(sees) && self.nodes[owner].is_master()).then_some(())
        };
        if until(LIMIT, all).is_none() {
            panic!("{owner} is not the owner of slot {slot}:\n{}", self.log_ends());
        }
    }

    /// The ends of what the nodes have written to their logs.
    fn log_ends(&self) -> String {
        let title = |(at, node): (usize, &RedisServer)| {
            (format!("node {at}, {}", node.address()), node.log())
        };
        log_ends(self.nodes.iter().enumerate().map(title))
    }

    /// Lets a replica take its master's place in good order, as an operator does, and waits until
    /// all `witnesses` see it there.
    ///
    /// It is asked again if it gave up: a master that does not know yet that this one follows it
    /// does not answer it, and the others do not vote twice about one master within two node
    /// timeouts.
    ///
    /// # Panics
    /// It does not; the message shows the ends of all logs.
    pub fn fail_over(&self, replica: usize, slot: u16, witnesses: &[usize]) {
        let mut asked: Option<Instant> = None;
        let all = || {
            let sees = |witness: &usize| self.owner(slot, *witness) == Some(replica);
            let promoted = self.nodes[replica].is_master();
            if promoted && witnesses.iter().all(sees) {
                return Some(());
            }
            if !promoted && asked.is_none_or(|asked| asked.elapsed() > GIVES_UP) {
                // While it cannot, it says why; it is asked again at once.
                let begun = self.nodes[replica].raw().say("CLUSTER FAILOVER");
                let begins = begun.is_ok_and(|reply| !matches!(reply, Reply::Error(_)));
                asked = begins.then(Instant::now);
            }
            None
        };
        if until(LIMIT, all).is_none() {
            panic!("{replica} does not take over slot {slot}:\n{}", self.log_ends());
        }
    }

    /// Waits until each replica has all writes of its master.
    ///
    /// # Panics
    /// It has not.
    pub fn await_replicated(&self) {
        for master in 0..self.config.masters {
            let mut raw = self.nodes[master].raw();
            // A key of a slot of the master's own is found by trying.
            let written = (0..100 * self.config.masters).any(|at| {
                let reply = raw.say(&format!("SET replicated:{at} 1")).expect("an answer");
                !matches!(reply, Reply::Error(_))
            });
            assert!(written, "master {master} takes a key");
            let count = i64::try_from(self.config.replicas).unwrap_or_default();
            let reply = raw.say(&format!("WAIT {count} 60000")).expect("an answer");
            assert_eq!(reply.integer(), Some(count), "the replicas of {master} have it");
        }
    }

    /// Cuts a replica off from its master, so that it misses later writes, and stops it until
    /// [`RedisServer::cont`].
    ///
    /// # Panics
    /// A command to a node fails.
    pub fn hold_back(&self, master: usize, replica: usize) {
        self.nodes[replica].stop();
        // What waited in its socket is lost with the connection.
        self.command(master, "CLIENT KILL TYPE replica");
    }

    /// Begins to move a slot: from here on its keys lie on both sides.
    ///
    /// # Panics
    /// A command to a node fails.
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.command(to, &format!("CLUSTER SETSLOT {slot} IMPORTING {}", self.id(from)));
        self.command(from, &format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
    }

    /// Moves one key of a slot that is being moved.
    ///
    /// # Panics
    /// A command to a node fails.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].address().port().to_string();
        let [user, password] = OBSERVER;
        let words = ["MIGRATE", "127.0.0.1", &port, key, "0", "20000", "AUTH2", user, password];
        let reply = self.nodes[from].raw().send(&words).expect("an answer");
        assert!(matches!(reply, Reply::Simple(_)), "{key}: {reply:?}");
    }

    /// Moves the keys of a slot that is being moved.
    ///
    /// # Panics
    /// A command to a node fails.
    pub fn move_keys(&self, slot: u16, from: usize, to: usize) {
        loop {
            let line = format!("CLUSTER GETKEYSINSLOT {slot} {KEYS_AT_ONCE}");
            let reply = self.command(from, &line);
            let keys: Vec<String> =
                reply.items().unwrap_or_default().iter().filter_map(Reply::text).collect();
            if keys.is_empty() {
                return;
            }
            keys.iter().for_each(|key| self.move_key(key, from, to));
        }
    }

    /// Ends a move: the slot is served where its keys are now, in the eyes of all masters.
    ///
    /// The command goes to the new owner, from which the other masters learn it. `redis-cli` sends
    /// it to all masters. If slots move every few milliseconds, the new owner sometimes lost the
    /// slot again (7.0.15), and another master had received an old message of the last one. The
    /// cause is not known.
    ///
    /// # Panics
    /// A command to a node fails, or a node does not learn of the move.
    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let line = format!("CLUSTER SETSLOT {slot} NODE {}", self.id(to));
        self.command(to, &line);
        let all = || self.masters().all(|at| self.owner(slot, at) == Some(to)).then_some(());
        until(LIMIT, all).expect("all masters learn of a move");
        // It still takes the slot for one that it moves.
        self.command(from, &line);
    }

    /// The nodes that run as masters.
    fn masters(&self) -> impl Iterator<Item = usize> {
        let is_one = |at: &usize| self.nodes[*at].is_running() && self.nodes[*at].is_master();
        (0..self.nodes.len()).filter(is_one)
    }

    /// Moves a slot with its keys, as `redis-cli --cluster reshard` does but for the end.
    ///
    /// # Panics
    /// A command to a node fails.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_move(slot, from, to);
        self.move_keys(slot, from, to);
        self.end_move(slot, from, to);
    }

    /// Has `redis-cli --cluster reshard` move this many slots with their keys. Returns them: the
    /// lowest that the node `from` serves. All masters see them at their new place then.
    ///
    /// # Panics
    /// It fails, or they do not; the message says what it said.
    pub fn reshard(&self, count: usize, from: usize, to: usize) -> Vec<u16> {
        let program = programs::of_system("redis-cli", "redis-tools", "HOLDLINE_REDIS_CLI");
        let program = program.unwrap_or_else(|failure| panic!("{failure}"));
        let mut command = Command::new(program);
        let [user, password] = OBSERVER;
        command.args(["--user", user, "--pass", password, "--no-auth-warning"]);
        command.args(["--cluster", "reshard", &self.nodes[from].address().to_string()]);
        command.args(["--cluster-from", &self.id(from), "--cluster-to", &self.id(to)]);
        command.args(["--cluster-slots", &count.to_string(), "--cluster-yes"]);
        let done = command.stdin(Stdio::null()).output().expect("`redis-cli` starts");
        let says = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "`redis-cli` fails: {says}");
        let moved = |line: &str| line.strip_prefix("Moving slot ")?.split(' ').next()?.parse().ok();
        let slots: Vec<u16> = says.lines().filter_map(moved).collect();
        assert_eq!(slots.len(), count, "{says}");
        let at_new_place = |slot: &u16| self.masters().all(|at| self.owner(*slot, at) == Some(to));
        until(LIMIT, || slots.iter().all(at_new_place).then_some(()))
            .unwrap_or_else(|| panic!("not all masters see what was moved: {says}"));
        slots
    }

    /// Returns whether all nodes see the cluster as healthy, and the replicas follow.
    fn is_well(&self) -> bool {
        let replicas = self.nodes[self.config.masters..].iter();
        let linked = |node: &RedisServer| {
            let info = node.raw().say("INFO replication").ok();
            let info = info.and_then(|info| info.text()).unwrap_or_default();
            info.contains("master_link_status:up")
        };
        let nodes = 1 + self.config.replicas;
        let seen = |node: &RedisServer| {
            let reply = node.raw().say("CLUSTER SLOTS").ok();
            let ranges = reply.as_ref().and_then(Reply::items).unwrap_or_default();
            let full = |range: &Reply| range.items().is_some_and(|range| range.len() == 2 + nodes);
            ranges.len() == self.config.masters && ranges.iter().all(full)
        };
        let mut replicas = replicas;
        self.all_report("cluster_state", "ok")
            && replicas.all(linked)
            && self.nodes.iter().all(seen)
    }

    /// Returns whether each node that runs says this about the cluster.
    fn all_report(&self, field: &str, value: &str) -> bool {
        let says = |node: &RedisServer| self::field(node, field).as_deref() == Some(value);
        self.nodes.iter().filter(|node| node.is_running()).all(says)
    }
}

/// What a node says about the cluster.
fn field(node: &RedisServer, name: &str) -> Option<String> {
    let info = node.raw().say("CLUSTER INFO").ok()?.text()?;
    let mut fields = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    fields.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}
