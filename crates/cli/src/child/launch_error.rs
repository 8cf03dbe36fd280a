//! Why a command could not be started.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;

use holdline_core::Escaped;

/// Why the command could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum LaunchError {
    /// There is no such program.
    NotFound {
        /// As the user wrote it.
        program: OsString,
    },
    /// There is such a file, but it cannot be executed.
    Refused {
        /// As the user wrote it.
        program: OsString,
        /// What is wrong with it.
        why: String,
    },
    /// Its condition no longer holds.
    TooLate,
    /// No process could be created.
    Failed {
        /// The error of the operating system.
        source: io::Error,
    },
}

impl LaunchError {
    pub(super) fn refused(program: &OsStr, why: impl Into<String>) -> Self {
        Self::Refused { program: program.to_owned(), why: why.into() }
    }

    pub(super) fn failed(source: impl Into<io::Error>) -> Self {
        Self::Failed { source: source.into() }
    }

    /// 127, 126 or 125, as `env`, `nice` and `timeout` have it.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } => 127,
            Self::Refused { .. } => 126,
            Self::Failed { .. } | Self::TooLate => 125,
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { program } => {
                let program = program.to_string_lossy();
                let place = if program.contains('/') { "" } else { " in PATH" };
                write!(f, "cannot run \"{}\": not found{place}", Escaped(&program))
            }
            Self::Refused { program, why } => {
                write!(f, "cannot run \"{}\": {why}", Escaped(&program.to_string_lossy()))
            }
            Self::TooLate => f.write_str("it was too late to start the command"),
            Self::Failed { source } => write!(f, "cannot start a process: {source}"),
        }
    }
}

impl std::error::Error for LaunchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed { source } => Some(source),
            Self::NotFound { .. } | Self::Refused { .. } | Self::TooLate => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_program_and_escape_it() {
        let not_found = |program: &str| LaunchError::NotFound { program: program.into() };
        for (error, text, code) in [
            (not_found("x"), "cannot run \"x\": not found in PATH", 127),
            (not_found("./x\n"), "cannot run \"./x\\u{a}\": not found", 127),
            (
                LaunchError::refused("d".as_ref(), "it is a directory"),
                "cannot run \"d\": it is a directory",
                126,
            ),
        ] {
            assert_eq!((error.to_string().as_str(), error.exit_code()), (text, code));
        }
    }
}
