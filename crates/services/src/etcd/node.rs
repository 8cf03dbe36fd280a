//! One member: its process, its ports, its directory.

use super::EtcdConfig;
use super::config::Tokens;
use crate::Scratch;
use crate::hosts::Host;
use crate::ports::Port;
use crate::server_process::ServerProcess;
use crate::{Certificates, Distance, Failure, programs, spawner};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// What a member writes when it serves clients; it has found a leader then.
const READY: &str = "serving client traffic";
/// What signed tokens of a test are signed with.
const TOKEN_KEY: &[u8] = b"only tests sign with this key, which is no secret";

#[derive(Debug)]
pub(super) struct Node {
    pub(super) process: ServerProcess,
    name: String,
    config: EtcdConfig,
    program: PathBuf,
    /// The machine it runs on, if not on ours.
    host: Option<Host>,
    port: Port,
    peer: Port,
    /// Between this member and the others.
    distance: Option<Box<Distance>>,
    certificates: Option<Certificates>,
    /// How much of the log was there before the last start.
    started_at: Mutex<usize>,
}

impl Node {
    pub(super) fn new(name: &str, config: EtcdConfig, directory: Scratch) -> Result<Self, Failure> {
        let program = config.flavour.program()?;
        if config.tokens == Tokens::Signed {
            std::fs::write(directory.path().join("token.key"), TOKEN_KEY)
                .map_err(|why| Failure::because("cannot write the key of tokens", why))?;
        }
        let certificates = config.tls.then(|| Certificates::write(directory.path())).transpose()?;
        let peer = Port::reserve()?;
        let listens = SocketAddr::from((Ipv4Addr::LOCALHOST, peer.number()));
        let distance = (!config.round_trip.is_zero())
            .then(|| Distance::try_start(listens, config.round_trip).map(Box::new))
            .transpose()?;
        Ok(Self {
            process: ServerProcess::new(directory),
            name: name.to_owned(),
            program,
            host: None,
            port: Port::reserve()?,
            peer,
            distance,
            certificates,
            started_at: Mutex::new(0),
            config,
        })
    }

    /// Runs it on a machine of its own.
    pub(super) fn on(mut self, host: Host) -> Self {
        self.host = Some(host);
        self
    }

