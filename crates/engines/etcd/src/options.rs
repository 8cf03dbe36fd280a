//! What can be set for an etcd engine, in code or in a URL.
//!
//! `etcd://[user[:password]@]host[:port][,host[:port]…]`, `etcds://` for TLS. No password is ever
//! shown: not by `Debug`, not in a message.

use std::path::Path;
use std::time::Duration;

use holdline_core::LockError;
use holdline_net::files::read_pem;
use holdline_net::secret::Secret;
use holdline_net::tls::TlsFiles;
use holdline_net::url::{Reader, Server};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::error::ENGINE;

const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(60);
const MOST_WAITERS: usize = 100_000;
const LONGEST_PREFIX: usize = 256;
/// Where Debian and most others keep the authorities that the machine trusts.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const URL: Reader = Reader { engine: ENGINE, port: 2379 };
const PARAMETERS: [&str; 10] = [
    "ca",
    "cert",
    "command_timeout_ms",
    "connect_timeout_ms",
    "key",
    "max_waiters",
    "password_env",
    "password_file",
    "prefix",
    "user",
];

/// The settings of an etcd engine.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    members: Vec<Server>,
    prefix: String,
    user: Option<String>,
    password: Secret,
    tls: Option<TlsFiles>,
    connect_timeout: Duration,
    command_timeout: Duration,
    max_waiters: usize,
}

impl Default for EtcdOptions {
    fn default() -> EtcdOptions {
        EtcdOptions {
            members: vec![URL.here()],
            prefix: "holdline/".to_owned(),
            user: None,
            password: Secret::default(),
            tls: None,
            connect_timeout: Duration::from_secs(3),
            command_timeout: Duration::from_secs(3),
            max_waiters: 10_000,
        }
    }
}

