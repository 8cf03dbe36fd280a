//! A pooler in front of a PostgreSQL server.

use super::PostgresServer;
use super::cluster::Programs;
use crate::ports::Port;
use crate::wait::{LIMIT, until};
use crate::{Failure, spawner};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};

/// Where the program lies if it is not on the search path, as for most users.
const DEBIAN: &str = "/usr/sbin/pgbouncer";

/// A running `pgbouncer` that gives each transaction to the next of a few connections.
///
/// Everybody may come in, and is the server's own user behind it. It ends with this value.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    child: Child,
}

impl PgBouncer {
    /// Starts a pooler with at most `connections` to the server, and waits until it listens.
    ///
    /// # Panics
    /// The program is missing or does not start; the message says why.
    #[must_use]
    pub fn start(server: &PostgresServer, connections: usize) -> Self {
        let started = Self::try_start(server, connections, "transaction");
        started.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The same for a pooler that gives each statement to the next connection, and refuses
    /// transactions of several statements.
    ///
    /// # Panics
    /// As [`PgBouncer::start`].
    #[must_use]
    pub fn start_for_statements(server: &PostgresServer) -> Self {
        Self::try_start(server, 2, "statement").unwrap_or_else(|failure| panic!("{failure}"))
    }

    fn try_start(server: &PostgresServer, connections: usize, mode: &str) -> Result<Self, Failure> {
        if !Path::new(DEBIAN).is_file() {
            let says =
                "`pgbouncer` is missing. Install the Debian package pgbouncer (`./check` does)";
            return Err(Failure::new(says));
        }
        let port = Port::reserve()?;
        let programs = Programs::find(server.config.flavour)?;
        let at = server.directory().display();
        let behind = server.address().port();
        let text = format!(
            "[databases]\n* = host={at} port={behind} user=postgres\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nunix_socket_dir =\n\
             auth_type = any\npool_mode = {mode}\ndefault_pool_size = {connections}\n",
            port.number()
        );
        let cannot = |why: std::io::Error| Failure::because("cannot set a pooler up", why);
        let file = server.directory().join("pooler.ini");
        std::fs::write(&file, text).map_err(cannot)?;
        programs.hand_over(&file)?;
        let log = File::create(server.directory().join("pooler.log")).map_err(cannot)?;
        let mut command = programs.mortal(DEBIAN);
        command.arg(&file).stdin(Stdio::null()).stdout(log.try_clone().map_err(cannot)?);
        let child = spawner::spawn({
            command.stderr(log);
            command
        })?;
        let mut pooler = Self { port, child };
        pooler.await_listening(server)?;
        Ok(pooler)
    }

    fn await_listening(&mut self, server: &PostgresServer) -> Result<(), Failure> {
        let address = self.address();
        let listens = until(LIMIT, || match self.child.try_wait() {
            Ok(None) => TcpStream::connect(address).is_ok().then_some(true),
            _ => Some(false),
        });
        if listens == Some(true) {
            return Ok(());
        }
        let log = std::fs::read_to_string(server.directory().join("pooler.log"));
        Err(Failure::because("pgbouncer does not listen", log.unwrap_or_default()))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.number()))
    }

    /// The address as a URL, for the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // Only a process that is gone already cannot be killed, and it still must be reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
