//! A load balancer in front of servers that speak HTTP.

use crate::ports::Port;
use crate::scratch::Scratch;
use crate::wait::{LIMIT, until};
use crate::{Failure, spawner};
use std::fmt::Write;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

/// Where the program lies if it is not on the search path, as for most users.
const DEBIAN: &str = "/usr/sbin/haproxy";

/// Which server gets a request.
#[derive(Debug, Clone, Copy)]
pub enum Balance {
    /// The next one.
    RoundRobin,
    /// The same one for each client's address, as long as it is up.
    Source,
}

/// A running `haproxy`. It sends a request that got no answer again, to another server.
///
/// It asks each server every 200 ms at `/healthz` whether it is up. It ends with this value.
#[derive(Debug)]
pub struct LoadBalancer {
    port: Port,
    child: Child,
    directory: Scratch,
}

impl LoadBalancer {
    /// Starts a load balancer and waits until it listens.
    ///
    /// # Panics
    /// The program is missing or does not start; the message says why.
    #[must_use]
    pub fn start(balance: Balance, servers: &[SocketAddr]) -> Self {
        Self::try_start(balance, servers).unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_start(balance: Balance, servers: &[SocketAddr]) -> Result<Self, Failure> {
        if !Path::new(DEBIAN).is_file() {
            let says = "`haproxy` is missing. Install the Debian package haproxy (`./check` does)";
            return Err(Failure::new(says));
        }
        let port = Port::reserve()?;
        let directory = Scratch::new("haproxy")?;
        let file = directory.write("haproxy.cfg", text(balance, port.number(), servers))?;
        let log = File::create(directory.path().join("log"));
        let log = log.map_err(|why| Failure::because("cannot make a log", why))?;
        let errors = log.try_clone().map_err(|why| Failure::because("cannot make a log", why))?;
        let mut command = spawner::mortal(Path::new(DEBIAN));
        // In the foreground: it is one process, which ends with us.
        command.args(["-db", "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = spawner::spawn(command)?;
        let mut balancer = Self { port, child, directory };
        balancer.await_listening()?;
        Ok(balancer)
    }

    fn await_listening(&mut self) -> Result<(), Failure> {
        let address = self.address();
        let listens = until(LIMIT, || match self.child.try_wait() {
            Ok(None) => TcpStream::connect(address).is_ok().then_some(true),
            _ => Some(false),
        });
        if listens == Some(true) {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.directory.path().join("log"));
        Err(Failure::because("haproxy does not listen", log.unwrap_or_default()))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }
}

fn text(balance: Balance, port: u16, servers: &[SocketAddr]) -> String {
    let balance = match balance {
        Balance::RoundRobin => "roundrobin",
        Balance::Source => "source",
    };
    let mut text = format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 5m\n timeout server 5m\n\
         frontend all\n bind 127.0.0.1:{port}\n default_backend servers\n\
         backend servers\n balance {balance}\n option http-buffer-request\n \
         option redispatch 1\n retries 10\n retry-on conn-failure empty-response\n \
         option httpchk\n http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host localhost\n \
         default-server check inter 200ms fall 1 rise 1\n"
    );
    for (number, server) in servers.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, " server s{number} {server}");
    }
    text
}

impl Drop for LoadBalancer {
    fn drop(&mut self) {
        // Only a process that is gone already cannot be killed, and it still must be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
