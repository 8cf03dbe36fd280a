//! The settings of a server: the table `[server]` of a configuration file.
//!
//! Tokens stand there as SHA-256 digests, so that a reader of the file cannot use them. A token
//! is 128 random bits or more, so a plain digest is enough: there is nothing to guess.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use crate::access::Access;
use crate::app::DEFAULT_STORE;
use crate::proxy::Network;

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

/// Somebody who has rights, whatever proves it.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    /// The list of the settings.
    list: &'static str,
    pub(crate) name: &'a str,
    pub(crate) rights: &'a [String],
    pub(crate) stores: &'a [String],
    pub(crate) prefixes: &'a [String],
    pub(crate) expires: Option<&'a str>,
}

impl fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.list, self.name)
    }
}

impl Entry<'_> {
    pub(crate) fn of_token(token: &TokenConfig) -> Entry<'_> {
        Entry {
            list: "tokens",
            name: &token.name,
            rights: &token.rights,
            stores: &token.stores,
            prefixes: &token.prefixes,
            expires: token.expires.as_deref(),
        }
    }

    pub(crate) fn of_certificate(certificate: &CertificateConfig) -> Entry<'_> {
        Entry {
            list: "certificates",
            name: &certificate.name,
            rights: &certificate.rights,
            stores: &certificate.stores,
            prefixes: &certificate.prefixes,
            expires: certificate.expires.as_deref(),
        }
    }

    pub(crate) fn of_socket_user(user: &SocketUser) -> Entry<'_> {
        Entry {
            list: "socket.users",
            name: &user.name,
            rights: &user.rights,
            stores: &user.stores,
            prefixes: &user.prefixes,
            expires: None,
        }
    }

    pub(crate) fn of_user(user: &UserConfig) -> Entry<'_> {
        Entry {
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
    /// Reads the table `[server]` of a configuration file; the defaults where there is none.
    ///
    /// # Errors
    /// What is wrong, without the line that it is about: it may hold a secret.
    pub fn from_toml(text: &str) -> Result<ServerConfig, ConfigError> {
        let mut file: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            ConfigError::new(format_args!("line {line}: {}", error.message()))
        })?;
        let Some(server) = file.remove("server") else { return Ok(ServerConfig::default()) };
        let config: Result<ServerConfig, _> = server.try_into();
        let config = config
            .map_err(|error| ConfigError::new(format_args!("[server]: {}", error.message())))?;
        config.validate()?;
        Ok(config)
    }

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

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.access()?;
        let mut names = BTreeSet::new();
        for entry in self.entries() {
            if entry.name.is_empty() {
                return Err(ConfigError::new(format_args!("{entry}: the name is empty")));
            }
            // Sessions and limits are counted by the name.
            if !names.insert(entry.name) {
                return Err(ConfigError::new(format_args!(
                    "{entry}: two entries have this name: give each its own"
                )));
            }
        }
        self.stores().try_for_each(|(name, _)| store_name(name))?;
        let limits = &self.limits;
        let positive = [
            ("connections", limits.connections),
            ("connections_per_address", limits.connections_per_address),
            ("body_bytes", limits.body_bytes),
            ("sessions", limits.sessions),
            ("sessions_per_client", limits.sessions_per_client),
            ("leases_per_client", limits.leases_per_client),
            ("leases_per_address", limits.leases_per_address),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(ConfigError::new(format_args!("limits.{name} must be above 0")));
        }
        if limits.header_bytes < 8 * 1024 {
            return Err(ConfigError::new("limits.header_bytes must be at least 8192"));
        }
        if limits.request_timeout_ms == 0 || limits.max_wait_ms > 24 * 60 * 60 * 1_000 {
            return Err(ConfigError::new(
                "limits.request_timeout_ms must be above 0, and limits.max_wait_ms at most a day",
            ));
        }
        self.validate_listeners()
    }

    /// Checks that nobody has rights who cannot prove who they are.
    fn validate_listeners(&self) -> Result<(), ConfigError> {
        let has_client_ca = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let names_people = self.proxy.as_ref().is_some_and(|proxy| proxy.header.is_some());
        let authenticates =
            !self.tokens.is_empty() || names_people || !self.certificates.is_empty();
        if !self.certificates.is_empty() && !has_client_ca {
            return Err(ConfigError::new(
                "certificates: nobody can show one: add `tls.client_ca`, which signs them",
            ));
        }
        if has_client_ca && !authenticates {
            return Err(ConfigError::new(
                "tls.client_ca: a certificate opens a connection, and gives no right: add \
                 `certificates`, which names those that have rights, or tokens",
            ));
        }
        if self.proxy.is_some() && !authenticates {
            return Err(ConfigError::new(
                "proxy: without `header` it names nobody: add the tokens that it passes on",
            ));
        }
        let Some(listen) = self.listen() else { return Ok(()) };
        if self.socket.is_some() && !authenticates {
            return Err(ConfigError::new(format_args!(
                "listen: every process on this machine could go by {listen} past the mode of the \
                 socket: leave `listen` out, or add tokens"
            )));
        }
        if listen.ip().is_loopback() {
            return Ok(());
        }
        if !authenticates {
            return Err(ConfigError::new(format_args!(
                "{listen} is reachable from other machines, and nobody is authenticated: add \
                 tokens, `certificates` or `proxy`, or listen on 127.0.0.1",
            )));
        }
        if self.tls.is_none() && self.proxy.is_none() {
            return Err(ConfigError::new(format_args!(
                "{listen} is reachable from other machines, and tokens would travel in clear text: \
                 add `tls`, or `proxy` with the addresses of a reverse proxy that has it",
            )));
        }
        Ok(())
    }

    /// Checks that the stores exist for which somebody has rights.
    pub(crate) fn check_stores(&self, served: &[&str]) -> Result<(), ConfigError> {
        for entry in self.entries() {
            let unknown = entry.stores.iter().find(|store| !served.contains(&store.as_str()));
            if let Some(unknown) = unknown {
                return Err(ConfigError::new(format_args!(
                    "{entry}: there is no store {unknown:?}: the stores of this server are {}",
                    served.join(", ")
                )));
            }
        }
        Ok(())
    }

    /// Everybody who has rights, in the order of the lists.
    fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let users = self.proxy.iter().flat_map(|proxy| &proxy.users);
        let socket_users = self.socket.iter().flat_map(|socket| &socket.users);
        let tokens = self.tokens.iter().map(Entry::of_token);
        let certificates = self.certificates.iter().map(Entry::of_certificate);
        let users = users.map(Entry::of_user).chain(socket_users.map(Entry::of_socket_user));
        tokens.chain(certificates).chain(users)
    }

    pub(crate) fn access(&self) -> Result<Access, ConfigError> {
        Access::of(self)
    }
}

