//! The limits of an engine's requests: two times, and the number of waiters.

use std::time::Duration;

use holdline_core::LockError;

use crate::url::Reader;

const LONGEST: Duration = Duration::from_secs(60);
const MAX_WAITERS: usize = 100_000;

/// How long a request may take, and how many contenders may wait.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long connecting to one server may take, including the handshake.
    pub connect_timeout: Duration,
    /// How long one request may take.
    pub command_timeout: Duration,
    /// How many contenders may wait for one name.
    pub max_waiters: usize,
}

impl Limits {
    /// Returns limits of so many seconds, and 10,000 waiters.
    #[must_use]
    pub const fn of_seconds(connect: u64, command: u64) -> Limits {
        Limits {
            connect_timeout: Duration::from_secs(connect),
            command_timeout: Duration::from_secs(command),
            max_waiters: 10_000,
        }
    }

    /// Sets the limit that a parameter of the URL names. Returns false if it names none.
    ///
    /// # Errors
    /// `Invalid`: the value is not a number.
    pub fn set(&mut self, url: Reader, key: &str, value: &str) -> Result<bool, LockError> {
        match key {
            "command_timeout_ms" => self.command_timeout = url.millis(key, value)?,
            "connect_timeout_ms" => self.connect_timeout = url.millis(key, value)?,
            "max_waiters" => self.max_waiters = url.number(key, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Checks each limit. No timeout may be shorter than `shortest`.
    ///
    /// # Errors
    /// `Invalid` names the limit and its range.
    pub fn validate(&self, engine: &'static str, shortest: Duration) -> Result<(), LockError> {
        for (field, value) in
            [("connect_timeout", self.connect_timeout), ("command_timeout", self.command_timeout)]
        {
            if !(shortest..=LONGEST).contains(&value) {
                let message = format!("must be from {shortest:?} to {LONGEST:?}, not {value:?}");
                return Err(LockError::invalid(engine, field, message));
            }
        }
        if !(1..=MAX_WAITERS).contains(&self.max_waiters) {
            let message = format!("must be from 1 to {MAX_WAITERS}, not {}", self.max_waiters);
            return Err(LockError::invalid(engine, "max_waiters", message));
        }
        Ok(())
    }
}

/// Adds methods for the limits to an engine's options. `$field` is the path of their [`Limits`];
/// the texts are the defaults of both timeouts, for the docs.
#[macro_export]
macro_rules! with_limits {
    ($options:ident, $($field:ident).+, $connect:literal, $command:literal) => {
        impl $options {
            /// Sets the time limit of connecting to one server, including the handshake; the
            #[doc = concat!("default is ", $connect, ".")]
            #[must_use]
            pub fn with_connect_timeout(mut self, limit: ::std::time::Duration) -> $options {
                self.$($field).+.connect_timeout = limit;
                self
            }

            #[doc = concat!("Sets the time limit of one request; the default is ", $command, ".")]
            #[must_use]
            pub fn with_command_timeout(mut self, limit: ::std::time::Duration) -> $options {
                self.$($field).+.command_timeout = limit;
                self
            }

            /// Sets how many contenders may wait for one name; the default is 10,000.
            #[must_use]
            pub fn with_max_waiters(mut self, max_waiters: usize) -> $options {
                self.$($field).+.max_waiters = max_waiters;
                self
            }

            pub(crate) fn connect_timeout(&self) -> ::std::time::Duration {
                self.$($field).+.connect_timeout
            }

            pub(crate) fn command_timeout(&self) -> ::std::time::Duration {
                self.$($field).+.command_timeout
            }

            pub(crate) fn max_waiters(&self) -> usize {
                self.$($field).+.max_waiters
            }
        }
    };
}
