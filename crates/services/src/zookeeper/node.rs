//! One member: its process, its ports, its directory.

use super::{ZooKeeperConfig, snapshot};
use crate::ports::Port;
use crate::wait::{LIMIT, until};
use crate::{Failure, Scratch, programs, spawner, vdso};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where Debian's package libzookeeper-java lies; its manifest names what it needs.
const JAR: &str = "/usr/share/java/zookeeper.jar";
const LOGGER: &str = "/usr/share/java/slf4j-simple.jar";
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
    number: usize,
    config: ZooKeeperConfig,
    program: PathBuf,
    port: Port,
    /// Where the others reach it, and where they vote.
    peers: (Port, Port),
    child: Mutex<Option<Child>>,
    directory: Scratch,
}

impl Node {
    pub(super) fn new(number: usize, config: ZooKeeperConfig) -> Result<Self, Failure> {
        if !Path::new(JAR).is_file() {
            let way = "install the Debian package libzookeeper-java (`./check` does)";
            return Err(Failure::new(format!("{JAR} is missing: {way}")));
        }
        Ok(Self {
            number,
            config,
            program: programs::of_system("java", "default-jre-headless", "HOLDLINE_JAVA")?,
            port: Port::reserve()?,
            peers: (Port::reserve()?, Port::reserve()?),
            child: Mutex::new(None),
            directory: Scratch::new("zk")?,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    pub(super) fn pid(&self) -> u32 {
        self.running(|child| child.id())
    }

    /// How this member is named in everybody's configuration.
    pub(super) fn as_member(&self) -> String {
        let (peer, vote) = (self.peers.0.number(), self.peers.1.number());
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
             minSessionTimeout={shortest}\nmaxSessionTimeout={longest}\n{members}",
            tick = self.config.tick_ms,
            data = data.display(),
            port = self.port.number(),
            words = self.config.words,
            connections = self.config.connections,
        );
        let configuration = self.directory.write("zoo.cfg", text)?;
        let open = File::options().create(true).append(true).open(self.log_path());
        let log = open.and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|why| Failure::because("cannot write the log", why))?;
        let mut command = spawner::mortal(&self.program);
        command.args(JAVA).args(["-cp", &format!("{JAR}:{LOGGER}"), MAIN]).arg(configuration);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        *self.child() = Some(spawner::spawn(command)?);
        Ok(())
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

    /// Waits until the member serves clients.
    pub(super) fn await_ready(&self) -> Result<(), Failure> {
        let ready = until(LIMIT, || {
            let ended = match self.child().as_mut().map(Child::try_wait) {
                Some(Ok(None)) => None,
                Some(Ok(Some(status))) => Some(format!("ended at once ({status})")),
                Some(Err(why)) => Some(format!("cannot be waited for ({why})")),
                None => Some("was ended".to_owned()),
            };
            match ended {
                Some(why) => Some(Err(why)),
                None => self.mode().map(|_| Ok(())),
            }
        });
        let why = match ready {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => why,
            None => format!("is not ready within {LIMIT:?}"),
        };
        Err(Failure::because(format!("ZooKeeper {why}"), self.log()))
    }

    pub(super) fn stop(&self) {
        self.send_signal(Signal::STOP);
        self.await_stopped(true);
    }

    pub(super) fn cont(&self) {
        self.send_signal(Signal::CONT);
        self.await_stopped(false);
    }

    pub(super) fn step_clock(&self, ahead: i64) {
        let pid = self.pid();
        let stood = vdso::pause_outside_of_vdso(pid, || self.stop(), || self.cont());
        let set = stood.and_then(|()| vdso::set_ahead(pid, ahead));
        self.cont();
        set.unwrap_or_else(|why| panic!("{why}"));
    }

    pub(super) fn kill(&self) {
        self.send_signal(Signal::KILL);
        let Some(mut child) = self.child().take() else { return };
        if until(LIMIT, || child.try_wait().transpose()).is_none() {
            let pid = child.id();
            *self.child() = Some(child);
            panic!("server {pid} does not end\n{}", self.log());
        }
    }

    pub(super) fn relaunch(&self, members: &str) {
        if self.child().is_some() {
            self.kill();
        }
        if let Err(why) = self.launch(members) {
            panic!("{why}");
        }
    }

    /// Copies what the member has stored; it may run, and does not write meanwhile.
    pub(super) fn save(&self) -> Result<PathBuf, Failure> {
        let copy = self.directory.path().join("copy");
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
        self.directory.path().join("data")
    }

    pub(super) fn log(&self) -> String {
        let bytes = std::fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn running<T>(&self, act: impl FnOnce(&Child) -> T) -> T {
        self.child().as_ref().map(act).expect("the server runs")
    }

    fn send_signal(&self, signal: Signal) {
        if let Err(why) = self.running(|child| spawner::signal(child, signal)) {
            panic!("the server cannot be signalled: {why}\n{}", self.log());
        }
    }

    fn await_stopped(&self, stopped: bool) {
        if let Err(why) = self.running(|child| spawner::await_stopped(child, stopped)) {
            panic!("{why}");
        }
    }
}

/// Copies a directory with all that lies in it.
fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &place)?,
            false => std::fs::copy(entry.path(), &place).map(drop)?,
        }
    }
    Ok(())
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child().take() {
            // Only a process that is gone already cannot be killed, and it still must be reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