/// Checks the name of a store, which is a part of paths.
pub(crate) fn store_name(name: &str) -> Result<(), ConfigError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let message = match name {
        DEFAULT_STORE => "is the name of the store that `url` names",
        _ if name.is_empty() || name.len() > 32 || !name.chars().all(is_plain) => {
            "must have 1 to 32 characters of a-z, 0-9, `-` and `_`"
        }
        _ => return Ok(()),
    };
    Err(ConfigError::new(format_args!("stores: the name {name:?} {message}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn what_would_let_strangers_in_is_refused() {
        let token = format!(
            "[[server.tokens]]\nname = \"ci\"\nsha256 = \"{DIGEST}\"\nrights = [\"lock\"]\n"
        );
        let open = "[server]\nlisten = \"0.0.0.0:1\"\n";
        let tls = "[server.tls]\ncert = \"/a\"\nkey = \"/b\"\n";
        let files = "cert = \"/a\"\nkey = \"/b\"\n";
        let anybody = "[[server.certificates]]\nname = \"x\"\nrights = []\n";
        let header = "header = \"X-Forwarded-User\"\n";
        let socket = "[server.socket]\npath = \"/run/s\"\n";
        let certificate = format!("{anybody}subject = \"CN=x\"\n");
        for (text, says) in [
            (open.to_owned(), "nobody is authenticated"),
            (format!("{open}{token}"), "clear text"),
            (format!("{open}{tls}"), "nobody is authenticated"),
            (token.replace("lock\"]", "lok\"]"), "no right `lok`"),
            (token.replace(DIGEST, "abc"), "64 hexadecimal digits"),
            (token.replace(DIGEST, EMPTY), "digest of no text"),
            (format!("{token}{token}"), "tokens.ci: two entries have this name"),
            (format!("{token}{certificate}"), "tls.client_ca"),
            (format!("[server.tls]\n{files}client_ca = \"/c\"\n"), "gives no right"),
            (format!("[server.tls]\n{files}client_ca = \"/c\"\n{anybody}"), "needs `subject`"),
            ("[server]\nlisten = \"here\"\n".to_owned(), "[server]"),
            ("[server]\nfoo = 1\n".to_owned(), "unknown field `foo`"),
            ("[server.limits]\nconnections = 0\n".to_owned(), "connections"),
            ("x = \n".to_owned(), "line 1"),
            (format!("{open}[server.proxy]\naddresses = [\"10.0.0.1\"]\n"), "names nobody"),
            (
                format!("[server.proxy]\n{header}addresses = [\"127.0.0.1\"]\n"),
                "trust_this_machine",
            ),
            (
                format!("[server.proxy]\n{header}addresses = [\"0.0.0.0/0\"]\n"),
                "trust_this_machine",
            ),
            (
                format!("[server.proxy]\n{header}addresses = [\"10.0.0.1/8\"]\n"),
                "no network such as",
            ),
            (format!("[server.proxy]\n{header}addresses = []\n"), "must name the proxy"),
            (
                format!(
                    "{token}[server.proxy]\naddresses = [\"127.0.0.1\"]\nforwarded_for = true\n"
                ),
                "trust_this_machine",
            ),
            ("[server.limits]\nleases_per_client = 0\n".to_owned(), "leases_per_client"),
            (format!("{socket}mode = \"0777\"\n"), "such as \"0600\""),
            (format!("[server]\nlisten = \"127.0.0.1:1\"\n{socket}"), "past the mode"),
        ] {
            let error = ServerConfig::from_toml(&text).expect_err(&text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        for text in [
            String::new(),
            token.clone(),
            format!("{open}{tls}{token}"),
            // A proxy that ends TLS and passes tokens on.
            format!("{open}{token}[server.proxy]\naddresses = [\"10.0.0.0/8\"]\n"),
            format!("[server.proxy]\n{header}uids = [33]\n{socket}mode = \"0660\"\n"),
            format!("[server.proxy]\n{header}addresses = [\"::1\"]\ntrust_this_machine = true\n"),
            socket.to_owned(),
        ] {
            assert!(ServerConfig::from_toml(&text).is_ok(), "{text}");
        }
    }
}
