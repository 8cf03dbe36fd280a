//! The faults of the local engine, and the errors that they become.
//!
//! A [`Fault`] happens inside a transaction, which is then rolled back: nothing was applied. The
//! only exception is a commit that fails during its writes; its certainty is `Unknown`.

use std::fmt;
use std::io;
use std::path::Path;

use holdline_core::{Certainty, ErrorKind, LockError, LockName, LostReason};
use rusqlite::ErrorCode;
use rustix::io::Errno;

use crate::keys::DATABASE_FILE;

/// The engine's short name.
pub(crate) const ENGINE: &str = "local";
/// The name of the database until its file is known.
const THE_DATABASE: &str = "the database";

/// Why a transaction was rolled back.
#[derive(Debug)]
pub(crate) enum Fault {
    /// An error of the database; `commit` if the commit failed while it was written.
    Database { error: rusqlite::Error, file: String, commit: bool },
    /// An error of a file or directory.
    File { doing: String, error: io::Error },
    /// Something that is not ours.
    Foreign(String),
    /// The reserved tokens are used up: reserve more, then repeat the work.
    TokensUsedUp,
    /// The work must be rolled back and repeated with what it has learned.
    Again,
    /// No larger token is possible.
    CounterAtEnd,
    /// The open database is no longer the one at its path.
    StoreGone(String),
    /// Another boot of the machine has taken the database over.
    OtherBoot,
    /// This process was forked after the engine was opened.
    Forked,
    /// The lock table's own refusal.
    Refusal(Box<LockError>),
    /// All other errors.
    Other(ErrorKind),
}

impl Fault {
    /// An error of a file or directory during an operation.
    pub(crate) fn file(doing: impl fmt::Display, error: io::Error) -> Fault {
        Fault::File { doing: doing.to_string(), error }
    }

    /// The same for a path.
    pub(crate) fn at(doing: &str, path: &Path, error: io::Error) -> Fault {
        Fault::file(format_args!("{doing} {}", path.display()), error)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Fault {
        Fault::Other(ErrorKind::Refused { message: message.into() })
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Fault {
        Fault::Other(ErrorKind::Unavailable { message: message.into() })
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Fault {
        Fault::Other(ErrorKind::Protocol { message: message.into() })
    }

    pub(crate) fn invalid(field: &'static str, message: impl fmt::Display) -> Fault {
        Fault::Refusal(Box::new(LockError::invalid(ENGINE, field, message)))
    }

    /// A commit failed while it was written.
    pub(crate) fn commit(error: rusqlite::Error) -> Fault {
        Fault::Database { error, file: THE_DATABASE.into(), commit: true }
    }

    /// Adds the database's file, if the fault is about it.
    pub(crate) fn in_file(mut self, path: &Path) -> Fault {
        match &mut self {
            Fault::Database { file, .. } => *file = path.display().to_string(),
            Fault::Foreign(found) if !found.contains(DATABASE_FILE) => {
                *found = format!("{}: {found}", path.display());
            }
            _ => {}
        }
        self
    }

    /// For a caller that holds nothing, a removed store is `Unavailable`.
    pub(crate) fn into_unavailable(self) -> Fault {
        match self {
            Fault::StoreGone(what) => {
                Fault::unavailable(format!("{what}: close this client and connect anew"))
            }
            other => other,
        }
    }

    /// Returns whether another program has the database in a transaction. Nothing was done.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Fault::Database { error, commit: false, .. } => {
                code(error) == Some(ErrorCode::DatabaseBusy)
            }
            _ => false,
        }
    }

    fn certainty(&self) -> Certainty {
        match self {
            // A frame without room was not written, and a commit is valid with its last frame only.
            // Any other failure may have happened after that frame was written.
            Fault::Database { error, commit: true, .. }
                if code(error) != Some(ErrorCode::DiskFull) =>
            {
                Certainty::Unknown
            }
            _ => Certainty::NotApplied,
        }
    }

