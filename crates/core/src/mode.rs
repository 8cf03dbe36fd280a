//! The modes in which a name is held.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The largest number of permits that a semaphore may have.
pub const MAX_PERMITS: u32 = 1_000_000;

/// The mode in which a contender requests a name.
///
/// Exclusive and shared may be mixed on one name. Permits may not be mixed with them, and while a
/// semaphore is held or queued for, all its contenders must name the same total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// One holder alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// `count` of the `of` permits of a semaphore.
    Permits {
        /// How many permits are requested, from 1 to `of`.
        count: u32,
        /// How many the semaphore has, from 1 to [`MAX_PERMITS`].
        of: u32,
    },
}

/// Which lock an exclusive request is about. Only a store with another form for each, such as
/// Redisson's, distinguishes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// A mutex.
    #[default]
    Mutex,
    /// A lock that others hold shared: exclusive means to write.
    ReadWrite,
}

impl LockKind {
    /// Returns whether it is a mutex.
    pub fn is_mutex(&self) -> bool {
        *self == LockKind::Mutex
    }
}

impl Mode {
    /// Makes a permit mode.
    ///
    /// # Errors
    /// [`PermitsError`] when `of` is 0 or above [`MAX_PERMITS`], or `count` is 0 or above `of`.
    pub fn permits(count: u32, of: u32) -> Result<Mode, PermitsError> {
        if (1..=MAX_PERMITS).contains(&of) && (1..=of).contains(&count) {
            Ok(Mode::Permits { count, of })
        } else {
            Err(PermitsError { count, of })
        }
    }

    /// Returns the word for it, in JSON. It never changes.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
            Mode::Permits { .. } => "permits",
        }
    }

    /// Returns how many permits are requested, or `None` for exclusive and shared.
    pub fn permit_count(self) -> Option<u32> {
        match self {
            Mode::Permits { count, .. } => Some(count),
            Mode::Exclusive | Mode::Shared => None,
        }
    }

    /// Returns the semaphore's total, or `None` for exclusive and shared.
    pub fn permits_of(self) -> Option<u32> {
        match self {
            Mode::Permits { of, .. } => Some(of),
            Mode::Exclusive | Mode::Shared => None,
        }
    }
}

/// The numbers do not make a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot take {count} of {of} permits: need 1 <= count <= of <= {MAX_PERMITS}")]
pub struct PermitsError {
    /// How many permits were requested.
    pub count: u32,
    /// The total that was given.
    pub of: u32,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Shared => f.write_str("shared"),
            Mode::Permits { count, of } => write!(f, "{count}/{of} permits"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_checked() {
        for (count, of, good) in
            [(1, 1, true), (3, 3, true), (0, 3, false), (4, 3, false), (1, 0, false)]
        {
            assert_eq!(Mode::permits(count, of).is_ok(), good, "{count} of {of}");
        }
        assert!(Mode::permits(1, MAX_PERMITS + 1).is_err());
    }
}
