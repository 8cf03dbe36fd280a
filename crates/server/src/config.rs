//! The settings of a server: the table `[server]` of a configuration file.
//!
//! Tokens stand there as SHA-256 digests, so that a reader of the file cannot use them. A token
//! is 128 random bits or more, so a plain digest is enough: there is nothing to guess.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::LockName;
use serde::{Deserialize, Deserializer, de};

use crate::address::Network;

/// The name of the store that paths without a store mean.
pub const DEFAULT_STORE: &str = "default";

/// What is wrong with the settings, as text for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(message: impl fmt::Display) -> ConfigError {
        ConfigError(message.to_string())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// The settings of a server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where the server listens; unless set, on this machine if there is no socket.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) socket: Option<SocketConfig>,
    /// Where `/healthz` and `/readyz` are answered besides, without TLS.
    pub(crate) health_listen: Option<SocketAddr>,
    /// The names by which clients reach the server, besides its address and `localhost`.
    pub(crate) hosts: Vec<String>,
    /// Who may do what. Without an entry everybody on this machine may do everything.
    pub(crate) tokens: Vec<TokenConfig>,
    pub(crate) certificates: Vec<CertificateConfig>,
    pub(crate) proxy: Option<ProxyConfig>,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) limits: LimitsConfig,
    /// Where records of operators' actions go that a store does not keep.
    pub(crate) audit_file: Option<PathBuf>,
    /// The stores beside the default one, by name.
    pub(crate) stores: BTreeMap<String, StoreUrl>,
    /// Which holds are counted as too long; nothing ends them.
    pub(crate) long_holds: Vec<LongHoldsConfig>,
}

/// How long names with a prefix may be held. Of several prefixes of a name, the longest counts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LongHoldsConfig {
    /// All names, unless set.
    #[serde(default)]
    pub(crate) prefix: String,
    /// For ever, unless set.
    #[serde(default)]
    after_ms: Option<u64>,
}

impl LongHoldsConfig {
    /// Returns the one that counts for a name, and its place.
    pub(crate) fn of<'a>(
        all: &'a [LongHoldsConfig],
        name: &LockName,
    ) -> Option<(usize, &'a LongHoldsConfig)> {
        let fitting = all.iter().enumerate();
        let fitting = fitting.filter(|(_, one)| name.as_str().starts_with(&one.prefix));
        fitting.max_by_key(|(_, one)| one.prefix.len())
    }

    /// How long a hold may last.
    pub(crate) fn after(&self) -> Option<Duration> {
        self.after_ms.map(Duration::from_millis)
    }
}

/// The URL of a store. It may hold a password, which is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct StoreUrl(String);

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&holdline::redact_url(&self.0))
    }
}

/// One bearer token.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenConfig {
    pub(crate) name: String,
    /// The SHA-256 digest of the token in hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) rights: Vec<String>,
    /// The stores that it is good for; all of them if there is none.
    #[serde(default)]
    pub(crate) stores: Vec<String>,
    /// The prefixes of lock names that it is good for; all names if there is none.
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
    #[serde(default)]
    pub(crate) expires: Option<String>,
}

/// A client certificate that the settings know by its names. It needs `tls.client_ca`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateConfig {
    pub(crate) name: String,
    /// Its whole subject as RFC 4514 writes it: `CN=build-7,O=Example`.
    #[serde(default)]
    pub(crate) subject: Option<String>,
    /// One of its alternative names as OpenSSL writes them: `DNS:build-7.example`.
    #[serde(default)]
    pub(crate) san: Option<String>,
    pub(crate) rights: Vec<String>,
    #[serde(default)]
    pub(crate) stores: Vec<String>,
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
    #[serde(default)]
    pub(crate) expires: Option<String>,
}

/// A reverse proxy. It ends TLS, and may authenticate people and name them in a header.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyConfig {
    /// The header, such as `X-Forwarded-User`. Without it, the proxy passes tokens on.
    #[serde(default)]
    pub(crate) header: Option<String>,
    /// The addresses of the proxy: from all others the header is refused.
    #[serde(default)]
    pub(crate) addresses: Vec<Network>,
    /// The users as which the proxy runs, if it uses the socket.
    #[serde(default)]
    pub(crate) uids: Vec<u32>,
    /// Whether every process on this machine may name people.
    #[serde(default)]
    pub(crate) trust_this_machine: bool,
    /// Whether it adds the address of its client to `X-Forwarded-For`.
    #[serde(default)]
    pub(crate) forwarded_for: bool,
    #[serde(default)]
    pub(crate) users: Vec<UserConfig>,
}

/// The socket of this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketConfig {
    pub(crate) path: PathBuf,
    /// Who may connect: the mode of the file, in octal digits.
    #[serde(default)]
    pub(crate) mode: SocketMode,
    /// Who may do what. Without an entry everybody who may connect may do everything.
    #[serde(default)]
    pub(crate) users: Vec<SocketUser>,
}

/// The mode of a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketMode(pub(crate) u32);

impl Default for SocketMode {
    fn default() -> SocketMode {
        SocketMode(0o600)
    }
}

impl<'de> Deserialize<'de> for SocketMode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<SocketMode, D::Error> {
        let text = String::deserialize(from)?;
        let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| mode & !0o666 == 0);
        mode.map(SocketMode).ok_or_else(|| {
            de::Error::custom(format!("the mode {text:?} is none such as \"0600\" or \"0660\""))
        })
    }
}

/// A user of this machine, by the number that the system knows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketUser {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) rights: Vec<String>,
    #[serde(default)]
    pub(crate) stores: Vec<String>,
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
}

/// A person that a proxy names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserConfig {
    pub(crate) name: String,
    pub(crate) rights: Vec<String>,
    #[serde(default)]
    pub(crate) stores: Vec<String>,
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
}