impl EtcdOptions {
    /// Reads the settings from a URL, with the parameters `prefix`, `user`, `password_file`,
    /// `password_env` (the name of a variable), `connect_timeout_ms`, `command_timeout_ms`,
    /// `max_waiters`, and for TLS `ca`, `cert` and `key`.
    ///
    /// # Errors
    /// `Invalid` tells what is wrong with the URL, and never shows its password; an unknown
    /// parameter is told with the nearest known spelling. No connection was made.
    pub fn from_url(url: &str) -> Result<EtcdOptions, LockError> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let tls = match scheme {
            "etcd" => None,
            "etcds" => Some(TlsFiles::default()),
            _ => return Err(URL.bad("must begin with `etcd://` or `etcds://`")),
        };
        let mut options = EtcdOptions { tls, ..EtcdOptions::default() };
        let (credentials, parameters) = URL.split(rest)?;
        (options.user, options.password) = (credentials.user, Secret::new(credentials.password));
        options.members = members(credentials.place)?;
        for (key, value) in parameters {
            options.set(&key, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), LockError> {
        match key {
            "ca" => self.tls_file(key)?.ca = Some(value.into()),
            "cert" => self.tls_file(key)?.cert = Some(value.into()),
            "key" => self.tls_file(key)?.key = Some(value.into()),
            "command_timeout_ms" => self.command_timeout = URL.millis(key, &value)?,
            "connect_timeout_ms" => self.connect_timeout = URL.millis(key, &value)?,
            "max_waiters" => self.max_waiters = URL.number(key, &value)?,
            "password_env" => self.password = Secret::from_variable(ENGINE, &value)?,
            "password_file" => self.password = Secret::from_file(ENGINE, Path::new(&value))?,
            "prefix" => self.prefix = value,
            "user" => self.user = Some(value),
            unknown => return Err(URL.unknown(unknown, PARAMETERS, &PARAMETERS)),
        }
        Ok(())
    }

    fn tls_file(&mut self, key: &str) -> Result<&mut TlsFiles, LockError> {
        self.tls
            .as_mut()
            .ok_or_else(|| URL.bad(format!("has `{key}`, which needs TLS: write `etcds://`")))
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting that is wrong and what it may be.
    pub fn validate(&self) -> Result<(), LockError> {
        for (field, value) in
            [("connect_timeout", self.connect_timeout), ("command_timeout", self.command_timeout)]
        {
            if !TIMEOUTS.contains(&value) {
                let message = format!("must be from 10ms to 60s, not {value:?}");
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        if !(1..=MOST_WAITERS).contains(&self.max_waiters) {
            let message = format!("must be from 1 to {MOST_WAITERS}, not {}", self.max_waiters);
            return Err(LockError::invalid(ENGINE, "max_waiters", message));
        }
        let good = self.prefix.is_empty() || self.prefix.ends_with('/');
        if !good || self.prefix.len() > LONGEST_PREFIX || self.prefix.contains('\0') {
            let message = format!(
                "must be empty or end with `/`, and have {LONGEST_PREFIX} bytes at most, as in \
                 `holdline/`"
            );
            return Err(LockError::invalid(ENGINE, "prefix", message));
        }
        match (&self.user, self.password.expose()) {
            (Some(_), None) => {
                let message =
                    "needs a password: in the URL, by `password_file`, `password_env`, or in code";
                Err(LockError::invalid(ENGINE, "user", message))
            }
            (None, Some(_)) => {
                Err(LockError::invalid(ENGINE, "user", "is missing: etcd knows no password alone"))
            }
            _ => self.validate_tls(),
        }
    }

    fn validate_tls(&self) -> Result<(), LockError> {
        let Some(files) = &self.tls else { return Ok(()) };
        if files.cert.is_some() != files.key.is_some() {
            let message = "a client certificate needs both `cert` and `key`";
            return Err(LockError::invalid(ENGINE, "url", message));
        }
        Ok(())
    }

    /// Sets user and password, which then need not stand in a URL.
    #[must_use]
    pub fn with_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> EtcdOptions {
        self.user = Some(user.into());
        self.password = Secret::new(Some(password.into()));
        self
    }

    /// Sets what stands before the name in every key: `holdline/` unless set.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> EtcdOptions {
        self.prefix = prefix.into();
        self
    }

    /// Sets how long making a connection to one member may take; 3 s unless set.
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> EtcdOptions {
        self.connect_timeout = limit;
        self
    }

    /// Sets how long one request may take; 3 s unless set.
    #[must_use]
    pub fn with_command_timeout(mut self, limit: Duration) -> EtcdOptions {
        self.command_timeout = limit;
        self
    }

    /// Sets how many contenders may queue for one name; 10,000 unless set.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> EtcdOptions {
        self.max_waiters = max_waiters;
        self
    }
}

impl EtcdOptions {
    pub(crate) fn members(&self) -> &[Server] {
        &self.members
    }

    /// The same settings for one of the members alone.
    pub(crate) fn only(&self, member: &Server) -> EtcdOptions {
        EtcdOptions { members: vec![member.clone()], ..self.clone() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn credentials(&self) -> Option<(String, String)> {
        Some((self.user.clone()?, self.password.expose()?.to_owned()))
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    pub(crate) fn max_waiters(&self) -> usize {
        self.max_waiters
    }

    /// Tells whether the password would travel a network where others can read it.
    pub(crate) fn exposes_password(&self) -> bool {
        let here = |member: &Server| {
            let parsed = member.host.parse::<std::net::IpAddr>();
            member.host == "localhost" || parsed.is_ok_and(|ip| ip.is_loopback())
        };
        self.tls.is_none() && self.password.expose().is_some() && !self.members.iter().all(here)
    }

    /// Tells whether TLS is spoken, and nothing shown that says who we are.
    pub(crate) fn shows_no_certificate(&self) -> bool {
        self.tls.as_ref().is_some_and(|files| files.cert.is_none())
    }

    /// Returns the files of TLS; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// Reads what TLS needs; `None` without TLS.
    pub(crate) fn tls_config(&self) -> Result<Option<ClientTlsConfig>, LockError> {
        let Some(files) = &self.tls else { return Ok(None) };
        let read = |what: &'static str, path: &Path| {
            read_pem(path).map_err(|error| {
                LockError::invalid(ENGINE, what, format!("{}: {error}", path.display()))
            })
        };
        let authorities = files.ca.as_deref().unwrap_or(Path::new(AUTHORITIES));
        let mut config =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca", authorities)?));
        if let (Some(cert), Some(key)) = (&files.cert, &files.key) {
            config = config.identity(Identity::from_pem(read("cert", cert)?, read("key", key)?));
        }
        Ok(Some(config))
    }
}

fn members(hosts: &str) -> Result<Vec<Server>, LockError> {
    match hosts.strip_suffix('/').unwrap_or(hosts) {
        path if path.contains('/') => {
            Err(URL.bad("has a path: etcd has no databases; keys are set apart by `prefix`"))
        }
        hosts => URL.servers(hosts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_user_and_prefix_are_read_and_the_password_is_not_shown() {
        let url = "etcd://ann:p%40ss@a,b:7,[::1]:9?prefix=locks/&command_timeout_ms=500";
        let options = EtcdOptions::from_url(url).expect("good");
        let members: Vec<String> = options.members().iter().map(ToString::to_string).collect();
        assert_eq!(members, ["a:2379", "b:7", "[::1]:9"]);
        assert_eq!(options.credentials(), Some(("ann".into(), "p@ss".into())));
        assert_eq!((options.prefix(), options.command_timeout().as_millis()), ("locks/", 500));
        assert!(options.exposes_password() && !format!("{options:?}").contains("p@ss"));
        let empty = EtcdOptions::from_url("etcd://").expect("good");
        assert_eq!(empty.members(), EtcdOptions::default().members());
    }

    #[test]
    fn what_is_wrong_is_named_and_no_password_is_shown() {
        for (url, says) in [
            ("etdc://a", "etcds://"),
            ("etcd://a:x", "port"),
            ("etcd://a,,b", "without a host"),
            ("etcd://::1", "brackets"),
            ("etcd://[::1", "without its `]`"),
            ("etcd://a/db", "path"),
            ("etcd://ann@a", "needs a password"),
            ("etcd://:s3cret@a", "is missing"),
            ("etcd://a?prefx=b/", "did you mean `prefix`?"),
            ("etcd://a?prefix=b", "end with `/`"),
            ("etcd://a?prefix=b/&prefix=c/", "twice"),
            ("etcd://a?ca=/x", "etcds://"),
            ("etcds://a?cert=/x", "both"),
            ("etcd://a?max_waiters=0", "from 1"),
            ("etcd://a?command_timeout_ms=s3cret", "whole number"),
            ("etcd://ann:s3?cret@a", "%3F"),
            ("etcd://a?user=ann&password_file=/no/where", "No such file"),
            ("etcd://a?user=ann&password_file=/dev/zero", "longer"),
            ("etcd://a?password_env=HOLDLINE_NO_SUCH_VARIABLE", "not set"),
        ] {
            let error = EtcdOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{url}: {error}");
        }
    }
}
