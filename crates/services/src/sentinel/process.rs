//! One Sentinel: its process, and queries to it.

use super::tls::Tls;
use super::{SentinelConfig, SentinelGroup};
use crate::config::OBSERVER;
use crate::hosts::Host;
use crate::ports::Port;
use crate::scratch::Scratch;
use crate::server_process::ServerProcess;
use crate::wait::{LIMIT, until};
use crate::{Failure, Flavour, Raw, Reply, spawner};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// A running sentinel on a loopback port.
#[derive(Debug)]
pub struct Sentinel {
    process: ServerProcess,
    /// The machine it runs on, if not on ours.
    host: Option<Arc<Host>>,
    port: Port,
    tls_port: Option<Port>,
    password: Option<String>,
    program: PathBuf,
}

impl Sentinel {
    pub(super) fn start(
        config: &SentinelConfig,
        master: SocketAddr,
        host: Option<Arc<Host>>,
        tls: Option<&Tls>,
    ) -> Result<Self, Failure> {
        let sentinel = Self {
            process: ServerProcess::new(Scratch::new("sentinel")?),
            host,
            port: Port::reserve()?,
            tls_port: tls.map(|_| Port::reserve()).transpose()?,
            password: config.password.clone(),
            program: Flavour::Debian.program()?,
        };
        let mut text = sentinel.text(config, master);
        if let (Some(port), Some(tls)) = (&sentinel.tls_port, tls) {
            text += &format!("tls-port {}\n{}\n", port.number(), tls.lines().join("\n"));
        }
        sentinel.process.write("sentinel.conf", text)?;
        sentinel.launch()?;
        Ok(sentinel)
    }

    /// A sentinel that monitors no master.
    ///
    /// # Panics
    /// It does not start; the message says why.
    #[must_use]
    pub fn idle() -> Self {
        let config = SentinelConfig { quorum: 0, ..SentinelConfig::default() };
        let no_master = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        Self::start(&config, no_master, None, None).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn text(&self, config: &SentinelConfig, master: SocketAddr) -> String {
        let service = SentinelGroup::SERVICE;
        let directory = self.process.directory().display();
        let ip = master.ip();
        let port = master.port();
        let mut text = format!(
            "bind {}\nport {}\ndir {directory}\ndaemonize no\nprotected-mode no\n",
            self.ip(),
            self.port.number()
        );
        let [user, password] = OBSERVER;
        if config.quorum > 0 {
            text += &format!(
                "sentinel monitor {service} {ip} {port} {}\n\
                 sentinel auth-user {service} {user}\n\
                 sentinel auth-pass {service} {password}\n\
                 sentinel down-after-milliseconds {service} {}\n\
                 sentinel failover-timeout {service} 6000\n\
                 sentinel parallel-syncs {service} 2\n",
                config.quorum,
                config.down_after.as_millis(),
            );
        }
        if let Some(password) = &self.password {
            text += &format!("requirepass {password}\n");
        }
        for line in &config.lines {
            text += &format!("{line}\n");
        }
        text
    }

    fn launch(&self) -> Result<(), Failure> {
        let mut command = match &self.host {
            Some(host) => host.mortal(&self.program),
            None => spawner::mortal(&self.program),
        };
        command.arg(self.process.directory().join("sentinel.conf")).arg("--sentinel");
        self.process.launch(command)?;
        let answers = || self.say(&["PING"]).map(drop);
        until(LIMIT, answers)
            .ok_or_else(|| Failure::because("the sentinel does not answer", self.log()))
    }

    /// Where it listens; the same for as long as this value lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.ip(), self.port.number()))
    }

    /// Where it listens with TLS.
    ///
    /// # Panics
    /// The group was started without.
    #[must_use]
    pub fn tls_address(&self) -> SocketAddr {
        let port = self.tls_port.as_ref().expect("the group was started with TLS");
        SocketAddr::from((self.ip(), port.number()))
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address())
    }

    /// What it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Asks it something; nothing when it does not answer, or with an error.
    #[must_use]
    pub fn say(&self, words: &[&str]) -> Option<Reply> {
        let mut raw = Raw::connect(self.address()).ok()?;
        if let Some(password) = &self.password {
            raw.send(&["AUTH", password]).ok()?;
        }
        match raw.send(words).ok()? {
            Reply::Error(_) => None,
            reply => Some(reply),
        }
    }

    /// The server that it names.
    #[must_use]
    pub fn master(&self) -> Option<SocketAddr> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelGroup::SERVICE];
        let reply = self.say(&words)?;
        let [ip, port] = reply.items()? else { return None };
        Some(SocketAddr::new(ip.text()?.parse().ok()?, port.text()?.parse().ok()?))
    }

    /// A number that it reports about the service.
    #[must_use]
    pub fn number_of(&self, field: &str) -> Option<u64> {
        let reply = self.say(&["SENTINEL", "MASTER", SentinelGroup::SERVICE])?;
        let pairs = reply.items()?.chunks(2);
        let mut found = pairs.filter(|pair| pair[0].text().as_deref() == Some(field));
        found.next()?.get(1)?.text()?.parse().ok()
    }

    /// How many healthy replicas it knows.
    #[must_use]
    pub fn replicas_up(&self) -> usize {
        let reply = self.say(&["SENTINEL", "REPLICAS", SentinelGroup::SERVICE]);
        let count = reply.as_ref().and_then(|reply| {
            let flags = |replica: &Reply| {
                let pairs = replica.items()?.chunks(2);
                let mut found = pairs.filter(|pair| pair[0].text().as_deref() == Some("flags"));
                found.next()?.get(1)?.text()
            };
            let all = reply.items()?.iter().filter_map(flags);
            Some(all.filter(|flags| flags == "slave").count())
        });
        count.unwrap_or(0)
    }

    /// Stops it.
    ///
    /// # Panics
    /// It does not run.
    pub fn stop(&self) {
        self.process.stop();
    }

    /// Continues it.
    ///
    /// # Panics
    /// It does not run.
    pub fn cont(&self) {
        self.process.cont();
    }

    /// Kills it and waits until it is dead.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&self) {
        self.process.kill();
    }
}
