//! Real servers that Sentinels look after: one master, two replicas, three sentinels.

use crate::config::OBSERVER;
use crate::ports::Port;
use crate::redis::RedisServer;
use crate::scratch::Scratch;
use crate::wait::{LIMIT, until};
use crate::{Failure, Flavour, Raw, RedisConfig, Reply, spawner};
use rustix::process::Signal;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SERVERS: usize = 3;
const SENTINELS: usize = 3;
/// How many sentinels must find the master dead.
const QUORUM: usize = 2;

/// Describes a group; by default a master is found dead after a second.
#[derive(Debug, Clone)]
pub struct SentinelConfig {
    servers: RedisConfig,
    down_after: Duration,
    quorum: usize,
    password: Option<String>,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        let down_after = Duration::from_secs(1);
        Self { servers: RedisConfig::default(), down_after, quorum: QUORUM, password: None }
    }
}

impl SentinelConfig {
    /// Starts the servers like this.
    #[must_use]
    pub fn with_servers(mut self, servers: RedisConfig) -> Self {
        self.servers = servers;
        self
    }

    /// Sets after how long a silent master is found dead.
    #[must_use]
    pub fn with_down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Sets how many sentinels must find the master dead.
    #[must_use]
    pub fn with_quorum(mut self, quorum: usize) -> Self {
        self.quorum = quorum;
        self
    }

    /// Has the sentinels ask for a password.
    #[must_use]
    pub fn with_sentinel_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }
}

/// A running group: servers by their number from 0, of which the first begins as the master, and
/// sentinels.
///
/// Dropping it kills them all. Methods panic with the reason when a server does not do as told.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
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
        let master = RedisServer::try_start(config.servers.clone())?;
        let address = master.address();
        let mut servers = vec![master];
        while servers.len() < SERVERS {
            let replica = config.servers.clone().with_replica_of(address);
            servers.push(RedisServer::try_start(replica)?);
        }
        let start = |_| Sentinel::start(config, address);
        let sentinels = (0..SENTINELS).map(start).collect::<Result<_, _>>()?;
        let group = Self { servers, sentinels };
        group.await_known(SERVERS - 1);
        group.await_linked();
        Ok(group)
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

    /// The number of the server that the first sentinel names.
    ///
    /// # Panics
    /// The sentinel does not answer, or names a stranger.
    #[must_use]
    pub fn master(&self) -> usize {
        let named = self.sentinels[0].master().expect("the sentinel knows the service");
        self.servers.iter().position(|server| server.address() == named).expect("a server of ours")
    }

    /// Waits until all sentinels name another server than this one, and that is a master; returns
    /// its number.
    ///
    /// # Panics
    /// They do not.
    pub fn await_promotion(&self, before: usize) -> usize {
        let promoted = || {
            let now = self.master();
            let all = self
                .sentinels
                .iter()
                .all(|sentinel| sentinel.master() == Some(self.servers[now].address()));
            (now != before && all && self.servers[now].is_master()).then_some(now)
        };
        until(LIMIT, promoted).expect("a replica is promoted")
    }

    /// Waits until each sentinel knows so many replicas of which each is well, and all others.
    ///
    /// # Panics
    /// They do not.
    pub fn await_known(&self, replicas: usize) {
        let knows = |sentinel: &Sentinel| {
            let others = sentinel.number_of("num-other-sentinels");
            let up = sentinel.replicas_up() == replicas;
            up && others == Some(SENTINELS as u64 - 1)
        };
        let all = || self.sentinels.iter().all(knows).then_some(());
        until(LIMIT, all).expect("the sentinels know each other and the replicas");
    }

    /// Waits until the master has all the others as replicas that are up to date.
    ///
    /// # Panics
    /// It has not.
    pub fn await_linked(&self) {
        let linked = || {
            let info = self.servers[self.master()].raw().say("INFO replication").ok()?;
            let online = info.text()?.matches("state=online").count();
            (online == SERVERS - 1).then_some(())
        };
        until(LIMIT, linked).expect("the replicas follow their master");
    }

    /// Cuts the replicas off, so that they miss what the master is told from now on, and holds them
    /// there. They go on when they are told to ([`RedisServer::cont`]).
    ///
    /// # Panics
    /// A server does not do as told.
    pub fn hold_replicas_back(&self) {
        let master = self.master();
        let replicas = || self.servers.iter().enumerate().filter(|(at, _)| *at != master);
        replicas().for_each(|(_, replica)| replica.stop());
        // What waited in their sockets is lost with the connection.
        self.servers[master].raw().say("CLIENT KILL TYPE replica").expect("an answer");
    }

    /// Lets the replicas go on.
    ///
    /// # Panics
    /// A server does not do as told.
    pub fn let_replicas_go(&self, master: usize) {
        let replicas = self.servers.iter().enumerate().filter(|(at, _)| *at != master);
        replicas.for_each(|(_, replica)| replica.cont());
    }
}

