//! The settings of a Redis engine, in code or in a URL.
//!
//! `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, and
//! `redis+unix:///path/to/socket?db=0`; for a master that Sentinels monitor
//! `redis+sentinel://sentinel[:port],…/service[/db]`, and for a cluster
//! `redis-cluster://node[:port],…`. No password is ever shown: not by `Debug`,
//! not in a message.
//!
//! Read next: `url` and `read` for how a URL is read, `group` for the one that names sentinels,
//! `check` for the limits of the settings.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use holdline_core::LockError;
use holdline_net::limits::Limits;
use holdline_net::secret::Secret;
use holdline_net::tls::TlsFiles;
use holdline_net::url::Reader;

use crate::environment::Environment;
use crate::error::ENGINE;

mod address;
mod check;
mod failover;
mod group;
mod read;
mod url;

pub(crate) use address::Address;
pub(crate) use failover::{FailoverRules, Replicas};
pub(crate) use group::{SentinelGroup, is_near};

const URL: Reader = Reader { engine: ENGINE, port: 6379 };

/// The form of a lock's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Our own keys: queue, fair hand-off, shared and permit modes.
    #[default]
    Native,
    /// One string key, as in the plain locks of other libraries.
    Plain,
    /// The objects of Redisson, the Java library.
    Redisson,
}

/// How Redisson's messages are published and received in the Redisson dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Publish {
    /// As Redisson decides: sharded on a cluster whose nodes can do that, else plain.
    #[default]
    Auto,
    /// By `PUBLISH`, as Redisson before 3.22 does on every cluster.
    Plain,
    /// By `SPUBLISH`.
    Sharded,
    /// By both, for clients of both versions on one cluster.
    Both,
}

/// The settings of a Redis engine.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    access: Access,
    limits: Limits,
    layout: Layout,
    group: Option<SentinelGroup>,
    failover: FailoverRules,
    environment: Option<Arc<dyn Environment>>,
}

/// How the server is reached, and as whom.
#[derive(Clone, Debug)]
struct Access {
    address: Address,
    user: Option<String>,
    password: Secret,
    db: u32,
    tls: TlsFiles,
    client_name: Option<String>,
    resp3: bool,
}

/// The form of the keys.
#[derive(Clone, Debug)]
struct Layout {
    dialect: Dialect,
    fencing: bool,
    /// `None`: the default of the dialect.
    key_template: Option<String>,
    signal_template: Option<String>,
    prefix: String,
    publish: Publish,
}

impl RedisOptions {
    /// Reads the settings from a URL, with the parameters `dialect` (`native`, `plain`,
    /// `redisson`), `fencing` (`on`, `off`), `publish` (`auto`, `plain`, `sharded`, `both`),
    /// `key_template`, `signal_template`, `prefix`, `max_waiters`, `connect_timeout_ms`,
    /// `command_timeout_ms`, `protocol` (`resp3`, `resp2`), `client_name`, `user`,
    /// `password_file`, `password_env` (the name of a variable), `db`, and for TLS `ca`, `cert` and
    /// `key`; for failovers `max_lease_duration_ms`, `old_master_ms`, `quarantine` (`on`, `off`)
    /// and `replicas` (a number; with sentinels also `all` and `majority`); where the URL names
    /// sentinels, also `sentinel_user`, `sentinel_password_file` and `sentinel_password_env`.
    ///
    /// # Errors
    /// `Invalid` names the error in the URL, and never shows its password. For an unknown
    /// parameter it names the nearest known one. No connection was made.
    pub fn from_url(url: &str) -> Result<RedisOptions, LockError> {
        let parts = url::Parts::split(url)?;
        let access = Access {
            address: parts.address,
            user: parts.user,
            password: Secret::new(parts.password),
            db: parts.db.unwrap_or(0),
            ..Access::default()
        };
        let group = parts.group;
        let mut options = RedisOptions { access, group, ..RedisOptions::default() };
        for (key, value) in parts.parameters {
            if key == "db" && parts.db.is_some() {
                return Err(bad("names the database twice: name it as path or as `db`"));
            }
            options.set(&key, value)?;
        }
        options.validate()?;
        options.validate_publish()?;
        Ok(options)
    }

    /// Checks the settings, and that the dialect is this one.
    pub(crate) fn must_be(&self, dialect: Dialect) -> Result<(), LockError> {
        self.validate()?;
        if self.layout.dialect == dialect {
            return Ok(());
        }
        let engine = match self.layout.dialect {
            Dialect::Native => "RedisEngine",
            Dialect::Plain => "PlainEngine",
            Dialect::Redisson => "RedissonEngine",
        };
        let is = self.layout.dialect;
        let message = format!("is {is:?} here: make a `{engine}` of it, or call `connect`");
        Err(LockError::invalid(ENGINE, "dialect", message))
    }

