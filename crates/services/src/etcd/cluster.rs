//! Three members that are one cluster.

use super::EtcdConfig;
use super::node::Node;
use crate::Failure;
use crate::PrivateNetwork;
use crate::Scratch;
use crate::hosts::{self, Cut};
use crate::wait::{LIMIT, until};
use std::net::SocketAddr;

/// How many members there are: the fewest that can lose one.
const MEMBERS: usize = 3;

/// A running cluster of three members on loopback ports, each in a directory of its own.
///
/// Members are named by their number from 0. Dropping it kills them all.
#[derive(Debug)]
pub struct EtcdCluster {
    nodes: Vec<Node>,
    members: String,
    config: EtcdConfig,
}

impl EtcdCluster {
    /// Starts the members and waits until they serve.
    ///
    /// # Panics
    /// The program is missing or a member does not start; the message says why.
    #[must_use]
    pub fn start(config: EtcdConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts the members and waits until they serve.
    ///
    /// # Errors
    /// The program is missing or a member does not start. Nothing is left behind.
    pub fn try_start(config: EtcdConfig) -> Result<Self, Failure> {
        let nodes = (0..MEMBERS).map(|number| node(number, &config)).collect::<Result<_, _>>()?;
        Self::launch(nodes, config)
    }

    /// Starts the members on a machine each, in a network of the test's own, and waits until they
    /// serve. Any of them can be cut off then: [`EtcdCluster::cut`].
    ///
    /// # Panics
    /// The program is missing, a member does not start, or the network already has machines; the
    /// message says why.
    #[must_use]
    pub fn start_apart(config: EtcdConfig, network: &PrivateNetwork) -> Self {
        Self::try_start_apart(config, network).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_start_apart(config: EtcdConfig, network: &PrivateNetwork) -> Result<Self, Failure> {
        let hosts = hosts::join(network, MEMBERS)?.into_iter().enumerate();
        let nodes = hosts.map(|(number, host)| Ok(node(number, &config)?.on(host)));
        Self::launch(nodes.collect::<Result<_, Failure>>()?, config)
    }

    fn launch(nodes: Vec<Node>, config: EtcdConfig) -> Result<Self, Failure> {
        let members = nodes.iter().map(Node::as_member).collect::<Vec<_>>().join(",");
        for node in &nodes {
            node.launch(&members)?;
        }
        let cluster = Self { nodes, members, config };
        for node in &cluster.nodes {
            node.await_ready()?;
        }
        cluster.nodes[0].turn_auth_on()?;
        Ok(cluster)
    }

    /// The addresses of all members as one URL.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.nodes.iter().map(Node::host).collect::<Vec<_>>().join(",");
        format!("{}://{}{hosts}", self.nodes[0].scheme(), self.nodes[0].credentials())
    }

    /// The address of one member as a URL.
    #[must_use]
    pub fn url_of(&self, member: usize) -> String {
        let node = &self.nodes[member];
        format!("{}://{}{}", node.scheme(), node.credentials(), node.host())
    }

    /// Where one member listens for clients.
    #[must_use]
    pub fn address(&self, member: usize) -> SocketAddr {
        self.nodes[member].address()
    }

    /// How the members were started.
    #[must_use]
    pub fn config(&self) -> &EtcdConfig {
        &self.config
    }

    /// Runs the real `etcdctl` against one member and returns what it prints.
    ///
    /// # Panics
    /// It fails; the message shows its words.
    pub fn ctl(&self, member: usize, words: &[&str]) -> String {
        self.nodes[member].ctl(words).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// As [`ctl`](Self::ctl), again and again until the cluster carries it out: after a loss it
    /// elects first.
    ///
    /// # Panics
    /// It does not within 30 s; the message shows the last words.
    pub fn ctl_until(&self, member: usize, words: &[&str]) -> String {
        let mut reply = String::new();
        let done = until(LIMIT, || match self.nodes[member].ctl(words) {
            Ok(printed) => Some(printed),
            Err(why) => {
                reply = why.to_string();
                None
            }
        });
        done.unwrap_or_else(|| panic!("{reply}"))
    }

    /// The number of the member that leads, as `witness` sees it.
    ///
    /// # Panics
    /// The witness knows of none within 30 s.
    #[must_use]
    pub fn leader_seen_by(&self, witness: usize) -> usize {
        let found = until(LIMIT, || {
            let status = self.nodes[witness].ctl(&["endpoint", "status", "-w", "fields"]).ok()?;
            let leader = field(&status, "\"Leader\"")?;
            if leader == "0" {
                return None;
            }
            (0..MEMBERS).find(|member| {
                let list = self.nodes[witness].ctl(&["member", "list", "-w", "fields"]);
                list.is_ok_and(|list| is_named(&list, leader, &format!("n{member}")))
            })
        });
        found.unwrap_or_else(|| panic!("member {witness} knows of no leader within {LIMIT:?}"))
    }

    /// Cuts a member off, in addition to earlier cuts: packets are lost silently.
    ///
    /// # Panics
    /// The members were not started apart, or the kernel refuses.
    pub fn cut(&self, member: usize, from: Cut) {
        self.nodes[member].machine().cut(from);
    }

    /// Lets all packets to and from a member pass again.
    ///
    /// # Panics
    /// As [`cut`](Self::cut).
    pub fn heal(&self, member: usize) {
        self.nodes[member].machine().heal();
    }

    /// Stops a member (`SIGSTOP`); returns when it is stopped.
    ///
    /// # Panics
    /// It does not run.
    pub fn stop(&self, member: usize) {
        self.nodes[member].process.stop();
    }

    /// Lets a stopped member go on.
    ///
    /// # Panics
    /// It does not run.
    pub fn cont(&self, member: usize) {
        self.nodes[member].process.cont();
    }

    /// As [`EtcdServer::step_clock`](crate::EtcdServer::step_clock), for one member.
    ///
    /// # Panics
    /// As there.
    pub fn step_clock(&self, member: usize, ahead: i64) {
        self.nodes[member].process.step_clock(ahead);
    }

    /// What a member has written to its log since its first start.
    #[must_use]
    pub fn log(&self, member: usize) -> String {
        self.nodes[member].process.log()
    }

    /// Kills a member (`SIGKILL`) and waits until it is dead.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&self, member: usize) {
        self.nodes[member].process.kill();
    }

    /// Starts a killed member again with what it has stored. It serves only once it finds a
    /// leader: [`EtcdCluster::await_ready`].
    ///
    /// # Panics
    /// It does not start.
    pub fn relaunch(&self, member: usize) {
        self.nodes[member].relaunch(&self.members);
    }

    /// Waits until a member that was started serves clients.
    ///
    /// # Panics
    /// It does not within 30 s.
    pub fn await_ready(&self, member: usize) {
        if let Err(why) = self.nodes[member].await_ready() {
            panic!("{why}");
        }
    }
}

fn node(number: usize, config: &EtcdConfig) -> Result<Node, Failure> {
    Node::new(&format!("n{number}"), config.clone(), Scratch::new("etcd")?)
}

/// The value of a field of what `etcdctl -w fields` prints.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// Whether the list has a member of this id and name.
fn is_named(list: &str, id: &str, name: &str) -> bool {
    let mut here = false;
    list.lines().any(|line| {
        if let Some(value) = line.strip_prefix("\"ID\" :") {
            here = value.trim() == id;
        }
        here && line
            .strip_prefix("\"Name\" :")
            .is_some_and(|value| value.trim().trim_matches('"') == name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_by_its_id() {
        let list = "\"ID\" : 7\n\"Name\" : \"n0\"\n\n\"ID\" : 70\n\"Name\" : \"n1\"\n";
        assert!(is_named(list, "70", "n1") && is_named(list, "7", "n0"));
        assert!(!is_named(list, "7", "n1") && !is_named(list, "0", "n0"));
        assert_eq!(field("\"Leader\" : 9\n", "\"Leader\""), Some("9"));
    }
}