/// A running sentinel on a loopback port.
#[derive(Debug)]
pub struct Sentinel {
    port: Port,
    password: Option<String>,
    child: Mutex<Option<Child>>,
    directory: Scratch,
    program: PathBuf,
}

impl Sentinel {
    fn start(config: &SentinelConfig, master: SocketAddr) -> Result<Self, Failure> {
        let sentinel = Self {
            port: Port::reserve()?,
            password: config.password.clone(),
            child: Mutex::new(None),
            directory: Scratch::new("sentinel")?,
            program: Flavour::Debian.program()?,
        };
        sentinel.directory.write("sentinel.conf", sentinel.text(config, master))?;
        sentinel.launch()?;
        Ok(sentinel)
    }

    /// A sentinel that watches nobody.
    ///
    /// # Panics
    /// It does not start; the message says why.
    #[must_use]
    pub fn idle() -> Self {
        let config = SentinelConfig { quorum: 0, ..SentinelConfig::default() };
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        Self::start(&config, nobody).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn text(&self, config: &SentinelConfig, master: SocketAddr) -> String {
        let service = SentinelGroup::SERVICE;
        let directory = self.directory.path().display();
        let (ip, port) = (master.ip(), master.port());
        let mut text = format!(
            "bind 127.0.0.1\nport {}\ndir {directory}\ndaemonize no\nprotected-mode no\n",
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
        text
    }

    fn launch(&self) -> Result<(), Failure> {
        let path = self.directory.path().join("sentinel.log");
        let open = File::options().create(true).append(true).open(path);
        let log = open.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|why| Failure::because("cannot write the log", why))?;
        let mut command = spawner::mortal(&self.program);
        command.arg(self.directory.path().join("sentinel.conf")).arg("--sentinel");
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        *self.child() = Some(spawner::spawn(command)?);
        let answers = || self.say(&["PING"]).map(drop);
        until(LIMIT, answers)
            .ok_or_else(|| Failure::because("the sentinel does not answer", self.log()))
    }

    /// Where it listens; the same for as long as this value lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// What it has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        let path = self.directory.path().join("sentinel.log");
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
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

    /// A number that it tells about the service.
    #[must_use]
    pub fn number_of(&self, field: &str) -> Option<u64> {
        let reply = self.say(&["SENTINEL", "MASTER", SentinelGroup::SERVICE])?;
        let pairs = reply.items()?.chunks(2);
        let mut found = pairs.filter(|pair| pair[0].text().as_deref() == Some(field));
        found.next()?.get(1)?.text()?.parse().ok()
    }

    /// How many replicas it knows that are well.
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

    /// Makes it stand still.
    ///
    /// # Panics
    /// It does not run.
    pub fn stop(&self) {
        self.tell(Signal::STOP, true);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// It does not run.
    pub fn cont(&self) {
        self.tell(Signal::CONT, false);
    }

    /// Kills it and waits until it is dead.
    ///
    /// # Panics
    /// It does not run.
    pub fn kill(&self) {
        let mut child = self.child().take().expect("the sentinel runs");
        child.kill().and_then(|()| child.wait()).expect("it dies");
    }

    fn tell(&self, signal: Signal, stopped: bool) {
        let child = self.child();
        let child = child.as_ref().expect("the sentinel runs");
        spawner::signal(child, signal).expect("it can be signalled");
        spawner::await_stopped(child, stopped).expect("it follows the signal");
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            // Only a process that is gone already cannot be killed, and it still must be reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
