//! The options of a PostgreSQL engine, in code or in a URL.
//!
//! `postgres://user[:password]@host[:port]/database`, also `postgresql://`. A host that begins with
//! a `/`, percent-encoded or as `?host=`, is the directory of a unix socket. No password is ever
//! shown, neither by `Debug` nor in a message.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::LockError;
use holdline_net::limits::Limits;
use holdline_net::secret::Secret;
use holdline_net::tls::TlsFiles;
use holdline_net::url::Reader;

use crate::error::ENGINE;

mod url;

pub(crate) use url::Address;

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
/// How many bytes the server keeps of a name; it silently truncates longer ones.
const LONGEST_NAME: usize = 63;
const DEFAULT_SCHEMA: &str = "holdline";
const URL: Reader = Reader { engine: ENGINE, port: 5432 };
const PARAMETERS: [&str; 15] = [
    "application_name",
    "ca",
    "cert",
    "command_timeout_ms",
    "connect_timeout_ms",
    "dbname",
    "host",
    "key",
    "max_waiters",
    "password_command",
    "password_env",
    "password_file",
    "port",
    "schema",
    "sslmode",
];

/// How to reach a PostgreSQL server, and the schema with the locks.
///
/// ```
/// use holdline_postgres::PostgresOptions;
/// let options = PostgresOptions::from_url("postgres://app@db.example/orders?schema=locks")?;
/// # Ok::<(), holdline_core::LockError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    access: Access,
    limits: Limits,
    schema: String,
    application_name: String,
}

#[derive(Clone, Debug)]
struct Access {
    address: Address,
    user: String,
    password: Secret,
    database: String,
    tls: Option<TlsFiles>,
}

impl PostgresOptions {
    /// Reads a URL. Parameters: `schema` (`holdline` unless set), `sslmode` (`disable`, or
    /// `verify-full`, which `require` means here too), `ca`, `cert`, `key`, `application_name`,
    /// `password_file`, `password_env` (the name of a variable), `connect_timeout_ms`,
    /// `command_timeout_ms`, `max_waiters`, and as elsewhere `host`, `port` and `dbname`.
    ///
    /// # Errors
    /// `Invalid` says what is wrong with the URL, and never shows its password. For an unknown
    /// parameter it suggests the nearest spelling. No connection was made.
    pub fn from_url(url: &str) -> Result<PostgresOptions, LockError> {
        let parts = url::Parts::split(url)?;
        let database = parts.database.unwrap_or_else(|| parts.user.clone());
        let mut options = PostgresOptions {
            access: Access {
                address: parts.address,
                user: parts.user,
                password: Secret::new(parts.password),
                database,
                tls: None,
            },
            limits: Limits::of_seconds(5, 2),
            schema: DEFAULT_SCHEMA.to_owned(),
            application_name: "holdline".to_owned(),
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
            "application_name" => self.application_name = value,
            "ca" | "cert" | "key" => files.set(key, value),
            "dbname" => self.access.database = value,
            "password_command" | "password_env" | "password_file" => {
                self.access.password = Secret::from_parameter(ENGINE, key, &value)?;
            }
            "schema" => self.schema = value,
            "sslmode" => self.access.tls = ssl_mode(&value)?.then(TlsFiles::default),
            // Already read with the parts of the URL.
            "host" | "port" => {}
            "sslrootcert" | "sslcert" | "sslkey" => {
                let here = if key == "sslrootcert" { "ca" } else { &key[3..] };
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
        for (field, value) in [
            ("schema", &self.schema),
            ("user", &self.access.user),
            ("dbname", &self.access.database),
            ("application_name", &self.application_name),
        ] {
            let good = (1..=LONGEST_NAME).contains(&value.len());
            if !good || value.chars().any(char::is_control) {
                let message = format!("must have 1 to {LONGEST_NAME} bytes, none a control sign");
                return Err(LockError::invalid(ENGINE, field, message));
            }
        }
        if self.schema.contains(['\'', '$', '\\']) {
            let message = "may not have quotation marks ('), dollars or backslashes";
            return Err(LockError::invalid(ENGINE, "schema", message));
        }
        if self.schema.starts_with("pg_") {
            let message = "may not begin with `pg_`, which the server keeps for itself";
            return Err(LockError::invalid(ENGINE, "schema", message));
        }
        if let Some(files) = &self.access.tls {
            files.validate(URL)?;
        }
        if self.access.tls.is_some() && matches!(self.access.address, Address::Unix(..)) {
            return Err(bad("a unix socket has no TLS: leave `sslmode` out"));
        }
        Ok(())
    }

    /// Sets the password, so that it need not be in a URL.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> PostgresOptions {
        self.access.password = Secret::new(Some(password.into()));
        self
    }

    /// Sets the schema with the locks; `holdline` unless set.
    #[must_use]
    pub fn with_schema(mut self, schema: impl Into<String>) -> PostgresOptions {
        self.schema = schema.into();
        self
    }

    /// Sets the file with the CA of the server's certificate, and enables TLS. Without it, the
    /// machine's own list of CAs is used.
    #[must_use]
    pub fn with_ca(mut self, file: impl Into<PathBuf>) -> PostgresOptions {
        self.access.tls.get_or_insert_default().ca = Some(file.into());
        self
    }
}

holdline_net::with_limits!(PostgresOptions, limits, "5 s", "2 s");

impl PostgresOptions {
    /// Returns whether the password's proof would be sent unencrypted over a network.
    pub(crate) fn exposes_password(&self) -> bool {
        match &self.access.address {
            Address::Tcp { host, .. } if self.access.tls.is_none() => {
                let parsed = host.parse::<std::net::IpAddr>();
                let here = host == "localhost" || parsed.is_ok_and(|ip| ip.is_loopback());
                self.access.password.is_set() && !here
            }
            _ => false,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.access.address
    }

    /// Returns whether the server is reached by TCP.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.access.address, Address::Tcp { .. })
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

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    pub(crate) fn application_name(&self) -> &str {
        &self.application_name
    }
}

/// Returns whether an `sslmode` of other clients demands TLS. Opportunistic modes are refused.
fn ssl_mode(word: &str) -> Result<bool, LockError> {
    match word {
        "disable" => Ok(false),
        "require" | "verify-full" => Ok(true),
        "allow" | "prefer" | "verify-ca" => Err(bad(format!(
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
