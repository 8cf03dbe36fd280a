//! A network of a test's own, in which packets can be lost.
//!
//! The proxy of [`crate::FaultProxy`] ends connections as programs do: the kernel always says so.
//! A dead machine, a pulled cable or a full router sends no message, so it needs a
//! kernel's network: a namespace in which the test runs as a process of its own, with nothing but
//! a loopback device, and `nft` rules that drop what passes there.
//!
//! Such a namespace needs root, or a kernel that lets every user make one. Where neither is so the
//! test fails and says why: it is never skipped.

use crate::scratch::Scratch;
use crate::wait::until;
use crate::{Failure, spawner};
use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Set for the process that runs in a network of its own.
const INSIDE: &str = "HOLDLINE_TEST_NETWORK";
/// How long a test in a network of its own may take.
const TEST: Duration = Duration::from_secs(600);
const TABLE: &str = "add table inet faults; \
    add chain inet faults in { type filter hook input priority 0; };";

/// The network that a test has for itself.
#[derive(Debug)]
pub struct PrivateNetwork(());

/// Which packets are dropped.
#[derive(Debug, Clone, Copy)]
pub enum Loss {
    /// All: as when a cable is pulled.
    All,
    /// This percentage, chosen at random: at most 99.
    Percent(u8),
    /// All to this port.
    To(SocketAddr),
    /// All from this port.
    From(SocketAddr),
    /// Those that ask this port for a new connection.
    Connecting(SocketAddr),
}

impl Loss {
    fn matches(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Percent(percent) => format!("numgen random mod 100 < {percent}"),
            Self::To(to) => format!("tcp dport {}", to.port()),
            Self::From(from) => format!("tcp sport {}", from.port()),
            Self::Connecting(to) => {
                format!("tcp dport {} tcp flags & (syn | ack) == syn", to.port())
            }
        }
    }
}

impl PrivateNetwork {
    /// Runs this test in a network of its own. `test` is its name as `cargo test` shows it.
    ///
    /// There the call returns the network. Here it returns `None` once the test has passed there:
    /// the test is over.
    ///
    /// # Panics
    /// The test fails there, or no such network is available; the message says why.
    #[must_use]
    pub fn enter(test: &str) -> Option<Self> {
        if std::env::var_os(INSIDE).is_none() {
            run_inside(test).unwrap_or_else(|failure| panic!("{failure}"));
            return None;
        }
        let up = run("ip", &["link", "set", "lo", "up"], "");
        up.and_then(|()| run("nft", &["-f", "-"], TABLE)).unwrap_or_else(|why| panic!("{why}"));
        Some(Self(()))
    }

    /// Drops packets from now on, besides those that are dropped already.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn lose(&self, packets: Loss) {
        self.rule(&format!("add rule inet faults in {} drop;", packets.matches()));
    }

    /// Lets all packets pass again.
    ///
    /// # Panics
    /// The kernel refuses.
    pub fn heal(&self) {
        self.rule("flush chain inet faults in;");
    }

    fn rule(&self, text: &str) {
        run("nft", &["-f", "-"], text).unwrap_or_else(|why| panic!("{why}"));
    }

    /// The local ports of those connections to `to` that the kernel takes for open.
    ///
    /// # Panics
    /// The kernel does not report it.
    #[must_use]
    pub fn open_connections(&self, to: SocketAddr) -> Vec<u16> {
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("the kernel's table");
        table.lines().filter_map(|line| open_connection(line, to.port())).collect()
    }
}

/// The local port of a line of `/proc/net/tcp` that is an open connection to the port.
fn open_connection(line: &str, to: u16) -> Option<u16> {
    const ESTABLISHED: &str = "01";
    let mut fields = line.split_whitespace().skip(1);
    let port = |address: &str| u16::from_str_radix(address.rsplit_once(':')?.1, 16).ok();
    let local = port(fields.next()?)?;
    let remote = port(fields.next()?)?;
    (remote == to && fields.next()? == ESTABLISHED).then_some(local)
}

/// Runs this very test in a new namespace, as a process that dies with this one.
fn run_inside(test: &str) -> Result<(), Failure> {
    let scratch = Scratch::new("network")?;
    let said = scratch.path().join("output");
    let status = start_inside(test, &said)?;
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    if status.is_some_and(|status| status.success()) && said.contains("test result: ok. 1 passed") {
        // Its output is for runs with `--nocapture`.
        println!("{said}");
        return Ok(());
    }
    let why = match status {
        None => format!("is not over after {TEST:?}"),
        Some(_) if said.contains("running 0 tests") => "is not its name".to_owned(),
        Some(_) if !said.contains("running 1 test") => {
            "could not begin: a network namespace needs root (or a kernel that lets users make \
             them), `unshare` of util-linux, `ip` of iproute2 and `nft` of nftables"
                .to_owned()
        }
        Some(status) => format!("failed ({status})"),
    };
    // Not as lines of this program, which say how its own tests ended.
    let said: String = said.lines().map(|line| format!("| {line}\n")).collect();
    Err(Failure::because(format!("`{test}`, in a network of its own, {why}"), said))
}

