//! How a MariaDB server is to be started.

use crate::config::{ClientCertificates, common_settings};
use std::fmt::Write;
use std::path::Path;

/// Describes a server; by default one that does not wait for its disk.
#[derive(Debug, Clone, Default)]
pub struct MariaDbConfig {
    pub(super) tls: Option<ClientCertificates>,
    pub(super) clock: bool,
    fsync: bool,
    lines: Vec<String>,
}

common_settings!(MariaDbConfig);

impl MariaDbConfig {
    /// Flushes each commit to the disk, as a production server does.
    #[must_use]
    pub fn with_fsync(mut self) -> Self {
        self.fsync = true;
        self
    }

    /// The text of `my.cnf` for a server in `directory`.
    pub(super) fn text(&self, directory: &Path, port: u16) -> String {
        let at = directory.display();
        // 2 writes at each commit, and leaves the flush to the system: enough for a killed server.
        let flushed = if self.fsync { 1 } else { 2 };
        let mut text = format!(
            "[mariadbd]\ndatadir={at}/data\nsocket={at}/s\nport={port}\n\
             bind-address=127.0.0.1,127.0.0.2\npid-file={at}/pid\nskip-name-resolve\n\
             innodb-buffer-pool-size=16M\ninnodb-log-file-size=8M\nkey-buffer-size=1M\n\
             tmpdir={at}\nmax-connections=400\nperformance-schema=OFF\n\
             innodb-fast-shutdown=2\ninnodb-flush-log-at-trx-commit={flushed}\n"
        );
        if self.tls.is_some() {
            let _ = writeln!(
                text,
                "ssl-cert={at}/server.crt\nssl-key={at}/server.key\nssl-ca={at}/ca.crt"
            );
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
