//! One member: its process, its ports, its directory.

use super::{ZooKeeperConfig, snapshot};
use crate::ports::Port;
use crate::server_process::ServerProcess;
use crate::{Certificates, Failure, Scratch, programs, spawner};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where Debian's package libzookeeper-java lies; its manifest names what it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";
/// TLS needs more of netty than that manifest names.
const NETTY: &str = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:\
                     /usr/share/java/netty-transport-native-unix-common.jar";
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
/// How long a member may take to answer a word.
const ANSWER: Duration = Duration::from_secs(2);
/// A small machine that starts soon.
const JAVA: [&str; 5] = [
    "-Xmx96m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    // Tests kill servers; they do not cut the machine's power.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.admin.enableServer=false",
];

#[derive(Debug)]
pub(super) struct Node {
    pub(super) process: ServerProcess,
    number: usize,
    config: ZooKeeperConfig,
    program: PathBuf,
    port: Port,
    /// Where the others reach it, and where they vote.
    peers: (Port, Port),
    secure: Option<Secure>,
}

/// Where a member serves clients by TLS, and with what.
#[derive(Debug)]
pub(super) struct Secure {
    pub(super) port: Port,
    pub(super) certificates: Certificates,
}

impl Node {
    pub(super) fn new(number: usize, config: ZooKeeperConfig) -> Result<Self, Failure> {
        if !Path::new(JAR).is_file() {
            let way = "install the Debian package libzookeeper-java (`./check` does)";
            return Err(Failure::new(format!("{JAR} is missing: {way}")));
        }
        let directory = Scratch::new("zk")?;
        let mut secure = None;
        if config.tls {
            let certificates = Certificates::write(directory.path())?;
            secure = Some(Secure { port: Port::reserve()?, certificates });
        }
        Ok(Self {
            process: ServerProcess::new(directory),
            secure,
            number,
            config,
            program: programs::of_system("java", "default-jre-headless", "HOLDLINE_JAVA")?,
            port: Port::reserve()?,
            peers: (Port::reserve()?, Port::reserve()?),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// What was made for TLS; the member must have it.
    pub(super) fn secure(&self) -> &Secure {
        self.secure.as_ref().expect("the server was started with TLS")
    }

    /// How this member is named in everybody's configuration.
    pub(super) fn as_member(&self) -> String {
        let peer = self.peers.0.number();
        let vote = self.peers.1.number();
        format!("server.{}=127.0.0.1:{peer}:{vote}\n", self.number)
    }

    /// Starts the program; whether it serves is another question. Without members it is alone.
    pub(super) fn launch(&self, members: &str) -> Result<(), Failure> {
        let data = self.data();
        let made = std::fs::create_dir_all(&data);
        let wrote = made.and_then(|()| std::fs::write(data.join("myid"), self.number.to_string()));
        wrote.map_err(|why| Failure::because("cannot make the data directory", why))?;
        let (shortest, longest) = self.config.session_ms;
        let text = format!(
            "tickTime={tick}\ninitLimit=100\nsyncLimit=50\ndataDir={data}\n\
             clientPortAddress=127.0.0.1\nclientPort={port}\nadmin.enableServer=false\n\
             4lw.commands.whitelist={words}\nmaxClientCnxns={connections}\n\
             minSessionTimeout={shortest}\nmaxSessionTimeout={longest}\n{members}{tls}",
            tls = self.tls_settings()?,
            tick = self.config.tick_ms,
            data = data.display(),
            port = self.port.number(),
            words = self.config.words,
            connections = self.config.connections,
        );
        let configuration = self.process.write("zoo.cfg", text)?;
        let mut command = spawner::mortal(&self.program);
        command.args(JAVA);
        let classes = format!("{JAR}:{LOGGER}:{NETTY}");
        command.args(["-cp", &classes, MAIN]).arg(configuration);
        self.process.launch(command)
    }

    /// The settings for TLS; empty without it.
    fn tls_settings(&self) -> Result<String, Failure> {
        let Some(Secure { port, certificates }) = &self.secure else { return Ok(String::new()) };
        let (certificate, key) = certificates.server();
        let read = |path: &Path| {
            let failed = |why| Failure::because(format!("cannot read {}", path.display()), why);
            std::fs::read_to_string(path).map_err(failed)
        };
        // The server wants both in one file.
        let store = format!("{}{}", read(&certificate)?, read(&key)?);
        let store = self.process.write("server.pem", store)?;
        let clients = if self.config.client_certificates { "need" } else { "none" };
        Ok(format!(
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={store}\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={ca}\nssl.trustStore.type=PEM\nssl.clientAuth={clients}\n",
            port = port.number(),
            store = store.display(),
            ca = certificates.ca().display(),
        ))
    }

    /// Sends a four-letter command; empty without a reply.
    pub(super) fn word(&self, word: &str) -> String {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.address(), ANSWER)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.write_all(word.as_bytes())?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply)
        };
        ask().unwrap_or_default()
    }

    /// What it is now: `standalone`, `leader` or `follower`; none when it does not serve.
    pub(super) fn mode(&self) -> Option<String> {
        let reply = self.word("srvr");
        let mode = reply.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        Some(mode.to_owned())
    }

    /// Whether it listens for clients by TLS, if it should: that port opens after the other one.
    fn listens_for_tls(&self) -> bool {
        self.secure.as_ref().is_none_or(|secure| {
            TcpStream::connect((Ipv4Addr::LOCALHOST, secure.port.number())).is_ok()
        })
    }

    /// Waits until the member serves clients.
    pub(super) fn await_ready(&self) -> Result<(), Failure> {
        let serves = || self.mode().is_some() && self.listens_for_tls();
        let Err(why) = self.process.await_that(serves) else { return Ok(()) };
        Err(Failure::because(format!("ZooKeeper {why}"), self.process.log()))
    }

    pub(super) fn relaunch(&self, members: &str) {
        if self.process.is_running() {
            self.process.kill();
        }
        if let Err(why) = self.launch(members) {
            panic!("{why}");
        }
    }

    /// Copies what the member has stored; it may run, and does not write meanwhile.
    pub(super) fn save(&self) -> Result<PathBuf, Failure> {
        let copy = self.process.directory().join("copy");
        let copied = copy_all(&self.data(), &copy);
        copied.map_err(|why| Failure::because("what a member has stored cannot be copied", why))?;
        Ok(copy)
    }

    /// Puts a copy in place of what the member has stored; it must not run.
    pub(super) fn restore(&self, copy: &Path) -> Result<(), Failure> {
        let removed = std::fs::remove_dir_all(self.data());
        let restored = removed.and_then(|()| copy_all(copy, &self.data()));
        restored.map_err(|why| Failure::because("a copy cannot be put in place", why))
    }

    /// Changes what the member has stored; it must not run.
    pub(super) fn set_creations(&self, path: &str, count: i32) -> Result<(), Failure> {
        snapshot::set_creations(&self.data(), path, count)
    }

    fn data(&self) -> PathBuf {
        self.process.directory().join("data")
    }
}

/// Copies a directory with all that lies in it.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &place)?;
        } else {
            std::fs::copy(entry.path(), &place).map(drop)?;
        }
    }
    Ok(())
}