    /// Converts the fault into an error of the library.
    pub(crate) fn into_error(self) -> LockError {
        let certainty = self.certainty();
        match self {
            Fault::Refusal(error) => *error,
            Fault::Other(kind) => LockError::new(ENGINE, kind, certainty),
            Fault::Database { error, file, .. } => {
                LockError::new(ENGINE, kind_of_database(&file, &error), certainty)
                    .with_source(error)
            }
            Fault::File { doing, error } => {
                LockError::new(ENGINE, kind_of_file(&doing, &error), certainty).with_source(error)
            }
            Fault::Foreign(found) => {
                LockError::new(ENGINE, ErrorKind::Foreign { found }, certainty)
            }
            Fault::StoreGone(what) => {
                let reason = LostReason::StoreGone(what);
                LockError::new(ENGINE, ErrorKind::Lost { reason }, certainty)
            }
            Fault::TokensUsedUp | Fault::Again => {
                let message = "a command could not be finished".into();
                LockError::new(ENGINE, ErrorKind::Protocol { message }, certainty)
            }
            Fault::CounterAtEnd => {
                let message = "the database's counter of fencing tokens has reached its end".into();
                LockError::new(ENGINE, ErrorKind::Refused { message }, certainty)
            }
            Fault::OtherBoot => {
                let message = "another boot of the machine has taken the database over: open it \
                               again"
                    .into();
                LockError::new(ENGINE, ErrorKind::Unavailable { message }, certainty)
            }
            Fault::Forked => {
                let message = "this engine was opened before the process forked: open it again in \
                               the child"
                    .into();
                LockError::new(ENGINE, ErrorKind::Unavailable { message }, certainty)
            }
        }
    }

    /// The same, for a command on a name.
    pub(crate) fn about(self, name: &LockName) -> LockError {
        self.into_error().with_name(name)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        Fault::Database { error, file: THE_DATABASE.into(), commit: false }
    }
}

pub(crate) fn code(error: &rusqlite::Error) -> Option<ErrorCode> {
    error.sqlite_error_code()
}

fn kind_of_database(file: &str, error: &rusqlite::Error) -> ErrorKind {
    match code(error) {
        Some(ErrorCode::NotADatabase) => {
            ErrorKind::Foreign { found: format!("{file} is not a database") }
        }
        Some(ErrorCode::DatabaseCorrupt) => ErrorKind::Foreign {
            found: format!("{file} is damaged ({error}); restore a copy, or move it away"),
        },
        Some(ErrorCode::DiskFull) => ErrorKind::Refused {
            message: format!("no room left on the file system of {file}, or in the user's quota"),
        },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            ErrorKind::Refused { message: format!("{file} cannot be written: {error}") }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ErrorKind::Unavailable {
            message: format!("another program keeps {file} in a transaction of its own"),
        },
        Some(ErrorCode::SystemIoFailure) if exceeds_file_limit(error) => {
            ErrorKind::Refused { message: too_large(&format!("{file} could not be written")) }
        }
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => {
            ErrorKind::Unavailable { message: format!("{file} cannot be reached: {error}") }
        }
        _ if is_wrong_shape(error) => {
            ErrorKind::Foreign { found: format!("{file} has not our tables: {error}") }
        }
        _ => ErrorKind::Protocol { message: format!("{file} answered: {error}") },
    }
}

/// What of the machine keeps a store from being opened or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The kernel denies a file to this user, or SQLite cannot open it.
    Denied,
    /// The disk or the user's quota is full.
    NoRoom,
    /// The limit of file sizes of this process (`ulimit -f`).
    FileSizeLimit,
}

impl Obstacle {
    /// Returns the obstacle behind an error of this engine, if there is one.
    pub fn of(error: &LockError) -> Option<Obstacle> {
        let source = std::error::Error::source(error)?;
        if let Some(error) = source.downcast_ref::<io::Error>() {
            return match error.kind() {
                _ if Errno::from_io_error(error) == Some(Errno::ACCESS) => Some(Obstacle::Denied),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Obstacle::NoRoom),
                io::ErrorKind::FileTooLarge => Some(Obstacle::FileSizeLimit),
                _ => None,
            };
        }
        let error = source.downcast_ref::<rusqlite::Error>()?;
        match code(error)? {
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied => Some(Obstacle::Denied),
            ErrorCode::DiskFull => Some(Obstacle::NoRoom),
            ErrorCode::SystemIoFailure if exceeds_file_limit(error) => {
                Some(Obstacle::FileSizeLimit)
            }
            _ => None,
        }
    }
}

