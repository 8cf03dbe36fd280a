//! How a ZooKeeper server is to be started.

/// Describes a server; by default one that takes every client, with ticks of a fifth of a second,
/// so that sessions of less than a second are possible.
#[derive(Debug, Clone)]
pub struct ZooKeeperConfig {
    pub(super) tick_ms: u32,
    pub(super) session_ms: (u32, u32),
    pub(super) connections: u32,
    pub(super) words: &'static str,
    pub(super) tls: bool,
    pub(super) client_certificates: bool,
}

impl Default for ZooKeeperConfig {
    fn default() -> Self {
        Self {
            tick_ms: 200,
            session_ms: (400, 60_000),
            connections: 0,
            words: "*",
            tls: false,
            client_certificates: false,
        }
    }
}

impl ZooKeeperConfig {
    /// Chooses the shortest and the longest session, in milliseconds.
    #[must_use]
    pub fn with_sessions(mut self, shortest_ms: u32, longest_ms: u32) -> Self {
        self.session_ms = (shortest_ms, longest_ms);
        self
    }

    /// Chooses the length of a tick, in milliseconds.
    #[must_use]
    pub fn with_tick(mut self, tick_ms: u32) -> Self {
        self.tick_ms = tick_ms;
        self
    }

    /// Allows this many connections from one address; 0 are all.
    #[must_use]
    pub fn with_connections(mut self, most: u32) -> Self {
        self.connections = most;
        self
    }

    /// Answers only these of the words of four letters, as `srvr`, which the test ground needs.
    #[must_use]
    pub fn with_words(mut self, words: &'static str) -> Self {
        self.words = words;
        self
    }

    /// Serves clients by TLS too, on a port of its own, with certificates made for this server.
    #[must_use]
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// As [`with_tls`](Self::with_tls), and refuses clients by TLS without a certificate of its own
    /// authority.
    #[must_use]
    pub fn with_client_certificates(mut self) -> Self {
        self.client_certificates = true;
        self.with_tls()
    }
}
