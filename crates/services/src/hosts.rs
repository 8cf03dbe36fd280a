//! Machines in a test's own network, which can be cut off from one another.
//!
//! Each is a network namespace with an address of its own. The test and its clients stay in the
//! namespace of [`PrivateNetwork`], where a bridge joins all. Rules of the loopback device cannot
//! part processes of one machine: they all send from one address.

use crate::network::run;
use crate::wait::{LIMIT, until};
use crate::{Failure, PrivateNetwork, spawner};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The bridge that joins the machines, and its address, which the test's clients have.
const BRIDGE: &str = "machines";
const HERE: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 254);
const TABLE: &str = "add table inet faults; \
    add chain inet faults in { type filter hook input priority 0; }; \
    add chain inet faults out { type filter hook output priority 0; };";

/// The machines that a machine is cut off from, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The other machines; clients still reach it.
    Peers,
    /// The clients; its peers still reach it.
    Clients,
}

/// A machine: its processes have a network device of their own.
#[derive(Debug)]
pub(crate) struct Host {
    address: Ipv4Addr,
    peers: Vec<Ipv4Addr>,
    /// Keeps the namespace while no server runs there.
    keeper: Child,
}

/// Makes this many machines, which reach one another and are reached from here.
pub(crate) fn join(_network: &PrivateNetwork, count: usize) -> Result<Vec<Host>, Failure> {
    ip(&["link", "add", BRIDGE, "type", "bridge"])?;
    ip(&["addr", "add", &format!("{HERE}/24"), "dev", BRIDGE])?;
    ip(&["link", "set", BRIDGE, "up"])?;
    let addresses: Vec<Ipv4Addr> =
        (1..=u8::MAX).map(|last| Ipv4Addr::new(10, 78, 0, last)).take(count).collect();
    let make = |(number, address): (usize, &Ipv4Addr)| {
        let peers = addresses.iter().copied().filter(|peer| peer != address).collect();
        Host::make(number, *address, peers)
    };
    addresses.iter().enumerate().map(make).collect()
}

impl Host {
    fn make(number: usize, address: Ipv4Addr, peers: Vec<Ipv4Addr>) -> Result<Self, Failure> {
        let mut command = spawner::mortal(Path::new("unshare"));
        command.args(["--net", "--", "sleep", "infinity"]);
        let host = Self { address, peers, keeper: spawner::spawn(command)? };
        host.await_apart()?;
        let device = format!("machine{number}");
        let there = host.namespace();
        let there = there.to_string_lossy();
        ip(&["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &there])?;
        ip(&["link", "set", &device, "master", BRIDGE, "up"])?;
        host.run(&["ip", "addr", "add", &format!("{address}/24"), "dev", "eth0"], "")?;
        host.run(&["ip", "link", "set", "eth0", "up"], "")?;
        host.run(&["ip", "link", "set", "lo", "up"], "")?;
        host.run(&["nft", "-f", "-"], TABLE)?;
        Ok(host)
    }

    /// Waits until the keeper has left our namespace.
    fn await_apart(&self) -> Result<(), Failure> {
        let of = |path: &Path| std::fs::read_link(path).ok();
        let ours = of(Path::new("/proc/self/ns/net"));
        let path = self.namespace();
        let apart = until(LIMIT, || of(&path).filter(|theirs| Some(theirs) != ours.as_ref()));
        apart.map(drop).ok_or_else(|| Failure::new("no network namespace was made for a machine"))
    }

    fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.id()))
    }

    /// Its address, at which it is reached by the others and from here.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The command that runs `program` there so that it is killed when this process ends.
    pub(crate) fn mortal(&self, program: &Path) -> Command {
        let mut command = spawner::mortal(Path::new("nsenter"));
        command.arg(self.entrance()).arg("--").arg(program);
        command
    }

    fn entrance(&self) -> String {
        format!("--net={}", self.namespace().display())
    }

    /// Loses every packet from and to these from now on.
    pub(crate) fn cut(&self, from: Cut) {
        let here = [HERE];
        let whom = match from {
            Cut::Peers => self.peers.as_slice(),
            Cut::Clients => &here,
        };
        let rule = |other: &Ipv4Addr| {
            format!(
                "add rule inet faults in ip saddr {other} drop; \
                 add rule inet faults out ip daddr {other} drop;"
            )
        };
        self.rules(&whom.iter().map(rule).collect::<String>());
    }

    /// Lets every packet pass again.
    pub(crate) fn heal(&self) {
        self.rules("flush chain inet faults in; flush chain inet faults out;");
    }

    fn rules(&self, text: &str) {
        self.run(&["nft", "-f", "-"], text).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Runs a program of the system there, which must succeed.
    fn run(&self, words: &[&str], input: &str) -> Result<(), Failure> {
        let entrance = self.entrance();
        let mut arguments = vec![entrance.as_str(), "--"];
        arguments.extend(words);
        run("nsenter", &arguments, input)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Only a process that is gone already cannot be killed, and it still must be reaped.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn ip(words: &[&str]) -> Result<(), Failure> {
    run("ip", words, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::process::Stdio;
    use std::time::Duration;

    const PORT: u16 = 7000;

    /// A program of a machine that listens there, and one that connects from there.
    fn python(host: &Host, code: &str, to: Ipv4Addr) -> Child {
        let mut command = host.mortal(Path::new("python3"));
        command.args(["-c", code, &to.to_string(), &PORT.to_string()]).stdin(Stdio::null());
        spawner::spawn(command).unwrap()
    }

    fn reaches(host: &Host, to: Ipv4Addr) -> bool {
        let code = "import socket, sys\n\
                    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)";
        let mut command = host.mortal(Path::new("python3"));
        command.args(["-c", code, &to.to_string(), &PORT.to_string()]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        spawner::spawn(command).unwrap().wait().unwrap().success()
    }

    fn reached(to: Ipv4Addr) -> bool {
        TcpStream::connect_timeout(&(to, PORT).into(), Duration::from_secs(1)).is_ok()
    }

    #[test]
    fn a_machine_is_cut_off_from_the_named_ones() {
        let name = "hosts::tests::a_machine_is_cut_off_from_the_named_ones";
        let Some(network) = PrivateNetwork::enter(name) else { return };
        let hosts = join(&network, 3).unwrap();
        let code = "import socket, sys\n\
                    server = socket.create_server((sys.argv[1], int(sys.argv[2])))\n\
                    while True: server.accept()";
        let mut servers: Vec<Child> =
            hosts.iter().map(|host| python(host, code, host.address())).collect();
        let all = || hosts.iter().all(|host| reached(host.address()));
        until(LIMIT, || all().then_some(())).expect("they listen");
        let [one, other, third] = &hosts[..] else { panic!("three") };
        assert!(reaches(one, other.address()) && reaches(other, third.address()));
        one.cut(Cut::Peers);
        assert!(!reaches(one, other.address()) && !reaches(other, one.address()));
        assert!(reaches(other, third.address()) && reached(one.address()));
        one.cut(Cut::Clients);
        assert!(!reached(one.address()) && reached(other.address()));
        one.heal();
        assert!(reached(one.address()) && reaches(third, one.address()));
        for server in &mut servers {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }
}