fn start_inside(test: &str, said: &Path) -> Result<Option<ExitStatus>, Failure> {
    let wrote = |why| Failure::because("the output of the test cannot be kept", why);
    let out = File::create(said).map_err(wrote)?;
    let err = out.try_clone().map_err(wrote)?;
    let program = std::env::current_exe()
        .map_err(|why| Failure::because("the program of the tests cannot be found", why))?;
    let mut command = spawner::mortal(Path::new("unshare"));
    command.arg("--net");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg("--").arg(program).args(["--exact", test, "--nocapture"]);
    command.env(INSIDE, "1").stdin(Stdio::null()).stdout(out).stderr(err);
    let mut child = spawner::spawn(command)?;
    let ended = until(TEST, || child.try_wait().transpose());
    if ended.is_none() {
        // It may have ended just now; either way nothing is left of it.
        let _ = child.kill();
        let _ = child.wait();
    }
    ended.transpose().map_err(|why| Failure::because("the test cannot be waited for", why))
}

/// Runs a program of the system, which must succeed.
pub(crate) fn run(program: &str, arguments: &[&str], input: &str) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::because(format!("`{program} {}` {input}", arguments.join(" ")), why)
    };
    // Where the tools of administrators are, which is not in the path of all users.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| failed(&why))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(|why| failed(&why))?;
    }
    let output = child.wait_with_output().map_err(|why| failed(&why))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(&String::from_utf8_lossy(&output.stderr)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    fn connects(to: SocketAddr) -> Result<TcpStream, ErrorKind> {
        TcpStream::connect_timeout(&to, Duration::from_millis(200)).map_err(|why| why.kind())
    }

    /// How many of a thousand datagrams arrive.
    fn datagrams_of_a_thousand() -> usize {
        let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let from = socket();
        let to = socket();
        to.set_nonblocking(true).unwrap();
        let place = to.local_addr().unwrap();
        let arrives = |_: &u32| from.send_to(b"x", place).is_ok() && to.recv(&mut [0]).is_ok();
        (0..1_000).filter(arrives).count()
    }

    #[test]
    fn packets_that_a_private_network_drops_are_lost() {
        let name = "network::tests::packets_that_a_private_network_drops_are_lost";
        let Some(network) = PrivateNetwork::enter(name) else { return };
        let (_listener, address) = listener();
        let stream = connects(address).unwrap();
        assert_eq!(network.open_connections(address), [stream.local_addr().unwrap().port()]);
        for drops in [Loss::All, Loss::To(address), Loss::From(address), Loss::Connecting(address)]
        {
            network.lose(drops);
            assert_eq!(connects(address).unwrap_err(), ErrorKind::TimedOut, "{drops:?}");
            network.heal();
            connects(address).unwrap();
        }
        network.lose(Loss::Percent(50));
        let arrived = datagrams_of_a_thousand();
        assert!((350..650).contains(&arrived), "{arrived}");
        network.heal();
        assert_eq!(datagrams_of_a_thousand(), 1_000);
    }

    #[test]
    fn a_private_network_is_apart() {
        let (_listener, outside) = listener();
        let name = "network::tests::a_private_network_is_apart";
        if PrivateNetwork::enter(name).is_some() {
            // In there the port was free, whatever listens outside: it is this process's own.
            let devices = std::fs::read_to_string("/proc/self/net/dev").unwrap();
            assert_eq!(devices.lines().filter(|line| line.contains(':')).count(), 1, "{devices}");
        } else {
            connects(outside).unwrap();
        }
    }

    #[test]
    fn a_test_that_fails_in_there_fails_here() {
        let name = "network::tests::a_test_that_fails_in_there_fails_here";
        if std::env::var_os(INSIDE).is_some() {
            panic!("on purpose");
        }
        let error = run_inside(name).unwrap_err().to_string();
        assert!(error.contains("failed") && error.contains("on purpose"), "{error}");
        let error = run_inside("network::tests::no_such_test").unwrap_err().to_string();
        assert!(error.contains("is not its name"), "{error}");
    }
}
