//! Real etcd servers of a test's own: one, or three that are one cluster.

mod cluster;
mod config;
mod node;

pub use cluster::EtcdCluster;
pub use config::{EtcdConfig, EtcdFlavour};
use node::Node;

use crate::{Certificates, Failure, Scratch};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A running `etcd` of one member on a loopback port, in a directory of its own.
///
/// Dropping it kills the server and removes the directory; so does the end of this process. All
/// methods panic with the reason if a command to the server fails, which ends the test.
#[derive(Debug)]
pub struct EtcdServer {
    node: Node,
}

impl EtcdServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// The program is missing or the server does not start; the message says why.
    #[must_use]
    pub fn start(config: EtcdConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The program is missing or the server does not start. Nothing is left behind.
    pub fn try_start(config: EtcdConfig) -> Result<Self, Failure> {
        let node = Node::new("one", config, Scratch::new("etcd")?)?;
        node.launch(&node.as_member())?;
        node.await_ready()?;
        node.turn_auth_on()?;
        Ok(Self { node })
    }

    /// Where the server listens; the same for as long as this value lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.node.address()
    }

    /// The address as a URL, with the user `root` and its password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.node.scheme(), self.node.credentials(), self.node.host())
    }

    /// The certificates that the server and its clients use.
    ///
    /// # Panics
    /// The server was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        self.node.certificates()
    }

    /// The server's process number.
    ///
    /// # Panics
    /// The server does not run.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.node.process.pid()
    }

    /// Runs the real `etcdctl` against this server and returns what it prints.
    ///
    /// # Panics
    /// It fails; the message shows its words.
    pub fn ctl(&self, words: &[&str]) -> String {
        self.node.ctl(words).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The real `etcdctl`, set up to talk to this server, for a test to run as it wants.
    #[must_use]
    pub fn ctl_command(&self) -> std::process::Command {
        self.node.ctl_command()
    }

    /// What the server has written to its log since the first start.
    #[must_use]
    pub fn log(&self) -> String {
        self.node.process.log()
    }

    /// Stops the server (`SIGSTOP`); returns when it is stopped.
    ///
    /// # Panics
    /// The server does not run.
    pub fn stop(&self) {
        self.node.process.stop();
    }

    /// Lets a stopped server go on.
    ///
    /// # Panics
    /// The server does not run.
    pub fn cont(&self) {
        self.node.process.cont();
    }

    /// Lets the server's wall clock run this many seconds ahead of ours, or behind, from now on
    /// and until it ends. Monotonic clocks are left alone.
    ///
    /// # Panics
    /// The server does not run, or the kernel does not let us at its memory.
    pub fn step_clock(&self, ahead: i64) {
        self.node.process.step_clock(ahead);
    }

    /// Kills the server (`SIGKILL`) and waits until it is dead.
    ///
    /// # Panics
    /// The server does not run.
    pub fn kill(&self) {
        self.node.process.kill();
    }

    /// Ends the server in good order (`SIGTERM`): all that it acknowledged is in its store.
    ///
    /// # Panics
    /// The server does not run, or does not end.
    pub fn end(&self) {
        self.node.process.shutdown();
    }

    /// The revision of the store now.
    ///
    /// # Panics
    /// The server does not report it.
    #[must_use]
    pub fn revision(&self) -> i64 {
        let status = self.ctl(&["endpoint", "status", "-w", "fields"]);
        let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
        revision.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{status}"))
    }

    /// Copies the store as it is now, into the server's directory; returns where the copy lies.
    ///
    /// # Panics
    /// The server does not run, or its copy cannot be written.
    #[must_use]
    pub fn save(&self) -> PathBuf {
        self.node.save().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Kills the server, puts an old copy of the store in place, and starts it again.
    ///
    /// # Panics
    /// `copy` is none, or the server does not start with it; the message says why.
    pub fn restore(&self, copy: &Path) {
        self.node.process.kill();
        self.node.restore(copy, &self.node.as_member()).unwrap_or_else(|why| panic!("{why}"));
        self.restart();
    }

    /// Starts the server again with what it has stored; kills it first if it runs.
    ///
    /// # Panics
    /// The server does not start; the message says why.
    pub fn restart(&self) {
        self.node.relaunch(&self.node.as_member());
        if let Err(why) = self.node.await_ready() {
            panic!("{why}");
        }
    }
}
