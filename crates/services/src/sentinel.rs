//! Real servers that Sentinels look after: one master, two replicas, three sentinels.

use crate::config::OBSERVER;
use crate::failure::last_words;
use crate::hosts::{self, Cut, Host};
use crate::ports::Port;
use crate::redis::RedisServer;
use crate::scratch::Scratch;
use crate::wait::{LIMIT, until};
use crate::{Certificates, Failure, Flavour, PrivateNetwork, Raw, RedisConfig, Reply, spawner};
use rustix::process::Signal;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    tls: bool,
    lines: Vec<String>,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self {
            servers: RedisConfig::default(),
            down_after: Duration::from_secs(1),
            quorum: QUORUM,
            password: None,
            tls: false,
            lines: Vec::new(),
        }
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

    /// Has servers and sentinels speak TLS among each other, and listen with TLS too.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds a line of `sentinel.conf`.
    #[must_use]
    pub fn with_sentinel_line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
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
    tls: Option<Tls>,
    /// One for each server and the sentinel of its number, if they were started apart.
    hosts: Vec<Arc<Host>>,
}

/// The certificates that all of a group share.
#[derive(Debug)]
struct Tls {
    certificates: Certificates,
    _directory: Scratch,
}

impl Tls {
    fn new() -> Result<Self, Failure> {
        let directory = Scratch::new("group")?;
        Ok(Self { certificates: Certificates::write(directory.path())?, _directory: directory })
    }

    fn lines(&self) -> [String; 5] {
        let (certificate, key) = self.certificates.server();
        [
            "tls-replication yes".to_owned(),
            "tls-auth-clients no".to_owned(),
            format!("tls-cert-file {}", certificate.display()),
            format!("tls-key-file {}", key.display()),
            format!("tls-ca-cert-file {}", self.certificates.ca().display()),
        ]
    }
}

