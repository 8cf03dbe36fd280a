//! The options of the local engine, in code or in a URL.
//!
//! `local:` stands for the user's own directory, `local:///srv/locks` or `local:?dir=/srv/locks`
//! for an explicit one that several users may share.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdline_core::{
    AuditTrail, Capabilities, Clock, ClockKind, Expiry, LockError, accept_url, nearest,
    percent_decode,
};

use crate::directory;
use crate::error::{ENGINE, Fault};
use crate::keys::Files;
use crate::user;

const SCHEME: &str = "local:";
const PARAMETERS: [&str; 3] = ["dir", "max_waiters", "transaction_limit_ms"];
const LIMITS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(600);
const MAX_WAITERS: usize = 100_000;

/// The settings of a local engine.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    dir: Option<PathBuf>,
    max_waiters: usize,
    transaction_limit: Duration,
    clock: Option<Arc<dyn Clock>>,
}

impl LocalOptions {
    /// Reads the settings from a URL: `local:`, `local:///DIRECTORY`, `local:?dir=DIRECTORY`, with
    /// the parameters `dir`, `max_waiters` and `transaction_limit_ms`.
    ///
    /// # Errors
    /// `Invalid`: the message says what is wrong with the URL; for an unknown parameter it suggests
    /// the nearest known one. Nothing was opened.
    pub fn from_url(url: &str) -> Result<LocalOptions, LockError> {
        let url = &*accept_url(url).map_err(bad)?;
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| bad("must begin with `local:`"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = LocalOptions::default();
        if !path.is_empty() {
            options.dir = Some(directory_in(path)?);
        }
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            options.set(key, value)?;
        }
        options.validate()?;
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), LockError> {
        match key {
            "dir" if self.dir.is_some() => {
                return Err(bad("names two directories: name one, as path or as `dir`"));
            }
            "dir" => self.dir = Some(absolute(value)?),
            "max_waiters" => self.max_waiters = number(key, value)?,
            "transaction_limit_ms" => {
                self.transaction_limit = Duration::from_millis(number(key, value)?);
            }
            unknown => {
                let meant = match nearest(unknown, PARAMETERS) {
                    Some(known) => format!("did you mean `{known}`?"),
                    None => format!("known are {}", PARAMETERS.join(", ")),
                };
                // A text that is spelled like no parameter may be another program's, with a
                // password.
                let is_word = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '-');
                let is_name = !value.is_empty() && unknown.chars().all(is_word);
                let unknown = if is_name { unknown } else { "…" };
                return Err(bad(format!("has the unknown parameter `{unknown}`: {meant}")));
            }
        }
        Ok(())
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// `Invalid` names the wrong setting and its range.
    pub fn validate(&self) -> Result<(), LockError> {
        if !(1..=MAX_WAITERS).contains(&self.max_waiters) {
            let message = format!("must be from 1 to {MAX_WAITERS}, not {}", self.max_waiters);
            return Err(LockError::invalid(ENGINE, "max_waiters", message));
        }
        if !LIMITS.contains(&self.transaction_limit) {
            let message = format!("must be from 10ms to 10min, not {:?}", self.transaction_limit);
            return Err(LockError::invalid(ENGINE, "transaction_limit", message));
        }
        if self.dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            return Err(LockError::invalid(ENGINE, "dir", "must be an absolute path"));
        }
        Ok(())
    }

    /// Sets the directory, which several users may share; the user's own one unless set.
    ///
    /// If it does not exist, it is created for its creator alone. Files in it are open to the users
    /// to whom the directory is open; all of them can acquire and free its locks.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> LocalOptions {
        self.dir = Some(dir.into());
        self
    }

    /// Sets how many contenders may queue for one name; 10,000 unless set.
    #[must_use]
    pub fn with_max_waiters(mut self, max_waiters: usize) -> LocalOptions {
        self.max_waiters = max_waiters;
        self
    }

    /// Sets how long a command waits while another process is inside a transaction; 5 s unless set.
    /// A transaction takes microseconds, so such a long wait means that a process was stopped in
    /// the middle.
    #[must_use]
    pub fn with_transaction_limit(mut self, limit: Duration) -> LocalOptions {
        self.transaction_limit = limit;
        self
    }

    /// Sets the clock that measures leases, for tests. All processes that share the directory must
    /// use the same clock; unless set, it is the machine's monotonic clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> LocalOptions {
        self.clock = Some(clock);
        self
    }

    /// Returns the directory, explicit or the user's own.
    ///
    /// # Errors
    /// `Refused` if the user has no passwd entry with a home directory.
    pub fn directory(&self) -> Result<PathBuf, LockError> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => user::directory().map_err(Fault::into_error),
        }
    }

    /// Returns whether the directory has a store, without creating one: for programs that only
    /// read. Another process may create it a moment later.
    ///
    /// # Errors
    /// `Refused` as for [`LocalOptions::directory`]. A directory that cannot be inspected, or in
    /// which no store can be created, counts as existing, so that opening it reports why. So does a
    /// link in place of the database that leads nowhere.
    pub fn is_made(&self) -> Result<bool, LockError> {
        let directory = self.directory()?;
        let database = Files::below(&directory).database;
        let absent = |error: std::io::Error| matches!(error.kind(), std::io::ErrorKind::NotFound);
        let absent = std::fs::symlink_metadata(database).err().is_some_and(absent);
        Ok(!absent || !directory::can_be_made(&directory))
    }

    /// Returns the capabilities of an engine with these options. The identity is empty, since it
    /// depends on the store.
    pub fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::reference(ENGINE, String::new());
        capabilities.live = true;
        capabilities.latch = true;
        capabilities.audit = AuditTrail::Store;
        capabilities.expiry = Expiry::Lease;
        capabilities.clock = ClockKind::Monotonic;
        capabilities.max_waiters = self.max_waiters;
        capabilities
    }

    pub(crate) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    pub(crate) fn transaction_limit(&self) -> Duration {
        self.transaction_limit
    }

    pub(crate) fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.clock.clone()
    }
}

