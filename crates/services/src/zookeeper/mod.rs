//! Real ZooKeeper servers of a test's own: one, or three that are one ensemble.

mod config;
mod node;
mod session;
mod snapshot;

pub use config::ZooKeeperConfig;
use node::Node;

use crate::wait::{LIMIT, until};
use crate::{Certificates, Failure};
use std::net::SocketAddr;
use std::path::PathBuf;

/// How many members an ensemble has: the fewest that can lose one.
const MEMBERS: usize = 3;

/// Running ZooKeeper servers on loopback ports, each in a directory of its own: one that stands
/// alone, or three. Members are named by their number from 0.
///
/// Dropping it kills the servers and removes the directories; so does the end of this process. All
/// methods panic with the reason if a command to a server fails, which ends the test.
#[derive(Debug)]
pub struct ZooKeeper {
    nodes: Vec<Node>,
    members: String,
}

impl ZooKeeper {
    /// Starts one server and waits until it answers.
    ///
    /// # Panics
    /// Java or the Debian package is missing, or the server does not start; the message says why.
    #[must_use]
    pub fn start(config: &ZooKeeperConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts one server and waits until it answers.
    ///
    /// # Errors
    /// Java or the Debian package is missing, or the server does not start. Nothing is left behind.
    pub fn try_start(config: &ZooKeeperConfig) -> Result<Self, Failure> {
        let nodes = vec![Node::new(0, config.clone())?];
        Self::launch(nodes, String::new())
    }

    /// Starts three servers that are one ensemble, and waits until all of them serve.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_three(config: &ZooKeeperConfig) -> Self {
        Self::try_start_three(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts three servers that are one ensemble, and waits until all of them serve.
    ///
    /// # Errors
    /// As [`try_start`](Self::try_start).
    pub fn try_start_three(config: &ZooKeeperConfig) -> Result<Self, Failure> {
        let nodes = (0..MEMBERS).map(|number| Node::new(number, config.clone()));
        let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        let members = nodes.iter().map(Node::as_member).collect();
        Self::launch(nodes, members)
    }

    fn launch(nodes: Vec<Node>, members: String) -> Result<Self, Failure> {
        for node in &nodes {
            node.launch(&members)?;
        }
        let servers = Self { nodes, members };
        for node in &servers.nodes {
            node.await_ready()?;
        }
        Ok(servers)
    }

    /// The addresses of all members as one URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}", self.hosts())
    }

    /// The addresses of all members, as ZooKeeper's own clients take them.
    #[must_use]
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        hosts.join(",")
    }

    /// Where one member listens for clients.
    #[must_use]
    pub fn address(&self, member: usize) -> SocketAddr {
        self.nodes[member].address()
    }

    /// Where a server that was started with TLS listens for clients by TLS, as a URL without the
    /// authority.
    ///
    /// # Panics
    /// It was started without TLS.
    #[must_use]
    pub fn secure_url(&self) -> String {
        format!("zks://localhost:{}", self.nodes[0].secure().port.number())
    }

