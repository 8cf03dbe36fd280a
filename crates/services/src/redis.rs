//! A real Redis server of a test's own.

use crate::config::{ClientCertificates, OBSERVER};
use crate::hosts::Host;
use crate::ports::Port;
use crate::scratch::Scratch;
use crate::server_process::{ServerProcess, process_controls, process_questions};
use crate::wait::{LIMIT, until};
use crate::{Certificates, Failure, Raw, RedisConfig, Reply, ServerClock, spawner};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the server may take for the first answer to a connection while it starts.
const FIRST_ANSWER: Duration = Duration::from_secs(20);
/// How often another port is tried when a stranger took the one that was free a moment ago.
const PORTS: usize = 5;
/// How often an observer signs in whose connection is ended meanwhile.
const SIGN_INS: usize = 5;

/// A running `redis-server` on a loopback port and a unix socket, in a directory of its own.
///
/// Dropping it kills the server and removes the directory. The end of this process, however it
/// comes, kills the server too; the directory is then left to the next that starts one. All
/// methods panic with the reason if a command to the server fails, which ends the test.
#[derive(Debug)]
pub struct RedisServer {
    process: ServerProcess,
    config: RedisConfig,
    program: PathBuf,
    /// The machine it runs on, if not on ours.
    host: Option<Arc<Host>>,
    port: Port,
    tls: Option<Tls>,
    clock: Option<ServerClock>,
}

#[derive(Debug)]
struct Tls {
    port: Port,
    certificates: Certificates,
    clients: ClientCertificates,
}

impl Tls {
    fn new(clients: ClientCertificates, directory: &Path) -> Result<Self, Failure> {
        let certificates = Certificates::write(directory)?;
        Ok(Self { port: Port::reserve()?, certificates, clients })
    }

    fn text(&self) -> String {
        let (certificate, key) = self.certificates.server();
        let clients = match self.clients {
            ClientCertificates::Ignored => "no",
            ClientCertificates::Required => "yes",
        };
        format!(
            "tls-port {}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
             tls-auth-clients {clients}\n",
            self.port.number(),
            certificate.display(),
            key.display(),
            self.certificates.ca().display()
        )
    }
}

process_questions!(RedisServer);
process_controls!(RedisServer);

