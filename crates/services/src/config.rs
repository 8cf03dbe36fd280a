//! How a server is to be started.

use crate::Flavour;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// The user that [`Raw`](crate::Raw) connections of a test sign in as. It may do everything, so
/// that a test can look behind whatever passwords and rules it sets for others.
pub(crate) const OBSERVER: [&str; 2] = ["observer", "observer-of-the-test-ground"];

/// Whether a server asks clients for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCertificates {
    Ignored,
    Required,
}

/// Describes a server; by default one without persistence, password or limits.
#[derive(Debug, Clone, Default)]
pub struct RedisConfig {
    pub(crate) flavour: Flavour,
    pub(crate) password: Option<String>,
    pub(crate) users: Vec<String>,
    pub(crate) users_in_file: bool,
    pub(crate) appendonly: bool,
    pub(crate) while_loading: bool,
    pub(crate) tls: Option<ClientCertificates>,
    pub(crate) clock: bool,
    lines: Vec<String>,
}

/// What a test can ask of each of these servers.
macro_rules! common_settings {
    ($config:ty) => {
        impl $config {
            /// Speaks TLS too, with certificates made for this server; Redis on a port of its own.
            #[must_use]
            pub fn with_tls(mut self) -> Self {
                self.tls = Some($crate::config::ClientCertificates::Ignored);
                self
            }

            /// As [`with_tls`](Self::with_tls), and refuses clients that come by TCP without a
            /// certificate of its own authority; MariaDB only the test's user.
            #[must_use]
            pub fn with_client_certificates(mut self) -> Self {
                self.tls = Some($crate::config::ClientCertificates::Required);
                self
            }

            /// Gives the server a wall clock that the test can move: `clock` of the server.
            #[must_use]
            pub fn with_clock(mut self) -> Self {
                self.clock = true;
                self
            }

            /// Adds a line of the server's file of settings; it wins over what this type writes.
            #[must_use]
            pub fn with_line(mut self, line: impl Into<String>) -> Self {
                self.lines.push(line.into());
                self
            }
        }
    };
}
pub(crate) use common_settings;

common_settings!(RedisConfig);

impl RedisConfig {
    /// Chooses the server program.
    #[must_use]
    pub fn with_flavour(mut self, flavour: Flavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// Keeps an append-only file, so that data survives a restart; `fsync` is `always`,
    /// `everysec` or `no`.
    #[must_use]
    pub fn with_appendonly(mut self, fsync: &str) -> Self {
        self.appendonly = true;
        self.with_line(format!("appendfsync {fsync}"))
    }

    /// Asks the default user for a password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Adds a user by a rule as `ACL SETUSER` takes it: `ann on >secret ~* +@all`.
    #[must_use]
    pub fn with_user(mut self, rule: &str) -> Self {
        self.users.push(rule.to_owned());
        self
    }

    /// Keeps the users in a file of its own, which `ACL LOAD` and `ACL SAVE` use.
    #[must_use]
    pub fn with_users_in_file(mut self) -> Self {
        self.users_in_file = true;
        self
    }

    /// Bounds the memory: `policy` says what goes when it is full.
    #[must_use]
    pub fn with_maxmemory(self, limit: &str, policy: &str) -> Self {
        self.with_line(format!("maxmemory {limit}")).with_line(format!("maxmemory-policy {policy}"))
    }

    /// Bounds the number of connections. The test's own count too.
    #[must_use]
    pub fn with_maxclients(self, count: u32) -> Self {
        self.with_line(format!("maxclients {count}"))
    }

    /// Allows `DEBUG`.
    #[must_use]
    pub fn with_debug_command(self) -> Self {
        self.with_line("enable-debug-command yes")
    }

    /// Makes the server a replica of another.
    #[must_use]
    pub fn with_replica_of(self, master: SocketAddr) -> Self {
        self.with_line(format!("replicaof {} {}", master.ip(), master.port()))
    }

    /// Does not wait until the server has read its data: it may still answer `LOADING`.
    #[must_use]
    pub fn with_start_while_loading(mut self) -> Self {
        self.while_loading = true;
        self
    }

    /// The lines of the file of users, or those that stand in `redis.conf`.
    pub(crate) fn user_lines(&self) -> String {
        let [observer, password] = OBSERVER;
        let mut text = format!("user {observer} on >{password} ~* &* +@all\n");
        for rule in &self.users {
            let _ = writeln!(text, "user {rule}");
        }
        if let Some(password) = self.password.as_ref().filter(|_| self.users_in_file) {
            let _ = writeln!(text, "user default on >{password} ~* &* +@all");
        }
        text
    }

    /// The text of `redis.conf` for a server in `directory`.
    pub(crate) fn text(&self, directory: &Path, ip: Ipv4Addr, port: u16) -> String {
        let directory = directory.display();
        let appendonly = if self.appendonly { "yes" } else { "no" };
        let mut text = format!(
            "bind {ip}\nport {port}\nunixsocket {directory}/socket\nunixsocketperm 700\n\
             dir {directory}\nsave \"\"\nappendonly {appendonly}\ndaemonize no\n\
             repl-diskless-sync-delay 0\n"
        );
        if !ip.is_loopback() {
            text.push_str("protected-mode no\n");
        }
        if self.users_in_file {
            let _ = writeln!(text, "aclfile {directory}/users.acl");
        } else {
            text.push_str(&self.user_lines());
            if let Some(password) = &self.password {
                let _ = writeln!(text, "requirepass {password}");
            }
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