    /// The certificates that a server with TLS and its clients use.
    ///
    /// # Panics
    /// It was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.nodes[0].secure().certificates
    }

    /// A member's process number.
    ///
    /// # Panics
    /// It does not run.
    #[must_use]
    pub fn pid(&self, member: usize) -> u32 {
        self.nodes[member].process.pid()
    }

    /// What a member answers to one of the words of four letters; empty when it does not answer.
    #[must_use]
    pub fn word(&self, member: usize, word: &str) -> String {
        self.nodes[member].word(word)
    }

    /// The number of the member that leads.
    ///
    /// # Panics
    /// None does within the time limit.
    #[must_use]
    pub fn leader(&self) -> usize {
        let leads = |node: &Node| node.mode().is_some_and(|mode| mode == "leader");
        until(LIMIT, || self.nodes.iter().position(leads))
            .unwrap_or_else(|| panic!("no member leads within {LIMIT:?}"))
    }

    /// What a member has written to its log since its first start.
    #[must_use]
    pub fn log(&self, member: usize) -> String {
        self.nodes[member].process.log()
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

    /// Lets a member's wall clock run this many seconds ahead of ours, or behind, from now on and
    /// until it ends. Monotonic clocks are left alone.
    ///
    /// # Panics
    /// It does not run, or the kernel does not let us at its memory.
    pub fn step_clock(&self, member: usize, ahead: i64) {
        self.nodes[member].process.step_clock(ahead);
    }

    /// The numbers of the sessions on which nodes hang below a path.
    ///
    /// # Panics
    /// No member leads within the time limit.
    #[must_use]
    pub fn sessions_below(&self, path: &str) -> Vec<u64> {
        session::with_nodes_below(&self.word(self.deciding(), "dump"), path)
    }

    /// Opens a session without keepalives and with the longest timeout; returns its number.
    ///
    /// # Panics
    /// The member does not answer.
    #[must_use]
    pub fn open_session(&self, member: usize) -> u64 {
        session::open(self.address(member)).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Ends a session, as only its owner and the servers could: its nodes are gone. Returns
    /// whether there was one of this number.
    ///
    /// # Panics
    /// No member leads, or it does not answer within the time limit.
    pub fn end_session(&self, session: u64) -> bool {
        let mut there = false;
        let mut why = None;
        // Its own client, whose connection we take, may take it back before it is closed.
        let gone = until(LIMIT, || match session::end(self.address(self.deciding()), session) {
            Ok(true) => {
                there = true;
                None
            }
            Ok(false) => Some(()),
            Err(failure) => {
                why = Some(failure);
                None
            }
        });
        assert!(gone.is_some(), "session {session:#x} goes on: {why:?}");
        there
    }

    /// The member that leads, or stands alone.
    fn deciding(&self) -> usize {
        if self.nodes.len() == 1 { 0 } else { self.leader() }
    }

    /// Kills a member (`SIGKILL`) and waits until it is dead.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&self, member: usize) {
        self.nodes[member].process.kill();
    }

    /// Kills all members, starts them again with what they have stored, and waits until they
    /// serve.
    ///
    /// # Panics
    /// One does not start; the message says why.
    pub fn restart(&self) {
        self.nodes.iter().for_each(|node| node.relaunch(&self.members));
        (0..self.nodes.len()).for_each(|member| self.await_ready(member));
    }

    /// Restarts a server that stands alone, which has then counted this many creations of children
    /// of a node.
    ///
    /// # Panics
    /// There is no such node, or the server does not start; the message says why.
    pub fn set_creations(&self, path: &str, count: i32) {
        // It writes a snapshot when it starts.
        self.restart();
        self.kill(0);
        self.nodes[0].set_creations(path, count).unwrap_or_else(|why| panic!("{why}"));
        self.restart();
    }

    /// Copies what all members have stored, beside what they store; returns where the copies lie.
    ///
    /// # Panics
    /// They cannot be written.
    #[must_use]
    pub fn save(&self) -> Vec<PathBuf> {
        self.nodes.iter().map(|node| node.save().unwrap_or_else(|why| panic!("{why}"))).collect()
    }

    /// Kills all members, puts old copies in place, starts them again, and waits until they serve.
    ///
    /// # Panics
    /// The copies are none, or a member does not start; the message says why.
    pub fn restore(&self, copies: &[PathBuf]) {
        self.nodes.iter().for_each(|node| node.process.kill());
        for (node, copy) in self.nodes.iter().zip(copies) {
            node.restore(copy).unwrap_or_else(|why| panic!("{why}"));
        }
        self.restart();
    }

    /// Starts a killed member again with what it has stored; waits for nothing.
    ///
    /// # Panics
    /// It does not start.
    pub fn relaunch(&self, member: usize) {
        self.nodes[member].relaunch(&self.members);
    }

    /// Waits until a member that was started serves clients.
    ///
    /// # Panics
    /// It does not within the time limit.
    pub fn await_ready(&self, member: usize) {
        if let Err(why) = self.nodes[member].await_ready() {
            panic!("{why}");
        }
    }
}
