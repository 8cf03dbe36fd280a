//! The configuration of a group of servers and Sentinels.

use super::QUORUM;
use crate::RedisConfig;
use std::time::Duration;

/// Describes a group; by default a master is found dead after a second.
#[derive(Debug, Clone)]
pub struct SentinelConfig {
    pub(super) servers: RedisConfig,
    pub(super) down_after: Duration,
    pub(super) quorum: usize,
    pub(super) password: Option<String>,
    pub(super) tls: bool,
    pub(super) lines: Vec<String>,
}

impl Default for SentinelConfig {
    fn default() -> Self {
        Self {
            servers: RedisConfig::default(),
            down_after: Duration::from_secs(1),
            quorum: QUORUM,
            password: None,
            tls: false,
            lines: Vec::new(),
        }
    }
}

impl SentinelConfig {
    /// Starts the servers like this.
    #[must_use]
    pub fn with_servers(mut self, servers: RedisConfig) -> Self {
        self.servers = servers;
        self
    }

    /// Sets after how long a silent master is found dead.
    #[must_use]
    pub fn with_down_after(mut self, down_after: Duration) -> Self {
        self.down_after = down_after;
        self
    }

    /// Has the sentinels ask for a password.
    #[must_use]
    pub fn with_sentinel_password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Has servers and sentinels speak TLS among each other, and listen with TLS too.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Adds a line of `sentinel.conf`.
    #[must_use]
    pub fn with_sentinel_line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }
}