/// Somebody who has rights by an entry of the settings, whatever proves it.
#[derive(Clone, Copy)]
pub(crate) struct IdentityEntry<'a> {
    /// The list of the settings.
    list: &'static str,
    pub(crate) name: &'a str,
    pub(crate) rights: &'a [String],
    pub(crate) stores: &'a [String],
    pub(crate) prefixes: &'a [String],
    pub(crate) expires: Option<&'a str>,
}

impl fmt::Display for IdentityEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.list, self.name)
    }
}

impl IdentityEntry<'_> {
    pub(crate) fn of_token(token: &TokenConfig) -> IdentityEntry<'_> {
        IdentityEntry {
            list: "tokens",
            name: &token.name,
            rights: &token.rights,
            stores: &token.stores,
            prefixes: &token.prefixes,
            expires: token.expires.as_deref(),
        }
    }

    pub(crate) fn of_certificate(certificate: &CertificateConfig) -> IdentityEntry<'_> {
        IdentityEntry {
            list: "certificates",
            name: &certificate.name,
            rights: &certificate.rights,
            stores: &certificate.stores,
            prefixes: &certificate.prefixes,
            expires: certificate.expires.as_deref(),
        }
    }

    pub(crate) fn of_socket_user(user: &SocketUser) -> IdentityEntry<'_> {
        IdentityEntry {
            list: "socket.users",
            name: &user.name,
            rights: &user.rights,
            stores: &user.stores,
            prefixes: &user.prefixes,
            expires: None,
        }
    }

    pub(crate) fn of_user(user: &UserConfig) -> IdentityEntry<'_> {
        IdentityEntry {
            list: "proxy.users",
            name: &user.name,
            rights: &user.rights,
            stores: &user.stores,
            prefixes: &user.prefixes,
            expires: None,
        }
    }
}

/// The files of TLS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// A client without a certificate of this authority gets no connection.
    #[serde(default)]
    pub(crate) client_ca: Option<PathBuf>,
}

/// The limits.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsConfig {
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
    pub(crate) waiters_per_client: usize,
    pub(crate) leases_per_client: usize,
    pub(crate) leases_per_address: usize,
    pub(crate) sessions: usize,
    pub(crate) sessions_per_client: usize,
    pub(crate) event_streams: usize,
    pub(crate) event_streams_per_client: usize,
    pub(crate) body_bytes: usize,
    pub(crate) header_bytes: usize,
    pub(crate) max_wait_ms: u64,
    pub(crate) request_timeout_ms: u64,
    pub(crate) drain_ms: u64,
    pub(crate) stop_timeout_ms: u64,
}

impl LimitsConfig {
    /// How long the server goes on taking requests after the signal to stop, while `/readyz` says
    /// that it is stopping.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    /// The longest wait for a lock in one request.
    pub(crate) fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait_ms)
    }

    /// How long headers or a body may take to arrive.
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    /// How long requests may continue after the server has received the signal to stop.
    pub(crate) fn stop_timeout(&self) -> Duration {
        Duration::from_millis(self.stop_timeout_ms)
    }
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            connections: 20_000,
            connections_per_address: 10_000,
            waiters_per_client: 1_000,
            leases_per_client: 100_000,
            leases_per_address: 100_000,
            sessions: 100_000,
            sessions_per_client: 10_000,
            event_streams: 1_000,
            event_streams_per_client: 200,
            body_bytes: 256 * 1024,
            header_bytes: 16 * 1024,
            max_wait_ms: 60 * 60 * 1_000,
            request_timeout_ms: 15_000,
            drain_ms: 0,
            stop_timeout_ms: 10_000,
        }
    }
}

impl ServerConfig {
    /// Sets where the server listens.
    #[must_use]
    pub fn with_listen(mut self, listen: SocketAddr) -> ServerConfig {
        self.listen = Some(listen);
        self
    }

    /// Has the server listen on a socket of this machine that only its own user may connect to,
    /// unless the settings have one already: then they say who may.
    #[must_use]
    pub fn with_socket(mut self, path: impl Into<PathBuf>) -> ServerConfig {
        let path = path.into();
        match &mut self.socket {
            Some(socket) => socket.path = path,
            None => {
                let mode = SocketMode::default();
                self.socket = Some(SocketConfig { path, mode, users: Vec::new() });
            }
        }
        self
    }

    /// Adds a store beside the default one, or replaces it.
    #[must_use]
    pub fn with_store(mut self, name: impl Into<String>, url: impl Into<String>) -> ServerConfig {
        self.stores.insert(name.into(), StoreUrl(url.into()));
        self
    }

    /// Returns the names and URLs of the stores beside the default one. A URL may hold a password.
    pub fn stores(&self) -> impl Iterator<Item = (&str, &str)> {
        self.stores.iter().map(|(name, url)| (name.as_str(), url.0.as_str()))
    }

    /// Returns the address on which the server listens; `None` if it has a socket only.
    pub fn listen(&self) -> Option<SocketAddr> {
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, 7654));
        self.listen.or(self.socket.is_none().then_some(usual))
    }

    /// Returns whether connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Everybody who has rights, in the order of the lists.
    pub(crate) fn entries(&self) -> impl Iterator<Item = IdentityEntry<'_>> {
        let users = self.proxy.iter().flat_map(|proxy| &proxy.users);
        let socket_users = self.socket.iter().flat_map(|socket| &socket.users);
        let tokens = self.tokens.iter().map(IdentityEntry::of_token);
        let certificates = self.certificates.iter().map(IdentityEntry::of_certificate);
        let users = users
            .map(IdentityEntry::of_user)
            .chain(socket_users.map(IdentityEntry::of_socket_user));
        tokens.chain(certificates).chain(users)
    }
}
