//! The settings that engines of several servers have in common: servers, credentials, limits.

use std::time::Duration;

use holdline_core::LockError;

use crate::limits::Limits;
use crate::secret::Secret;
use crate::url::{Reader, Server};

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);
const PARAMETERS: [&str; 7] = [
    "command_timeout_ms",
    "connect_timeout_ms",
    "max_waiters",
    "password_command",
    "password_env",
    "password_file",
    "user",
];

/// The parameters of a URL, in its order.
pub type Parameters = Vec<(String, String)>;

/// The common settings. `Debug` does not show the password.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// The servers, in the order of the URL.
    pub members: Vec<Server>,
    /// The user, if the servers ask for one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Secret,
    /// The limits of requests.
    pub limits: Limits,
}

impl ClusterSettings {
    /// Returns the defaults: one server on this machine, no user, 3 s, 10,000 waiters.
    pub fn new(url: Reader) -> ClusterSettings {
        ClusterSettings {
            members: vec![url.here()],
            user: None,
            password: Secret::default(),
            limits: Limits::of_seconds(3, 3),
        }
    }

    /// Reads the credentials of a URL, from the text after its scheme. Returns the server part and
    /// the parameters, which the engine sets or passes to [`set`](Self::set).
    ///
    /// # Errors
    /// As [`Reader::split`].
    pub fn read<'a>(
        &mut self,
        url: Reader,
        rest: &'a str,
    ) -> Result<(&'a str, Parameters), LockError> {
        let (credentials, parameters) = url.split(rest)?;
        self.user = credentials.user;
        self.password = Secret::new(credentials.password);
        Ok((credentials.rest, parameters))
    }

    /// Sets the field that a parameter of the URL names. `own` are the parameters that only this
    /// engine has.
    ///
    /// # Errors
    /// `Invalid`: the value is wrong for this parameter, or the parameter is unknown.
    pub fn set(
        &mut self,
        url: Reader,
        own: &[&str],
        key: &str,
        value: &str,
    ) -> Result<(), LockError> {
        if self.limits.set(url, key, value)? {
            return Ok(());
        }
        match key {
            "password_command" | "password_env" | "password_file" => {
                self.password = Secret::from_parameter(url.engine, key, value)?;
            }
            "user" => self.user = Some(value.to_owned()),
            unknown => {
                let mut known = [own, &PARAMETERS].concat();
                known.sort_unstable();
                return Err(url.unknown(unknown, known.iter().copied(), &known));
            }
        }
        Ok(())
    }

    /// Checks the settings against each other.
    ///
    /// # Errors
    /// `Invalid` names the setting and its limits.
    pub fn validate(&self, engine: &'static str) -> Result<(), LockError> {
        self.limits.validate(engine, SHORTEST_TIMEOUT)?;
        let message = match (&self.user, self.password.is_set()) {
            (Some(_), false) => {
                "needs a password: in the URL, by `password_file`, `password_env`, or in code"
            }
            (None, true) => "is missing: the servers accept no password alone",
            _ => return Ok(()),
        };
        Err(LockError::invalid(engine, "user", message))
    }

    /// Returns user and password for a new connection; `None` without a user. The password is read
    /// again, see [`Secret::read`].
    pub async fn credentials(&self) -> Option<(String, String)> {
        Some((self.user.clone()?, self.password.read().await?))
    }

    /// Returns whether a password would be sent to another machine in clear text without TLS.
    pub fn needs_tls(&self) -> bool {
        self.password.is_set() && !self.members.iter().all(Server::is_here)
    }
}

/// Adds methods for the common settings to an engine's options, which have them in a field
/// `cluster`.
#[macro_export]
macro_rules! with_cluster_settings {
    ($options:ident) => {
        impl $options {
            /// Sets user and password, which then need not be in the URL.
            #[must_use]
            pub fn with_credentials(
                mut self,
                user: impl Into<String>,
                password: impl Into<String>,
            ) -> $options {
                self.cluster.user = Some(user.into());
                self.cluster.password = $crate::secret::Secret::new(Some(password.into()));
                self
            }
        }

        $crate::with_limits!($options, cluster.limits, "3 s", "3 s");
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: Reader = Reader { engine: "test", port: 7 };

    #[test]
    fn an_unknown_parameter_is_refused_with_the_list_of_known_ones() {
        let mut settings = ClusterSettings::new(URL);
        let (rest, parameters) =
            settings.read(URL, "ann:pw@a,b?max_waiters=9&x=y").expect("a good URL");
        assert_eq!((rest, settings.user.as_deref()), ("a,b", Some("ann")));
        assert_eq!(settings.password.last().as_deref(), Some("pw"));
        let mut set = |(key, value): &(String, String)| settings.set(URL, &["own"], key, value);
        assert!(set(&parameters[0]).is_ok());
        let error = set(&parameters[1]).expect_err("unknown").to_string();
        assert!(error.contains("max_waiters, own, password_command, password_env"), "{error}");
        assert_eq!(settings.limits.max_waiters, 9);
        assert!(settings.validate("test").is_ok() && !format!("{settings:?}").contains("pw"));
        assert!(!settings.needs_tls(), "the only member is this machine");
        settings.members = URL.servers(rest).expect("two servers");
        assert!(settings.needs_tls());
    }

    #[test]
    fn settings_that_contradict_each_other_are_invalid() {
        for (key, value, field) in [
            ("connect_timeout_ms", "9", "connect_timeout"),
            ("command_timeout_ms", "60001", "command_timeout"),
            ("max_waiters", "0", "max_waiters"),
            ("max_waiters", "100001", "max_waiters"),
            ("user", "ann", "needs a password"),
        ] {
            let mut settings = ClusterSettings::new(URL);
            settings.set(URL, &[], key, value).expect("a good value");
            let error = settings.validate("test").expect_err("out of range").to_string();
            assert!(error.contains(field), "{key}={value}: {error}");
        }
        let password = Secret::new(Some("pw".to_owned()));
        let nobody = ClusterSettings { password, ..ClusterSettings::new(URL) };
        let error = nobody.validate("test").expect_err("no user").to_string();
        assert!(error.contains("no password alone"), "{error}");
    }
}
