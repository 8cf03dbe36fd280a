//! The parameters of a URL, one by one.

use holdline_core::LockError;
use holdline_net::secret::Secret;

use super::{Dialect, Publish, RedisOptions, URL, bad, group};
use crate::error::ENGINE;

pub(super) const PARAMETERS: [&str; 23] = [
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
    "max_lease_duration_ms",
    "max_waiters",
    "old_master_ms",
    "password_command",
    "password_env",
    "password_file",
    "prefix",
    "protocol",
    "publish",
    "quarantine",
    "replicas",
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
        if self.failover.set(key, &value)? || self.limits.set(URL, key, &value)? {
            return Ok(());
        }
        match key {
            "ca" | "cert" | "key" => self.access.tls.set(key, value),
            "client_name" => self.access.client_name = Some(value),
            "db" => self.access.db = URL.number(key, &value)?,
            "dialect" => {
                self.layout.dialect = URL.one_of(
                    key,
                    &value,
                    [
                        ("native", Dialect::Native),
                        ("plain", Dialect::Plain),
                        ("redisson", Dialect::Redisson),
                    ],
                )?;
            }
            "fencing" => {
                self.layout.fencing = URL.one_of(key, &value, [("on", true), ("off", false)])?;
            }
            "key_template" => self.layout.key_template = Some(value),
            "signal_template" => self.layout.signal_template = Some(value),
            "prefix" => self.layout.prefix = value,
            "publish" => {
                let known = [
                    ("auto", Publish::Auto),
                    ("plain", Publish::Plain),
                    ("sharded", Publish::Sharded),
                    ("both", Publish::Both),
                ];
                self.layout.publish = URL.one_of(key, &value, known)?;
            }
            "protocol" => {
                self.access.resp3 = URL.one_of(key, &value, [("resp3", true), ("resp2", false)])?;
            }
            "user" => self.access.user = Some(value),
            "password_command" | "password_env" | "password_file" => {
                self.access.password = Secret::from_parameter(ENGINE, key, &value)?;
            }
            of_group if group::PARAMETERS.contains(&of_group) => {
                let message = "is for servers that Sentinels monitor: write `redis+sentinel://`";
                return Err(bad(format_args!("has `{of_group}`, which {message}")));
            }
            // A password with a `?` of its own ends up here too.
            unknown => {
                let known = PARAMETERS.into_iter().chain(group::PARAMETERS);
                return Err(URL.unknown(unknown, known, &PARAMETERS));
            }
        }
        Ok(())
    }
}
