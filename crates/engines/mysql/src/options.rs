//! The options of a MariaDB engine, in code or in a URL.
//!
//! `mysql://user[:password]@host[:port]/database`, also `mariadb://`. A unix socket is named by
//! `?socket=`. No password is ever shown, neither by `Debug` nor in a message.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::LockError;
use holdline_net::limits::Limits;
use holdline_net::secret::Secret;
use holdline_net::tls::TlsFiles;
use holdline_net::url::Reader;

use crate::error::ENGINE;
use crate::keys::LONGEST_PREFIX;

mod url;

pub(crate) use url::Address;

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
/// How many characters the server takes for a name.
const LONGEST_NAME: usize = 64;
const URL: Reader = Reader { engine: ENGINE, port: 3306 };
const DEFAULT_PREFIX: &str = "holdline_";
const PARAMETERS: [&str; 12] = [
    "ca",
    "cert",
    "command_timeout_ms",
    "connect_timeout_ms",
    "key",
    "max_waiters",
    "password_command",
    "password_env",
    "password_file",
    "prefix",
    "socket",
    "sslmode",
];

/// How to reach a MariaDB server, and the tables with the locks.
///
/// ```
/// use holdline_mysql::MysqlOptions;
/// let options = MysqlOptions::from_url("mysql://app@db.example/orders?prefix=locks_")?;
/// # Ok::<(), holdline_core::LockError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MysqlOptions {
    access: Access,
    limits: Limits,
    prefix: String,
}

#[derive(Clone, Debug)]
struct Access {
    address: Address,
    user: String,
    password: Secret,
    database: String,
    tls: Option<TlsFiles>,
}

impl MysqlOptions {
    /// Reads a URL. Parameters: `prefix` of the tables (`holdline_` unless set), `socket`,
    /// `sslmode` (`disable`, or `verify-full`, which `require` means here too), `ca`, `cert`,
    /// `key`, `password_file`, `password_env` (the name of a variable), `connect_timeout_ms`,
    /// `command_timeout_ms` and `max_waiters`.
    ///
    /// # Errors
    /// `Invalid` says what is wrong with the URL, and never shows its password. For an unknown
    /// parameter it suggests the nearest spelling. No connection was made.
    pub fn from_url(url: &str) -> Result<MysqlOptions, LockError> {
        let parts = url::Parts::split(url)?;
        let mut options = MysqlOptions {
            access: Access {
                address: parts.address,
                user: parts.user,
                password: Secret::new(parts.password),
                database: parts.database,
                tls: None,
            },
            limits: Limits::of_seconds(5, 2),
            prefix: DEFAULT_PREFIX.to_owned(),
        };
        let mut files = TlsFiles::default();
        for (key, value) in parts.parameters {
            options.set(&key, value, &mut files)?;
        }
        match &mut options.access.tls {
            Some(wanted) => *wanted = files,
            None if files != TlsFiles::default() => {
                return Err(bad("`ca`, `cert` and `key` need TLS: add `sslmode=verify-full`"));
            }
            None => {}
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: String, files: &mut TlsFiles) -> Result<(), LockError> {
        if self.limits.set(URL, key, &value)? {
            return Ok(());
        }
        match key {
            "ca" | "cert" | "key" => files.set(key, value),
            "password_command" | "password_env" | "password_file" => {
                self.access.password = Secret::from_parameter(ENGINE, key, &value)?;
            }
            "prefix" => self.prefix = value,
            "sslmode" => self.access.tls = ssl_mode(&value)?.then(TlsFiles::default),
            // Already read with the parts of the URL.
            "socket" => {}
            "ssl-mode" | "ssl-ca" | "ssl-cert" | "ssl-key" => {
                let here = if key == "ssl-mode" { "sslmode" } else { &key[4..] };
                return Err(bad(format!("has `{key}`, which is called `{here}` here")));
            }
            unknown => return Err(URL.unknown(unknown, PARAMETERS, &PARAMETERS)),
        }
        Ok(())
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the wrong setting and its limits.
    pub fn validate(&self) -> Result<(), LockError> {
        self.limits.validate(ENGINE, SHORTEST_TIMEOUT)?;
        for (field, value) in [("user", &self.access.user), ("database", &self.access.database)] {
            let length = value.chars().count();
            if !(1..=LONGEST_NAME).contains(&length) || value.chars().any(char::is_control) {
                let message =
                    format!("must have 1 to {LONGEST_NAME} characters, none a control sign");
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let prefix = &self.prefix;
        if !(1..=LONGEST_PREFIX).contains(&prefix.len()) || !prefix.chars().all(plain) {
            let message =
                format!("must have 1 to {LONGEST_PREFIX} of the letters a to z, digits and `_`");
            return Err(LockError::invalid(ENGINE, "prefix", message));
        }
        if !prefix.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(LockError::invalid(ENGINE, "prefix", "must begin with a letter"));
        }
        if let Some(files) = &self.access.tls {
            files.validate(URL)?;
        }
        if self.access.tls.is_some() && matches!(self.access.address, Address::Unix(_)) {
            return Err(bad("a unix socket has no TLS: leave `sslmode` out"));
        }
        Ok(())
    }

    /// Sets the password, so that it need not be in a URL.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> MysqlOptions {
        self.access.password = Secret::new(Some(password.into()));
        self
    }

    /// Sets the prefix of the tables; `holdline_` unless set.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> MysqlOptions {
        self.prefix = prefix.into();
        self
    }

    /// Sets the file with the CA of the server's certificate, and enables TLS. Without it, the
    /// machine's own list of CAs is used.
    #[must_use]
    pub fn with_ca(mut self, file: impl Into<PathBuf>) -> MysqlOptions {
        self.access.tls.get_or_insert_default().ca = Some(file.into());
        self
    }
}

holdline_net::with_limits!(MysqlOptions, limits, "5 s", "2 s");

impl MysqlOptions {
    /// Returns whether the password's proof would be sent unencrypted over a network.
    pub(crate) fn exposes_password(&self) -> bool {
        match &self.access.address {
            Address::Tcp(server) if self.access.tls.is_none() => {
                self.access.password.is_set() && !server.is_here()
            }
            _ => false,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.access.address
    }

    pub(crate) fn user(&self) -> &str {
        &self.access.user
    }

    pub(crate) fn password(&self) -> &Secret {
        &self.access.password
    }

    pub(crate) fn database(&self) -> &str {
        &self.access.database
    }

    pub(crate) fn tls(&self) -> Option<&TlsFiles> {
        self.access.tls.as_ref()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

/// Returns whether an `sslmode` of other clients demands TLS. Opportunistic modes are refused.
fn ssl_mode(word: &str) -> Result<bool, LockError> {
    match word {
        "disable" => Ok(false),
        "require" | "required" | "verify-full" => Ok(true),
        "allow" | "prefer" | "preferred" | "verify-ca" => Err(bad(format!(
            "has `sslmode={word}`, which does not check who the server is: write \
                 `verify-full`, or `disable`"
        ))),
        _ => Err(bad("has an unknown `sslmode`: write `verify-full` or `disable`")),
    }
}

fn bad(message: impl fmt::Display) -> LockError {
    URL.bad(message)
}

#[cfg(test)]
mod tests;
