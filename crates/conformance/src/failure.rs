//! The failure of a case.

use std::fmt;

use holdline_core::LockError;

/// Why a case failed: what was expected, what was seen, and where in the case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

/// What a case returns.
pub type Verdict = Result<Outcome, Failure>;

/// How a case went that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran to its end.
    Ran,
    /// The engine's kind of store has nothing that it could be about, for this reason.
    Impossible(&'static str),
}

impl Failure {
    /// Makes a failure that points at the line that found it.
    #[track_caller]
    pub fn new(message: impl fmt::Display) -> Failure {
        let place = std::panic::Location::caller();
        let file = place.file().rsplit('/').next().unwrap_or_default();
        Failure(format!("{message} [{file}:{}]", place.line()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<LockError> for Failure {
    #[track_caller]
    fn from(error: LockError) -> Failure {
        Failure::new(format_args!("unexpected error: {error}"))
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::failure::Failure::new(format_args!($($message)+)));
        }
    };
}

/// Fails the case unless the value matches the pattern, and shows the value.
macro_rules! ensure_matches {
    ($value:expr, $($pattern:tt)+) => {
        match $value {
            $($pattern)+ => {}
            other => {
                return Err($crate::failure::Failure::new(format_args!(
                    "expected {}, got {other:?}",
                    stringify!($($pattern)+)
                )));
            }
        }
    };
}

pub(crate) use {ensure, ensure_matches};