/// Returns whether the limit of file sizes may be why a file could not grow.
fn exceeds_file_limit(error: &rusqlite::Error) -> bool {
    is_write(error) && file_limit().is_some()
}

/// Returns whether a file could not grow, or not be written.
fn is_write(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE};
    let writes = [SQLITE_IOERR_WRITE, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_SHMSIZE];
    error.sqlite_error().is_some_and(|error| writes.contains(&error.extended_code))
}

/// The limit of file sizes of this process, if there is one (`ulimit -f`).
fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

fn too_large(doing: &str) -> String {
    let limit = file_limit().map_or_else(String::new, |bytes| format!(" to {bytes} bytes"));
    format!("{doing}: files of this process are limited{limit}: raise it with `ulimit -f`")
}

/// Returns whether a statement found another table, or a value of another type, than ours.
fn is_wrong_shape(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => {
            true
        }
        rusqlite::Error::SqlInputError { msg, .. }
        | rusqlite::Error::SqliteFailure(_, Some(msg)) => {
            msg.contains("no such table") || msg.contains("no such column")
        }
        _ => false,
    }
}

fn kind_of_file(doing: &str, error: &io::Error) -> ErrorKind {
    let message = format!("{doing}: {error}");
    match error.kind() {
        io::ErrorKind::FileTooLarge => ErrorKind::Refused { message: too_large(doing) },
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::StorageFull
        | io::ErrorKind::QuotaExceeded => ErrorKind::Refused { message },
        _ => ErrorKind::Unavailable { message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
    }

    #[test]
    fn each_kind_of_failure_has_its_own_kind_of_error() {
        use rusqlite::ffi;
        for (code, wanted) in [
            (ffi::SQLITE_NOTADB, "not ours"),
            (ffi::SQLITE_CORRUPT, "not ours"),
            (ffi::SQLITE_FULL, "refused"),
            (ffi::SQLITE_READONLY, "refused"),
            (ffi::SQLITE_IOERR, "no answer"),
            (ffi::SQLITE_BUSY, "no answer"),
            (ffi::SQLITE_MISUSE, "unexpected answer"),
        ] {
            let error = Fault::from(failure(code)).into_error();
            assert!(error.kind().to_string().starts_with(wanted), "{code}: {error}");
            assert_eq!(error.certainty(), Certainty::NotApplied);
        }
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let error = Fault::file("opening x", denied).into_error();
        assert!(error.to_string().contains("refused: opening x"), "{error}");
    }

    #[test]
    fn an_obstacle_is_known_by_the_code_of_the_failure() {
        use rusqlite::ffi;
        for (code, wanted) in [
            (ffi::SQLITE_CANTOPEN, Some(Obstacle::Denied)),
            (ffi::SQLITE_PERM, Some(Obstacle::Denied)),
            (ffi::SQLITE_FULL, Some(Obstacle::NoRoom)),
            (ffi::SQLITE_BUSY, None),
        ] {
            assert_eq!(Obstacle::of(&Fault::from(failure(code)).into_error()), wanted, "{code}");
        }
        for (errno, wanted) in [
            (Errno::ACCESS, Some(Obstacle::Denied)),
            (Errno::DQUOT, Some(Obstacle::NoRoom)),
            (Errno::FBIG, Some(Obstacle::FileSizeLimit)),
            (Errno::NOENT, None),
        ] {
            let error = Fault::file("opening x", errno.into()).into_error();
            assert_eq!(Obstacle::of(&error), wanted, "{errno}");
        }
    }

    #[test]
    fn only_a_commit_that_failed_in_the_middle_is_uncertain() {
        use rusqlite::ffi;
        let torn = Fault::commit(failure(ffi::SQLITE_IOERR)).into_error();
        assert_eq!(torn.certainty(), Certainty::Unknown);
        let full = Fault::commit(failure(ffi::SQLITE_FULL)).into_error();
        assert_eq!(full.certainty(), Certainty::NotApplied);
    }
}
