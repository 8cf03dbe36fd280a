//! The options of a PostgreSQL engine, in code or in a URL.
//!
//! `postgres://user[:password]@host[:port]/database`, also `postgresql://`. A host that begins with
//! a `/`, percent-encoded or as `?host=`, is the directory of a unix socket. Of several hosts,
//! standbys are skipped. No password is ever shown, neither by `Debug` nor in a message.
//!
//! The parameters of libpq mean what they mean there; one that this engine does not have is refused
//! with what to write instead.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use holdline_core::LockError;
use holdline_net::limits::Limits;
use holdline_net::secret::Secret;
use holdline_net::tls::{TlsFiles, Verification};
use holdline_net::url::Reader;
use tokio_postgres::config::ChannelBinding;

use crate::error::ENGINE;

mod libpq;
mod url;

pub(crate) use url::Address;

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
/// How many bytes the server keeps of a name; it silently truncates longer ones.
const LONGEST_NAME: usize = 63;
const DEFAULT_SCHEMA: &str = "holdline";
const URL: Reader = Reader { engine: ENGINE, port: 5432 };
const PARAMETERS: [&str; 24] = [
    "application_name",
    "ca",
    "cert",
    "channel_binding",
    "command_timeout_ms",
    "connect_timeout",
    "connect_timeout_ms",
    "dbname",
    "host",
    "hostaddr",
    "key",
    "max_waiters",
    "options",
    "password_command",
    "password_env",
    "password_file",
    "port",
    "schema",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "user",
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
    /// At least one.
    addresses: Vec<Address>,
    /// Where the only host is, without asking the name service.
    host_address: Option<IpAddr>,
    user: String,
    password: Secret,
    database: String,
    tls: Option<TlsFiles>,
    channel_binding: ChannelBinding,
    /// The startup parameter `options`, such as `-c name=value`.
    startup: Option<String>,
}

