//! The parameters of a URL, one by one.

use std::path::Path;
use std::time::Duration;

use holdline_core::{LockError, nearest};
use holdline_net::secret::Secret;

use super::{Dialect, RedisOptions, bad, group, url};
use crate::error::ENGINE;
use crate::plain::LeaseFormat;

const PARAMETERS: [&str; 18] = [
    "ca",
    "cert",
    "client_name",
    "command_timeout_ms",
    "connect_timeout_ms",
    "db",
    "dialect",
    "fencing",
    "key",
    "key_template",
    "lease_format",
    "max_waiters",
    "password_env",
    "password_file",
    "prefix",
    "protocol",
    "signal_template",
    "user",
];

impl RedisOptions {
    /// Sets what a parameter names.
    pub(super) fn set(&mut self, key: &str, value: String) -> Result<(), LockError> {
        if let Some(group) = &mut self.group
            && group.set(key, &value)?
        {
            return Ok(());
        }
        match key {
            "ca" => self.access.tls.ca = Some(value.into()),
            "cert" => self.access.tls.cert = Some(value.into()),
            "key" => self.access.tls.key = Some(value.into()),
            "client_name" => self.access.client_name = Some(value),
            "command_timeout_ms" => self.limits.command_timeout = millis(key, &value)?,
            "connect_timeout_ms" => self.limits.connect_timeout = millis(key, &value)?,
            "db" => self.access.db = number(key, &value)?,
            "dialect" => {
                self.layout.dialect =
                    one_of(key, &value, [("native", Dialect::Native), ("plain", Dialect::Plain)])?;
            }
            "fencing" => self.layout.fencing = one_of(key, &value, [("on", true), ("off", false)])?,
            "key_template" => self.layout.key_template = value,
            "lease_format" => {
                let known = [
                    ("hex", LeaseFormat::Hex),
                    ("uuid", LeaseFormat::Uuid),
                    ("base64", LeaseFormat::Base64),
                ];
                self.layout.lease_format = one_of(key, &value, known)?;
            }
            "signal_template" => self.layout.signal_template = Some(value),
            "prefix" => self.layout.prefix = value,
            "max_waiters" => self.limits.max_waiters = number(key, &value)?,
            "protocol" => {
                self.access.resp3 = one_of(key, &value, [("resp3", true), ("resp2", false)])?;
            }
            "user" => self.access.user = Some(value),
            "password_env" => self.access.password = Secret::from_variable(ENGINE, &value)?,
            "password_file" => self.access.password = Secret::from_file(ENGINE, Path::new(&value))?,
            // A password with a `?` of its own ends up here.
            unknown if unknown.contains('@') => return Err(bad(url::AT_IN_QUERY)),
            of_group if group::PARAMETERS.contains(&of_group) => {
                let message = "is for servers that Sentinels look after: write `redis+sentinel://`";
                return Err(bad(format_args!("has `{of_group}`, which {message}")));
            }
            unknown => {
                let meant = match nearest(unknown, PARAMETERS.into_iter().chain(group::PARAMETERS))
                {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => format!("known are {}", PARAMETERS.join(", ")),
                };
                return Err(bad(format!("has the unknown parameter `{unknown}`: {meant}")));
            }
        }
        Ok(())
    }
}

pub(super) fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, LockError> {
    if value.contains('@') {
        return Err(bad(url::AT_IN_QUERY));
    }
    value.parse().map_err(|_| bad(format!("has `{key}={value}`: must be a whole number")))
}

pub(super) fn millis(key: &str, value: &str) -> Result<Duration, LockError> {
    number(key, value).map(Duration::from_millis)
}

fn one_of<T: Copy, const N: usize>(
    key: &str,
    value: &str,
    words: [(&str, T); N],
) -> Result<T, LockError> {
    if value.contains('@') {
        return Err(bad(url::AT_IN_QUERY));
    }
    let found = words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        bad(format!("has `{key}={value}`: must be {}", known.join(" or ")))
    })
}