impl Default for LocalOptions {
    fn default() -> LocalOptions {
        LocalOptions {
            dir: None,
            max_waiters: 10_000,
            transaction_limit: Duration::from_secs(5),
            clock: None,
        }
    }
}

fn bad(message: impl std::fmt::Display) -> LockError {
    LockError::invalid(ENGINE, "url", message)
}

/// The directory in `/srv/locks`, `//localhost/srv/locks` or `///srv/locks`.
fn directory_in(path: &str) -> Result<PathBuf, LockError> {
    let path = match path.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => path,
    };
    if !path.starts_with('/') {
        return Err(bad(
            "must name an absolute directory of this machine, as in `local:///srv/locks`",
        ));
    }
    absolute(path)
}

fn absolute(encoded: &str) -> Result<PathBuf, LockError> {
    let path = PathBuf::from(OsString::from_vec(decode(encoded)?));
    if path.is_absolute() && !path.as_os_str().as_encoded_bytes().contains(&0) {
        return Ok(path);
    }
    Err(bad("must name the directory by an absolute path, as in `local:?dir=/srv/locks`"))
}

/// Decodes percent-encoding. Paths are bytes, so the result need not be UTF-8.
fn decode(encoded: &str) -> Result<Vec<u8>, LockError> {
    percent_decode(encoded).ok_or_else(|| bad("has a `%` without two hex digits after it"))
}

fn number<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, LockError> {
    value.parse().map_err(|_| bad(format!("has a `{key}` that is no whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, dir) in [
            ("local:", None),
            ("local:?", None),
            ("local:///srv/locks", Some("/srv/locks")),
            ("local:/srv/locks", Some("/srv/locks")),
            ("local://localhost/srv/locks", Some("/srv/locks")),
            ("local:?dir=/srv/a%20b%25", Some("/srv/a b%")),
            ("local:///srv/%C3%A9?max_waiters=7&transaction_limit_ms=250", Some("/srv/é")),
        ] {
            let options = LocalOptions::from_url(url).expect(url);
            assert_eq!(options.dir, dir.map(PathBuf::from), "{url}");
        }
        let url = "local:?max_waiters=7&transaction_limit_ms=250";
        let options = LocalOptions::from_url(url).expect("read");
        assert_eq!(options.max_waiters, 7);
        assert_eq!(options.transaction_limit, Duration::from_millis(250));
    }

    #[test]
    fn errors_name_the_mistake() {
        for (url, says) in [
            ("locl:", "must begin with"),
            ("local:srv", "absolute"),
            ("local://server/srv", "absolute"),
            ("local:?dir=srv", "absolute"),
            ("local:?dir=", "absolute"),
            ("local:?dir=/a%00b", "absolute"),
            ("local:?dir=/a%2", "hex digits"),
            ("local:///a%zz", "hex digits"),
            ("local:///a?dir=/b", "two directories"),
            ("local:?dri=/a", "did you mean `dir`?"),
            ("local:?max-waiters=3", "did you mean `max_waiters`?"),
            ("local:?password=x", "known are dir"),
            ("local:?max_waiters=many", "whole number"),
            ("local:?max_waiters=0", "max_waiters: must be from 1"),
            ("local:?transaction_limit_ms=0", "transaction_limit: must be from 10ms"),
            ("local:?transaction_limit_ms=18446744073709551615", "transaction_limit: must be"),
        ] {
            let error = LocalOptions::from_url(url).expect_err(url).to_string();
            assert!(error.contains(says), "{url}: {error}");
        }
    }
}