impl PostgresOptions {
    /// Reads a URL. Parameters: `schema` (`holdline` unless set), `sslmode` (`disable`, `require`,
    /// `verify-ca` or `verify-full`), `ca`, `cert`, `key`, `application_name`, `password_file`,
    /// `password_env` (the name of a variable), `connect_timeout_ms`, `command_timeout_ms`,
    /// `max_waiters`, and of libpq's `host`, `hostaddr`, `port`, `dbname`, `user`, `options`,
    /// `connect_timeout`, `sslrootcert`, `sslcert`, `sslkey`, `target_session_attrs`
    /// (`read-write`, `primary`, `any`) and `channel_binding` (`disable`, `prefer`, `require`).
    ///
    /// Without a password in the URL, that of the variable `PGPASSWORD` is used, or of the password
    /// file: `PGPASSFILE`, or `~/.pgpass`.
    ///
    /// # Errors
    /// `Invalid` says what is wrong with the URL, and never shows its password. For an unknown
    /// parameter it suggests the nearest spelling. No connection was made.
    pub fn from_url(url: &str) -> Result<PostgresOptions, LockError> {
        let parts = url::Parts::split(url)?;
        let database = parts.database.unwrap_or_else(|| parts.user.clone());
        let mut options = PostgresOptions {
            access: Access {
                addresses: parts.addresses,
                host_address: None,
                user: parts.user,
                password: Secret::new(parts.password),
                database,
                tls: None,
                channel_binding: ChannelBinding::Prefer,
                startup: None,
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
            Some(TlsFiles { verification, .. }) => {
                // As in libpq, `require` checks the authority if one is named.
                let named = files.ca.is_some() && *verification == Verification::Off;
                files.verification = if named { Verification::Authority } else { *verification };
                options.access.tls = Some(files);
            }
            None if files != TlsFiles::default() => {
                return Err(bad("`ca`, `cert` and `key` need TLS: add `sslmode=verify-full`"));
            }
            None => {}
        }
        if !options.access.password.is_set() {
            options.access.password = options.password_of_libpq()?;
        }
        options.validate()?;
        Ok(options)
    }

    /// Returns the password that libpq would use.
    fn password_of_libpq(&self) -> Result<Secret, LockError> {
        if std::env::var_os("PGPASSWORD").is_some_and(|value| !value.is_empty()) {
            return Secret::from_variable(ENGINE, "PGPASSWORD");
        }
        let find = |address| libpq::password(address, &self.access.database, &self.access.user);
        Ok(Secret::new(self.access.addresses.iter().find_map(find)))
    }

    fn set(&mut self, key: &str, value: String, files: &mut TlsFiles) -> Result<(), LockError> {
        if self.limits.set(URL, key, &value)? {
            return Ok(());
        }
        match key {
            "application_name" => self.application_name = value,
            "ca" | "cert" | "key" => files.set(key, value),
            "channel_binding" => {
                self.access.channel_binding = libpq::channel_binding(&value)?;
            }
            "connect_timeout" => {
                self.limits.connect_timeout = Duration::from_secs(URL.number(key, &value)?);
            }
            "dbname" => self.access.database = value,
            "hostaddr" => self.access.host_address = Some(libpq::host_address(&value)?),
            "options" => self.access.startup = Some(value),
            "password_command" | "password_env" | "password_file" => {
                self.access.password = Secret::from_parameter(ENGINE, key, &value)?;
            }
            "schema" => self.schema = value,
            "sslmode" => {
                let verification = ssl_mode(&value)?;
                self.access.tls = verification
                    .map(|verification| TlsFiles { verification, ..TlsFiles::default() });
            }
            // The machine's own list of authorities.
            "sslrootcert" if value == "system" => {}
            "sslrootcert" => files.set("ca", value),
            "sslcert" => files.set("cert", value),
            "sslkey" => files.set("key", value),
            "target_session_attrs" => libpq::session_attributes(&value)?,
            // Already read with the parts of the URL.
            "host" | "port" | "user" => {}
            unknown => {
                let of_libpq = libpq::refusal(unknown);
                return Err(
                    of_libpq.unwrap_or_else(|| URL.unknown(unknown, PARAMETERS, &PARAMETERS))
                );
            }
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
        if self.access.tls.is_none() && self.requires_binding() {
            return Err(bad(
                "has `channel_binding=require`, which needs TLS: add `sslmode=verify-full`",
            ));
        }
        let is_unix = |address: &Address| matches!(address, Address::Unix(..));
        if self.access.tls.is_some() && self.access.addresses.iter().any(is_unix) {
            return Err(bad("a unix socket has no TLS: leave `sslmode` out"));
        }
        if self.access.host_address.is_some() && self.access.addresses.len() > 1 {
            return Err(bad("has a `hostaddr` and several hosts: leave one of the two out"));
        }
        if self.access.startup.as_ref().is_some_and(|text| text.contains('\0')) {
            return Err(bad("has `options` with a byte 0"));
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
        let is_elsewhere = |address: &Address| match address {
            Address::Tcp { host, .. } => {
                let parsed = host.parse::<IpAddr>();
                !(host == "localhost" || parsed.is_ok_and(|ip| ip.is_loopback()))
            }
            Address::Unix(..) => false,
        };
        self.access.tls.is_none()
            && self.access.password.is_set()
            && self.access.addresses.iter().any(is_elsewhere)
    }

    /// Returns the address of the server, or of the first one if there are several.
    pub(crate) fn address(&self) -> &Address {
        &self.access.addresses[0]
    }

    /// Returns the addresses in the order in which they are tried.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.access.addresses
    }

    /// Returns all addresses as text.
    pub(crate) fn place(&self) -> String {
        self.access.addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
    }

    /// The same settings for one of the addresses alone.
    pub(crate) fn only(&self, address: &Address) -> PostgresOptions {
        let mut options = self.clone();
        options.access.addresses = vec![address.clone()];
        options
    }

    /// Returns where a host is: at its `hostaddr`, or what the name service says.
    pub(crate) fn host_to_dial<'a>(&self, host: &'a str) -> Cow<'a, str> {
        match self.access.host_address {
            Some(address) => Cow::Owned(address.to_string()),
            None => Cow::Borrowed(host),
        }
    }

    /// Returns whether TLS is used without a check of who the server is.
    pub(crate) fn trusts_any_server(&self) -> bool {
        let tls = self.access.tls.as_ref();
        tls.is_some_and(|files| files.verification == Verification::Off)
    }

    /// Returns the startup parameter `options`.
    pub(crate) fn startup(&self) -> Option<&str> {
        self.access.startup.as_deref()
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

    pub(crate) fn channel_binding(&self) -> ChannelBinding {
        self.access.channel_binding
    }

    /// Returns whether a sign-in without channel binding is refused.
    pub(crate) fn requires_binding(&self) -> bool {
        self.access.channel_binding == ChannelBinding::Require
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

/// Returns how much an `sslmode` checks, as in libpq; `None` is without TLS. Opportunistic modes
/// are refused: an attacker on the way chooses for them.
fn ssl_mode(word: &str) -> Result<Option<Verification>, LockError> {
    match word {
        "disable" => Ok(None),
        "require" => Ok(Some(Verification::Off)),
        "verify-ca" => Ok(Some(Verification::Authority)),
        "verify-full" => Ok(Some(Verification::Full)),
        "allow" | "prefer" => Err(bad(format!(
            "has `sslmode={word}`, which may send everything in clear text: write `verify-full`, \
             `require` (encrypted, but the server is not checked) or `disable`"
        ))),
        _ => Err(bad("has an unknown `sslmode`: write `verify-full` or `disable`")),
    }
}

fn bad(message: impl fmt::Display) -> LockError {
    URL.bad(message)
}

#[cfg(test)]
mod tests;
