//! How a PostgreSQL server is to be started.

use crate::config::{ClientCertificates, common_settings};
use std::fmt::Write;
use std::path::Path;

/// Which PostgreSQL is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PostgresFlavour {
    /// The newest that the system has, in Debian 12 version 15; the environment variable
    /// `HOLDLINE_POSTGRES_BIN` names another directory of programs.
    #[default]
    Debian,
    /// Version 18.4. Downloaded once, into the target directory.
    V18,
}

/// Describes a server; by default one that trusts everybody and does not wait for its disk.
#[derive(Debug, Clone, Default)]
pub struct PostgresConfig {
    pub(super) flavour: PostgresFlavour,
    pub(super) tls: Option<ClientCertificates>,
    pub(super) clock: bool,
    passwords: bool,
    fsync: bool,
    lines: Vec<String>,
}

common_settings!(PostgresConfig);

impl PostgresConfig {
    /// Starts another server than the system's.
    #[must_use]
    pub fn with_flavour(mut self, flavour: PostgresFlavour) -> Self {
        self.flavour = flavour;
        self
    }

    /// Flushes each commit to the disk, as a production server does.
    #[must_use]
    pub fn with_fsync(mut self) -> Self {
        self.fsync = true;
        self
    }

    /// Asks everybody who comes by TCP for a password. Roles with one are made by
    /// [`PostgresServer::sql`](super::PostgresServer::sql).
    #[must_use]
    pub fn with_passwords(mut self) -> Self {
        self.passwords = true;
        self
    }

    /// The text of `postgresql.conf` for a server in `directory`.
    pub(super) fn text(&self, directory: &Path, port: u16) -> String {
        let at = directory.display();
        let flushed = if self.fsync { "on" } else { "off" };
        // Shared memory as files of the directory: what a killed server leaves goes with it.
        let mut text = format!(
            "listen_addresses = '127.0.0.1,127.0.0.2'\nport = {port}\n\
             unix_socket_directories = '{at}'\n\
             fsync = {flushed}\nfull_page_writes = {flushed}\nshared_buffers = 16MB\n\
             dynamic_shared_memory_type = mmap\nmax_wal_size = 32MB\nmin_wal_size = 4MB\n\
             max_connections = 200\nhba_file = '{at}/hba.conf'\nident_file = '{at}/ident.conf'\n\
             log_min_messages = warning\nlog_line_prefix = ''\nlc_messages = 'C'\n"
        );
        if self.tls.is_some() {
            let _ = write!(
                text,
                "ssl = on\nssl_cert_file = '{at}/server.crt'\nssl_key_file = '{at}/server.key'\n\
                 ssl_ca_file = '{at}/ca.crt'\n"
            );
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Access rules: the test ground's own user always, by the socket.
    pub(super) fn access(&self) -> String {
        let method = if self.passwords { "scram-sha-256" } else { "trust" };
        let by_tcp = match self.tls {
            Some(ClientCertificates::Required) => {
                format!("hostssl all all 127.0.0.1/32 {method} clientcert=verify-ca\n")
            }
            _ => format!("host all all 127.0.0.1/32 {method}\n"),
        };
        format!("local all all trust\nlocal replication all trust\n{by_tcp}")
    }
}
