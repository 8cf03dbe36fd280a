//! Real servers that Sentinels monitor: one master, two replicas, three sentinels.

mod config;
mod failover;
mod process;
mod tls;

pub use config::SentinelConfig;
pub use process::Sentinel;

use crate::hosts::{self, Cut, Host};
use crate::redis::RedisServer;
use crate::{Certificates, Failure, PrivateNetwork, RedisConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use tls::Tls;

const SERVERS: usize = 3;
const SENTINELS: usize = 3;
/// How many sentinels must find the master dead.
const QUORUM: usize = 2;

/// A running group: servers by their number from 0, of which the first begins as the master, and
/// sentinels.
///
/// Dropping it kills them all. Methods panic with the reason if a command to a server fails.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
    tls: Option<Tls>,
    /// One for each server and the sentinel of its number, if they were started apart.
    hosts: Vec<Arc<Host>>,
}

/// Returns the address at which a server listens for replicas, sentinels and clients.
fn address_of(server: &RedisServer, tls: bool) -> SocketAddr {
    if tls { server.tls_address() } else { server.address() }
}

impl SentinelGroup {
    /// The name under which the sentinels know the servers.
    pub const SERVICE: &str = "locks";

    /// Starts all of them, and waits until each sentinel knows all servers and all sentinels.
    ///
    /// # Panics
    /// One of them does not start; the message says why.
    #[must_use]
    pub fn start(config: &SentinelConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts all of them, and waits until each sentinel knows all servers and all sentinels.
    ///
    /// # Errors
    /// One of them does not start. Nothing is left behind.
    pub fn try_start(config: &SentinelConfig) -> Result<Self, Failure> {
        Self::start_on(config, Vec::new())
    }

    /// Starts each server and the sentinel of its number on a machine of their own, in a network of
    /// the test's own. Any of these can be cut off then: [`SentinelGroup::cut`].
    ///
    /// # Panics
    /// One of them does not start, or the network already has machines; the message says why.
    #[must_use]
    pub fn start_apart(config: &SentinelConfig, network: &PrivateNetwork) -> Self {
        let started = hosts::join(network, SERVERS)
            .and_then(|hosts| Self::start_on(config, hosts.into_iter().map(Arc::new).collect()));
        started.unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn start_on(config: &SentinelConfig, hosts: Vec<Arc<Host>>) -> Result<Self, Failure> {
        let tls = config.tls.then(Tls::new).transpose()?;
        let mut wanted = config.servers.clone();
        if let Some(tls) = &tls {
            wanted = tls.lines().into_iter().fold(wanted.with_tls(), RedisConfig::with_line);
        }
        let host = |number: usize| hosts.get(number).cloned();
        let master = RedisServer::try_start_on(host(0), wanted.clone())?;
        let address = address_of(&master, config.tls);
        let mut servers = vec![master];
        while servers.len() < SERVERS {
            let replica = wanted.clone().with_replica_of(address);
            servers.push(RedisServer::try_start_on(host(servers.len()), replica)?);
        }
        let start = |number| Sentinel::start(config, address, host(number), tls.as_ref());
        let sentinels = (0..SENTINELS).map(start).collect::<Result<_, _>>()?;
        let group = Self { servers, sentinels, tls, hosts };
        group.await_known(SERVERS - 1);
        group.await_linked();
        Ok(group)
    }

    /// The addresses of the sentinels and the service as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_by("redis+sentinel", &[0, 1, 2])
    }

    /// The same by some of the sentinels, for a client that reaches no others.
    #[must_use]
    pub fn url_of(&self, sentinels: &[usize]) -> String {
        self.url_by("redis+sentinel", sentinels)
    }

    /// The same with TLS.
    ///
    /// # Panics
    /// The group was started without.
    #[must_use]
    pub fn tls_url(&self) -> String {
        self.url_by("rediss+sentinel", &[0, 1, 2])
    }

    fn url_by(&self, scheme: &str, sentinels: &[usize]) -> String {
        let address = |number: &usize| match scheme {
            "redis+sentinel" => self.sentinels[*number].address(),
            _ => self.sentinels[*number].tls_address(),
        };
        let hosts: Vec<String> = sentinels.iter().map(|one| address(one).to_string()).collect();
        format!("{scheme}://{}/{}", hosts.join(","), Self::SERVICE)
    }

    /// The certificates of servers, sentinels and clients.
    ///
    /// # Panics
    /// The group was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.tls.as_ref().expect("the group was started with TLS").certificates
    }

    /// Cuts a machine off from others, in addition to earlier cuts: packets are lost silently.
    ///
    /// # Panics
    /// The group was not started apart, or the kernel refuses.
    pub fn cut(&self, machine: usize, from: Cut) {
        self.hosts[machine].cut(from);
    }

    /// Lets all packets to and from a machine pass again.
    ///
    /// # Panics
    /// As [`cut`](Self::cut).
    pub fn heal(&self, machine: usize) {
        self.hosts[machine].heal();
    }

    /// The servers, in the order in which they were started.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }
}