impl RedisServer {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// The program is missing or the server does not start; the message says why.
    #[must_use]
    pub fn start(config: RedisConfig) -> Self {
        Self::try_start(config).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Starts a server and waits until it answers.
    ///
    /// # Errors
    /// The program is missing or the server does not start. Nothing is left behind.
    pub fn try_start(config: RedisConfig) -> Result<Self, Failure> {
        Self::try_start_on(None, config)
    }

    /// The same on a machine of a test's own network.
    pub(crate) fn try_start_on(
        host: Option<Arc<Host>>,
        config: RedisConfig,
    ) -> Result<Self, Failure> {
        let program = config.flavour.program()?;
        let directory = Scratch::new("redis")?;
        let path = directory.path();
        let mut server = Self {
            port: Port::reserve()?,
            tls: config.tls.map(|clients| Tls::new(clients, path)).transpose()?,
            clock: config.clock.then(|| ServerClock::build(path)).transpose()?,
            process: ServerProcess::new(directory),
            program,
            host,
            config,
        };
        for _ in 1..PORTS {
            match server.start_here() {
                Err(failure) if failure.to_string().contains("Address already in use") => {
                    server.take_other_ports()?;
                }
                done => return done.map(|()| server),
            }
        }
        server.start_here().map(|()| server)
    }

    /// Where the server listens by TCP; the same for as long as this value lives.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.ip(), self.port.number()))
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, |host| host.address())
    }

    /// The address as a URL, with the default user's password if there is one.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}{}", self.secret(), self.address())
    }

    fn secret(&self) -> String {
        self.config.password.as_ref().map(|p| format!(":{p}@")).unwrap_or_default()
    }

    /// Where the server listens with TLS.
    ///
    /// # Panics
    /// It was started without.
    #[must_use]
    pub fn tls_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.tls().port.number()))
    }

    /// The address with TLS as a URL; its host is a name that the certificate is good for.
    ///
    /// # Panics
    /// The server was started without TLS.
    #[must_use]
    pub fn tls_url(&self) -> String {
        format!("rediss://{}localhost:{}", self.secret(), self.tls().port.number())
    }

    /// The certificates that the server and its clients use.
    ///
    /// # Panics
    /// The server was started without TLS.
    #[must_use]
    pub fn certificates(&self) -> &Certificates {
        &self.tls().certificates
    }

    fn tls(&self) -> &Tls {
        self.tls.as_ref().expect("the server was started with TLS")
    }

    /// Waits until the server has seen how its clock was last set, to about 50 ms.
    ///
    /// # Panics
    /// The server was started without [`RedisConfig::with_clock`], does not answer, or does not
    /// see it.
    pub fn await_clock(&self) {
        let mut raw = self.raw();
        let mut sees = || {
            let reply = raw.say("TIME").ok()?;
            let parts = reply.items()?.iter().filter_map(|part| part.text()?.parse().ok());
            let parts: Vec<i64> = parts.collect();
            let [seconds, micros] = parts[..] else { return None };
            let (wanted, tolerance) = self.clock().now();
            let found = seconds.saturating_mul(1_000_000_000).saturating_add(micros * 1000);
            (wanted.saturating_sub(found).saturating_abs() <= tolerance).then_some(())
        };
        until(LIMIT, &mut sees).expect("the server sees its clock");
    }

    /// The server's unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.process.directory().join("socket")
    }

    /// Connects behind the engine's back, by the unix socket, as a user who may do everything.
    ///
    /// # Panics
    /// The server does not run, is stopped, or has no connection left.
    #[must_use]
    pub fn raw(&self) -> Raw {
        let sign_in = || {
            Raw::connect_unix(&self.socket()).and_then(|mut raw| {
                let [user, password] = OBSERVER;
                let reply = raw.send(&["AUTH", user, password])?;
                Ok((raw, reply))
            })
        };
        // A sentinel that changes a server's role ends all connections to it.
        let mut signed_in = sign_in();
        for _ in 1..SIGN_INS {
            if signed_in.as_ref().is_err_and(is_broken) {
                signed_in = sign_in();
            }
        }
        match signed_in {
            Ok((raw, Reply::Simple(_))) => raw,
            Ok((_, reply)) => panic!("the server refuses its observer: {reply:?}"),
            Err(why) => panic!("the server cannot be looked at: {why}\n{}", self.log()),
        }
    }

    /// Returns whether the server's process was started and not ended by this value.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    /// Returns whether the server is a master.
    #[must_use]
    pub fn is_master(&self) -> bool {
        // No answer is no role: otherwise a wait for a replica would end too early.
        let role = until(LIMIT, || self.raw().say("ROLE").ok());
        let role = role.as_ref().and_then(|role| role.items()?.first()?.text());
        role.as_deref() == Some("master")
    }

    /// Writes what an operator writes who knows that a master lacks no grant: it grants at once.
    ///
    /// # Panics
    /// The server does not answer, or takes no writes.
    pub fn settle(&self) {
        let mut raw = self.raw();
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

    /// Restarts a server that loses no data, as an operator does who knows that: it grants at once,
    /// also to clients that were quicker.
    ///
    /// # Panics
    /// As [`RedisServer::restart`] and [`RedisServer::settle`].
    pub fn restart_settled(&self) {
        self.restart();
        self.settle();
        for kind in ["pubsub", "normal"] {
            self.raw().send(&["CLIENT", "KILL", "TYPE", kind]).expect("an answer");
        }
    }

    /// Waits until the server's log holds `text`.
    ///
    /// # Panics
    /// It does not within 30 s; the message shows the log.
    pub fn await_log(&self, text: &str) {
        self.process.await_log(text);
    }

    fn take_other_ports(&mut self) -> Result<(), Failure> {
        self.port = Port::reserve()?;
        if let Some(tls) = &mut self.tls {
            tls.port = Port::reserve()?;
        }
        Ok(())
    }

    /// Starts the program and waits until it answers. The unix socket lies in a directory of ours,
    /// so that an answer cannot come from another's server; and a server opens it only after its
    /// port.
    fn start_here(&self) -> Result<(), Failure> {
        let tls = self.tls.as_ref().map(Tls::text).unwrap_or_default();
        let text = self.config.text(self.process.directory(), self.ip(), self.port.number());
        let file = self.process.write("redis.conf", tls + &text)?;
        let users = self.process.directory().join("users.acl");
        // The file of users is the server's own once it exists.
        if self.config.users_in_file && !users.exists() {
            self.process.write("users.acl", self.config.user_lines())?;
        }
        let mut command = match &self.host {
            Some(host) => host.mortal(&self.program),
            None => spawner::mortal(&self.program),
        };
        command.envs(self.clock.iter().flat_map(ServerClock::environment));
        command.arg(file);
        self.process.start(self.program.display(), command, || self.answers())
    }

    /// Whether the server answers as it will from now on: an error is an answer too, but for the
    /// one that says that it is not ready.
    fn answers(&self) -> bool {
        let reply = Raw::connect_unix(&self.socket()).and_then(|mut raw| {
            raw.set_timeout(FIRST_ANSWER)?;
            raw.say("PING")
        });
        match reply {
            Ok(Reply::Error(says)) => self.config.while_loading || !says.starts_with("LOADING"),
            Ok(_) => true,
            Err(_) => false,
        }
    }
}

/// Returns whether the connection was ended.
fn is_broken(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(why.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