    /// Checks that the URL names no cluster.
    pub(crate) fn must_be_of_one(&self) -> Result<(), LockError> {
        if !self.is_of_cluster() {
            return Ok(());
        }
        let message = "is of a cluster here: make a `ClusterEngine` of it, or call `connect`";
        Err(LockError::invalid(ENGINE, "url", message))
    }

    /// Sets the form of a lock's keys.
    #[must_use]
    pub fn with_dialect(mut self, dialect: Dialect) -> RedisOptions {
        self.layout.dialect = dialect;
        self
    }

    /// Sets the password, which the URL then does not need.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> RedisOptions {
        self.access.password = Secret::new(Some(password.into()));
        self
    }

    /// Sets the number of the database; 0 unless set.
    #[must_use]
    pub fn with_db(mut self, db: u32) -> RedisOptions {
        self.access.db = db;
        self
    }

    /// Sets the file with the authority that signed the server's certificate; unless set, the
    /// machine's own list is used.
    #[must_use]
    pub fn with_ca(mut self, file: impl Into<PathBuf>) -> RedisOptions {
        self.access.tls.ca = Some(file.into());
        self
    }

    /// Sets the files with the certificate that we show to the server, and with its key.
    #[must_use]
    pub fn with_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> RedisOptions {
        self.access.tls.cert = Some(certificate.into());
        self.access.tls.key = Some(key.into());
        self
    }

    /// Sets the ACL user; the password must be set too.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> RedisOptions {
        self.access.user = Some(user.into());
        self
    }

    /// Sets the source of streams, tasks and random numbers, for simulators. Unless set, they come
    /// from the network, the runtime and the operating system.
    #[must_use]
    pub fn with_environment(mut self, environment: Arc<dyn Environment>) -> RedisOptions {
        self.environment = Some(environment);
        self
    }
}

holdline_net::with_limits!(RedisOptions, limits, "5 s", "2 s");

impl RedisOptions {
    /// Returns whether the password would be sent unencrypted over a network.
    pub(crate) fn exposes_password(&self) -> bool {
        match &self.access.address {
            Address::Service { .. } => {
                let open = self.group.as_ref().is_some_and(SentinelGroup::is_open);
                open && self.access.password.is_set()
            }
            Address::Tcp { host, tls: false, .. } => {
                self.access.password.is_set() && !is_near(host)
            }
            Address::Cluster { seeds, tls: false } => {
                let near = seeds.iter().all(|(host, _)| is_near(host));
                self.access.password.is_set() && !near
            }
            _ => false,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.access.address
    }

    /// Returns whether the URL names a cluster.
    pub(crate) fn is_of_cluster(&self) -> bool {
        matches!(self.access.address, Address::Cluster { .. })
    }

    pub(crate) fn user(&self) -> Option<&str> {
        self.access.user.as_deref()
    }

    pub(crate) fn password(&self) -> &Secret {
        &self.access.password
    }

    pub(crate) fn db(&self) -> u32 {
        self.access.db
    }

    pub(crate) fn tls(&self) -> &TlsFiles {
        &self.access.tls
    }

    pub(crate) fn client_name(&self) -> Option<&str> {
        self.access.client_name.as_deref()
    }

    pub(crate) fn resp3(&self) -> bool {
        self.access.resp3
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.layout.dialect
    }

    pub(crate) fn key_template(&self) -> &str {
        match (&self.layout.key_template, self.layout.dialect) {
            (Some(template), _) => template,
            (None, Dialect::Redisson) => "{name}",
            (None, Dialect::Native | Dialect::Plain) => "holdline:{name}",
        }
    }

    pub(crate) fn publish(&self) -> Publish {
        self.layout.publish
    }

    pub(crate) fn fencing(&self) -> bool {
        self.layout.fencing
    }

    pub(crate) fn signal_template(&self) -> Option<&str> {
        self.layout.signal_template.as_deref()
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.layout.prefix
    }

    pub(crate) fn environment(&self) -> Option<Arc<dyn Environment>> {
        self.environment.clone()
    }
}

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions {
            access: Access::default(),
            limits: Limits::of_seconds(5, 2),
            layout: Layout::default(),
            group: None,
            failover: FailoverRules::default(),
            environment: None,
        }
    }
}

impl Default for Access {
    fn default() -> Access {
        Access {
            address: Address::Tcp { host: URL.here().host, port: URL.port, tls: false },
            user: None,
            password: Secret::default(),
            db: 0,
            tls: TlsFiles::default(),
            client_name: None,
            resp3: true,
        }
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            dialect: Dialect::Native,
            fencing: true,
            key_template: None,
            signal_template: None,
            prefix: "holdline:".to_owned(),
            publish: Publish::Auto,
        }
    }
}

fn bad(message: impl fmt::Display) -> LockError {
    URL.bad(message)
}

#[cfg(test)]
mod tests;