    /// The machine of its own.
    pub(super) fn machine(&self) -> &Host {
        self.host.as_ref().expect("the members were started apart")
    }

    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address)
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((self.ip(), self.port.number()))
    }

    /// With TLS a name that the certificate is good for.
    pub(super) fn host(&self) -> String {
        if self.config.tls {
            format!("localhost:{}", self.port.number())
        } else {
            self.address().to_string()
        }
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.config.tls { "etcds" } else { "etcd" }
    }

    pub(super) fn credentials(&self) -> String {
        self.config.password.as_ref().map(|word| format!("root:{word}@")).unwrap_or_default()
    }

    pub(super) fn certificates(&self) -> &Certificates {
        self.certificates.as_ref().expect("the server was started with TLS")
    }

    /// How this member is named in the list of all members.
    pub(super) fn as_member(&self) -> String {
        format!("{}=http://{}", self.name, self.announced())
    }

    /// Where the other members reach it.
    fn announced(&self) -> SocketAddr {
        let near = SocketAddr::from((self.ip(), self.peer.number()));
        self.distance.as_ref().map_or(near, |distance| distance.address())
    }

    pub(super) fn relaunch(&self, members: &str) {
        if self.process.is_running() {
            self.process.kill();
        }
        if let Err(why) = self.launch(members) {
            panic!("{why}");
        }
    }

    /// Starts the program; whether it serves is another question.
    pub(super) fn launch(&self, members: &str) -> Result<(), Failure> {
        *self.started_at.lock().unwrap_or_else(PoisonError::into_inner) = self.process.log().len();
        let mut command = match &self.host {
            Some(host) => host.mortal(&self.program),
            None => spawner::mortal(&self.program),
        };
        command.args(self.arguments(members)).env("ETCD_UNSUPPORTED_ARCH", "arm64");
        // Its log then says the same hour everywhere.
        command.env("TZ", "UTC");
        self.process.launch(command)
    }

    fn arguments(&self, members: &str) -> Vec<String> {
        let scheme = if self.config.tls { "https" } else { "http" };
        let client = format!("{scheme}://{}", self.address());
        let peer = format!("http://{}:{}", self.ip(), self.peer.number());
        let announced = format!("http://{}", self.announced());
        // As etcd advises: a heartbeat is no shorter than a round trip, an election ten times it.
        let heartbeat = self.config.round_trip.as_millis().max(50);
        let data = self.data();
        let mut arguments: Vec<String> = [
            ("--name", self.name.as_str()),
            ("--data-dir", &data.to_string_lossy()),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &announced),
            ("--initial-cluster", members),
            ("--initial-cluster-state", "new"),
            ("--heartbeat-interval", &heartbeat.to_string()),
            ("--election-timeout", &(heartbeat * 10).to_string()),
            ("--logger", "zap"),
        ]
        .iter()
        .flat_map(|(flag, value)| [(*flag).to_owned(), (*value).to_owned()])
        .collect();
        // Tests kill servers; they do not cut the machine's power.
        arguments.push("--unsafe-no-fsync".to_owned());
        match self.config.tokens {
            Tokens::Usual => {}
            Tokens::Short(seconds) => arguments.push(format!("--auth-token-ttl={seconds}")),
            Tokens::Signed => {
                let key = self.process.directory().join("token.key");
                let key = key.display();
                arguments
                    .push(format!("--auth-token=jwt,sign-method=HS256,priv-key={key},ttl=10m"));
            }
        }
        arguments.extend(self.config.quota.map(|quota| format!("--quota-backend-bytes={quota}")));
        if let Some(certificates) = &self.certificates {
            let (certificate, key) = certificates.server();
            arguments.push(format!("--cert-file={}", certificate.display()));
            arguments.push(format!("--key-file={}", key.display()));
            if self.config.client_certificates {
                arguments.push("--client-cert-auth".to_owned());
                let ca = certificates.ca();
                arguments.push(format!("--trusted-ca-file={}", ca.display()));
            }
        }
        arguments
    }

    /// Waits until the member serves clients.
    pub(super) fn await_ready(&self) -> Result<(), Failure> {
        let before = *self.started_at.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = || self.process.log().get(before..).unwrap_or_default().contains(READY);
        let Err(why) = self.process.await_that(ready) else { return Ok(()) };
        let log = self.process.log();
        let reply = log.get(before..).unwrap_or(&log).to_owned();
        Err(Failure::because(format!("{} {why}", self.program.display()), reply))
    }

    /// Asks for passwords from now on, if the configuration says so.
    pub(super) fn turn_auth_on(&self) -> Result<(), Failure> {
        let Some(password) = &self.config.password else { return Ok(()) };
        let user = format!("root:{password}");
        for words in [&["user", "add", &user][..], &["user", "grant-role", "root", "root"]] {
            self.run_ctl(self.bare_ctl_command().args(words))?;
        }
        self.run_ctl(self.bare_ctl_command().args(["auth", "enable"])).map(drop)
    }

    pub(super) fn ctl(&self, words: &[&str]) -> Result<String, Failure> {
        self.run_ctl(self.ctl_command().args(words))
    }

    pub(super) fn ctl_command(&self) -> Command {
        let mut command = self.bare_ctl_command();
        if let Some(password) = &self.config.password {
            command.env("ETCDCTL_USER", format!("root:{password}"));
        }
        command
    }

    /// Without a user.
    fn bare_ctl_command(&self) -> Command {
        let program = programs::of_system("etcdctl", "etcd-client", "HOLDLINE_ETCDCTL");
        let program = program.unwrap_or_else(|failure| panic!("{failure}"));
        let mut command = Command::new(program);
        command.env("ETCDCTL_API", "3");
        let scheme = if self.config.tls { "https" } else { "http" };
        command.env("ETCDCTL_ENDPOINTS", format!("{scheme}://{}", self.host()));
        if let Some(certificates) = &self.certificates {
            let (certificate, key) = certificates.client();
            command.env("ETCDCTL_CACERT", certificates.ca());
            command.env("ETCDCTL_CERT", certificate).env("ETCDCTL_KEY", key);
        }
        command
    }

    fn run_ctl(&self, command: &mut Command) -> Result<String, Failure> {
        let output = command
            .stdin(Stdio::null())
            .output()
            .map_err(|why| Failure::because("`etcdctl` does not start", why))?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(Failure::because("`etcdctl` fails", text(&output.stderr)))
    }

    fn data(&self) -> PathBuf {
        self.process.directory().join("data")
    }

    pub(super) fn save(&self) -> Result<PathBuf, Failure> {
        let copy = self.process.directory().join("copy.db");
        self.ctl(&["snapshot", "save", &copy.to_string_lossy()])?;
        Ok(copy)
    }

    /// Puts a copy in place of what the member has stored; it must not run.
    pub(super) fn restore(&self, copy: &Path, members: &str) -> Result<(), Failure> {
        let data = self.data();
        std::fs::remove_dir_all(&data)
            .map_err(|why| Failure::because("what a member has stored cannot be removed", why))?;
        let announced = format!("http://{}", self.announced());
        let copy = copy.to_string_lossy();
        let data = data.to_string_lossy();
        self.ctl(&[
            "snapshot",
            "restore",
            &copy,
            "--name",
            &self.name,
            "--data-dir",
            &data,
            "--initial-cluster",
            members,
            "--initial-advertise-peer-urls",
            &announced,
        ])
        .map(drop)
    }
}