/// Where a server listens for replicas, sentinels and clients.
fn place(server: &RedisServer, tls: bool) -> SocketAddr {
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
        let address = place(&master, config.tls);
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

    /// The same by some of the sentinels, as whoever reaches no other.
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

    /// Leaves at a server what a client leaves there that has known it as the master for long: it
    /// grants at once.
    ///
    /// # Panics
    /// The server does not answer, or takes no writes.
    pub fn settle(&self, server: usize) {
        let mut raw = self.servers[server].raw();
        let mut field = |section: &str, name: &str| {
            let info = raw.send(&["INFO", section]).expect("an answer").text().expect("text");
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.expect("the field").trim().to_owned()
        };
        let run = field("server", "run_id:");
        let followed = field("replication", "master_replid2:");
        let words = ["HSET", "holdline:reign:1", "m", &run, "f", &followed, "q", "0", "w", "1"];
        let reply = raw.send(&words).expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }

    /// Has a sentinel give the master's place to a replica while all are well; returns its number.
    ///
    /// # Panics
    /// None is promoted.
    pub fn fail_over(&self) -> usize {
        let before = self.master();
        let words = ["SENTINEL", "FAILOVER", Self::SERVICE];
        let begun = || self.sentinels.iter().find_map(|sentinel| sentinel.say(&words));
        self.must(until(LIMIT, begun), "a sentinel begins");
        self.await_promotion(before)
    }

    /// Makes a server that was the master follow the one that is, and waits until it does. The
    /// sentinels see to that themselves, after ten seconds. From then on another may be promoted.
    ///
    /// # Panics
    /// It does not.
    pub fn follow(&self, server: usize, master: usize) {
        self.point(server, master);
        self.await_linked();
        let port = Some(u64::from(place(&self.servers[master], self.tls.is_some()).port()));
        // While a sentinel still moves the others over it names the next master, and keeps the
        // last: if the next one went now, it would stand still there.
        let settled = || {
            let mut all = self.sentinels.iter();
            all.all(|sentinel| sentinel.number_of("port") == port).then_some(())
        };
        self.must(until(LIMIT, settled), "the failover comes to its end");
    }

    /// Tells a server to follow another.
    ///
    /// # Panics
    /// It does not answer, or refuses.
    pub fn point(&self, server: usize, master: usize) {
        let place = place(&self.servers[master], self.tls.is_some());
        let line = format!("REPLICAOF {} {}", place.ip(), place.port());
        let reply = self.servers[server].raw().say(&line).expect("an answer");
        assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    }

    /// Waits until the replicas have all that the master was told.
    ///
    /// # Panics
    /// They do not get it.
    pub fn await_replicated(&self) {
        let mut raw = self.servers[self.master()].raw();
        raw.say("SET replicated 1").expect("written");
        let reply = raw.say("WAIT 2 60000").expect("an answer");
        assert_eq!(reply.integer(), Some(2), "both have it");
    }

    /// Cuts a machine off, besides what it is cut off from already: no packet comes through, and
    /// nobody is told.
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

    /// The number of the server that the first sentinel names.
    ///
    /// # Panics
    /// The sentinel does not answer, or names a stranger.
    #[must_use]
    pub fn master(&self) -> usize {
        self.master_seen_by(0)
    }

    fn master_seen_by(&self, sentinel: usize) -> usize {
        let named = self.sentinels[sentinel].master().expect("the sentinel knows the service");
        let is_named = |server: &RedisServer| place(server, self.tls.is_some()) == named;
        self.servers.iter().position(is_named).expect("a server of ours")
    }

    /// Waits until all sentinels name another server than this one, and that is a master; returns
    /// its number.
    ///
    /// # Panics
    /// They do not.
    pub fn await_promotion(&self, before: usize) -> usize {
        self.await_promotion_seen_by(&[0, 1, 2], before)
    }

    /// The same for some of the sentinels: others may be away.
    ///
    /// # Panics
    /// They do not.
    pub fn await_promotion_seen_by(&self, sentinels: &[usize], before: usize) -> usize {
        let promoted = || {
            let now = self.master_seen_by(*sentinels.first()?);
            let all = sentinels.iter().all(|sentinel| self.master_seen_by(*sentinel) == now);
            (now != before && all && self.servers[now].is_master()).then_some(now)
        };
        self.must(until(LIMIT, promoted), "a replica is promoted")
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
        self.must(until(LIMIT, all), "the sentinels know each other and the replicas");
    }

    /// What was waited for; shows what the sentinels did meanwhile if it did not come.
    fn must<T>(&self, came: Option<T>, what: &str) -> T {
        let title = |(at, one): (usize, &Sentinel)| {
            (format!("sentinel {at}, {}", one.address()), one.log())
        };
        let words = || last_words(self.sentinels.iter().enumerate().map(title));
        came.unwrap_or_else(|| panic!("waited in vain until {what}:\n{}", words()))
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
    /// The machine it runs on, if not on ours.
    host: Option<Arc<Host>>,
    port: Port,
    tls_port: Option<Port>,
    password: Option<String>,
    child: Mutex<Option<Child>>,
    directory: Scratch,
    program: PathBuf,
}

impl Sentinel {
    fn start(
        config: &SentinelConfig,
        master: SocketAddr,
        host: Option<Arc<Host>>,
        tls: Option<&Tls>,
    ) -> Result<Self, Failure> {
        let sentinel = Self {
            host,
            port: Port::reserve()?,
            tls_port: tls.map(|_| Port::reserve()).transpose()?,
            password: config.password.clone(),
            child: Mutex::new(None),
            directory: Scratch::new("sentinel")?,
            program: Flavour::Debian.program()?,
        };
        let mut text = sentinel.text(config, master);
        if let (Some(port), Some(tls)) = (&sentinel.tls_port, tls) {
            text += &format!("tls-port {}\n{}\n", port.number(), tls.lines().join("\n"));
        }
        sentinel.directory.write("sentinel.conf", text)?;
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
        Self::start(&config, nobody, None, None).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn text(&self, config: &SentinelConfig, master: SocketAddr) -> String {
        let service = SentinelGroup::SERVICE;
        let directory = self.directory.path().display();
        let (ip, port) = (master.ip(), master.port());
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
        let path = self.directory.path().join("sentinel.log");
        let open = File::options().create(true).append(true).open(path);
        let log = open.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|why| Failure::because("cannot write the log", why))?;
        let mut command = match &self.host {
            Some(host) => host.mortal(&self.program),
            None => spawner::mortal(&self.program),
        };
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
