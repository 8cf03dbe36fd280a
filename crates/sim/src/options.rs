//! The settings of a fake server.

use std::time::Duration;

/// The version of Redis that the server has: Debian's.
pub(crate) const VERSION: &str = "7.0.15";

/// The settings of a fake server.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    pub(crate) seed: u64,
    pub(crate) password: Option<String>,
    pub(crate) script_limit: u64,
}

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions { seed: 0, password: None, script_limit: 10_000_000 }
    }
}

impl RedisOptions {
    /// Sets the seed of everything random.
    pub fn with_seed(mut self, seed: u64) -> RedisOptions {
        self.seed = seed;
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
}

/// Converts seconds to a duration, if possible.
pub(crate) fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}
