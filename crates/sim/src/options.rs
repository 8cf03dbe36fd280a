//! The settings of a fake server.

use std::time::Duration;

/// The settings of a fake server.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    pub(crate) seed: u64,
    pub(crate) version: (u8, u8, u8),
    pub(crate) password: Option<String>,
    pub(crate) script_limit: u64,
    pub(crate) append_only: bool,
}

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions {
            seed: 0,
            version: (7, 0, 15),
            password: None,
            script_limit: 10_000_000,
            append_only: false,
        }
    }
}

impl RedisOptions {
    /// Sets the seed of everything random.
    pub fn with_seed(mut self, seed: u64) -> RedisOptions {
        self.seed = seed;
        self
    }

    /// Sets the version of Redis. From 8.4 on the server has `SET … IFEQ` and `DELEX`.
    pub fn with_version(mut self, major: u8, minor: u8, patch: u8) -> RedisOptions {
        self.version = (major, minor, patch);
        self
    }

    /// Sets the password of the default user.
    pub fn with_password(mut self, password: impl Into<String>) -> RedisOptions {
        self.password = Some(password.into());
        self
    }

    /// Sets how many instructions a script may take before it is an error.
    pub fn with_script_limit(mut self, instructions: u64) -> RedisOptions {
        self.script_limit = instructions;
        self
    }

    /// Sets whether INFO shows an append-only file.
    pub fn with_append_only(mut self, yes: bool) -> RedisOptions {
        self.append_only = yes;
        self
    }

    pub(crate) fn has_compare(&self) -> bool {
        self.version >= (8, 4, 0)
    }

    pub(crate) fn version_text(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("{major}.{minor}.{patch}")
    }
}

/// Converts seconds to a duration, if possible.
pub(crate) fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}
