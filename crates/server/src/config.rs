//! The settings of a server: the table `[server]` of a configuration file.
//!
//! Tokens stand there as SHA-256 digests, so that a reader of the file cannot use them. A token
//! is 128 random bits or more, so a plain digest is enough: there is nothing to guess.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::access::Access;
use crate::app::DEFAULT_STORE;

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
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where the server listens.
    pub(crate) listen: SocketAddr,
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

/// A reverse proxy that authenticates people and names them in a header.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProxyConfig {
    /// The header, such as `X-Forwarded-User`.
    pub(crate) header: String,
    /// The addresses of the proxy: from all others the header is refused.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) users: Vec<UserConfig>,
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
    pub(crate) waiters_per_client: usize,
    pub(crate) sessions: usize,
    pub(crate) event_streams: usize,
    pub(crate) event_streams_per_client: usize,
    pub(crate) body_bytes: usize,
    pub(crate) header_bytes: usize,
    pub(crate) max_wait_ms: u64,
    pub(crate) request_timeout_ms: u64,
    pub(crate) stop_timeout_ms: u64,
}

impl LimitsConfig {
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
            waiters_per_client: 1_000,
            sessions: 100_000,
            event_streams: 1_000,
            event_streams_per_client: 200,
            body_bytes: 256 * 1024,
            header_bytes: 16 * 1024,
            max_wait_ms: 60 * 60 * 1_000,
            request_timeout_ms: 15_000,
            stop_timeout_ms: 10_000,
        }
    }
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7654)),
            hosts: Vec::new(),
            tokens: Vec::new(),
            certificates: Vec::new(),
            proxy: None,
            tls: None,
            limits: LimitsConfig::default(),
            audit_file: None,
            stores: BTreeMap::new(),
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
        self.listen = listen;
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

    /// Returns where the server listens.
    pub fn listen(&self) -> SocketAddr {
        self.listen
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
            ("body_bytes", limits.body_bytes),
            ("sessions", limits.sessions),
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
        let has_client_ca = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let authenticates =
            !self.tokens.is_empty() || self.proxy.is_some() || !self.certificates.is_empty();
        if !self.certificates.is_empty() && !has_client_ca {
            return Err(ConfigError::new(
                "certificates: nobody can show one: add `tls.client_ca`, the authority that signs them",
            ));
        }
        if has_client_ca && !authenticates {
            return Err(ConfigError::new(
                "tls.client_ca: a certificate opens a connection, and gives no right: add \
                 `certificates`, which names those that have rights, or tokens",
            ));
        }
        if !self.listen.ip().is_loopback() && !authenticates {
            return Err(ConfigError::new(format_args!(
                "{} is reachable from other machines, and nobody is authenticated: add tokens, \
                 `certificates` or `proxy`, or listen on 127.0.0.1",
                self.listen
            )));
        }
        if !self.listen.ip().is_loopback() && self.tls.is_none() && self.proxy.is_none() {
            return Err(ConfigError::new(format_args!(
                "{} is reachable from other machines, and tokens would travel in clear text: add \
                 `tls`, or `proxy` for a reverse proxy that has it",
                self.listen
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
        let tokens = self.tokens.iter().map(Entry::of_token);
        let certificates = self.certificates.iter().map(Entry::of_certificate);
        tokens.chain(certificates).chain(users.map(Entry::of_user))
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
        ] {
            let error = ServerConfig::from_toml(&text).expect_err(&text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        for text in [String::new(), token.clone(), format!("{open}{tls}{token}")] {
            assert!(ServerConfig::from_toml(&text).is_ok(), "{text}");
        }
    }
}
